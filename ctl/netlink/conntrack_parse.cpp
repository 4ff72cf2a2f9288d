// SPDX-License-Identifier: GPL-2.0-only
// The inverse of ctnetlink_fill_info() (net/netfilter/nf_conntrack_netlink.c).
#include "netlink/ct_message.h"

#include <netinet/in.h>

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

namespace ftctl::nl {
namespace {

void parse_ip(const Attr &ip, std::uint8_t family, Tuple &t)
{
    const bool v4 = family == AF_INET;
    for (const Attr &a : ip.nested()) {
        if (a.type == (v4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC))
            t.src = a.addr(family);
        else if (a.type == (v4 ? CTA_IP_V4_DST : CTA_IP_V6_DST))
            t.dst = a.addr(family);
    }
}

// GRE keys travel as ports (nf_ct_port_tuple_to_nlattr); ICMP has ids instead, which are left out.
bool parse_proto_attrs(const Attr &proto, Tuple &t)
{
    bool named = false;
    for (const Attr &a : proto.nested()) {
        switch (a.type) {
        case CTA_PROTO_NUM:
            if (const auto v = a.u8()) {
                t.proto = *v;
                named = true;
            }
            break;
        case CTA_PROTO_SRC_PORT:
            t.sport = a.be16().value_or(0);
            break;
        case CTA_PROTO_DST_PORT:
            t.dport = a.be16().value_or(0);
            break;
        default:
            break;
        }
    }
    return named;
}

/// A tuple with both addresses and a protocol, or nothing.
bool parse_tuple(const Attr &tuple, std::uint8_t family, Tuple &t, std::uint16_t &zone)
{
    bool proto = false;
    for (const Attr &a : tuple.nested()) {
        switch (a.type) {
        case CTA_TUPLE_IP:
            parse_ip(a, family, t);
            break;
        case CTA_TUPLE_PROTO:
            proto = parse_proto_attrs(a, t);
            break;
        case CTA_TUPLE_ZONE: // a zone for this direction only; the entry is not in zone 0 then
            if (const auto v = a.be16(); v && *v != 0)
                zone = *v;
            break;
        default:
            break;
        }
    }
    return proto && t.src && t.dst;
}

void parse_protoinfo(const Attr &info, CtEntry &e)
{
    const auto tcp = info.nested().find(CTA_PROTOINFO_TCP);
    if (!tcp)
        return;
    // struct nf_ct_tcp_flags: flags, mask
    const auto flags = [](const Attr &a) -> std::optional<std::uint8_t> {
        return a.data.size() == 2 ? std::optional(static_cast<std::uint8_t>(a.data[0])) : std::nullopt;
    };
    for (const Attr &a : tcp->nested()) {
        if (a.type == CTA_PROTOINFO_TCP_STATE)
            e.tcp_state = a.u8();
        else if (a.type == CTA_PROTOINFO_TCP_FLAGS_ORIGINAL)
            e.tcp_flags_orig = flags(a);
        else if (a.type == CTA_PROTOINFO_TCP_FLAGS_REPLY)
            e.tcp_flags_reply = flags(a);
    }
}

std::optional<CtEventType> event_type(const Message &m)
{
    switch (m.type & 0xff) {
    case IPCTNL_MSG_CT_NEW:
        return (m.flags & NLM_F_CREATE) ? CtEventType::created : CtEventType::updated;
    case IPCTNL_MSG_CT_DELETE:
        return CtEventType::destroyed;
    default:
        return std::nullopt;
    }
}

} // namespace

std::optional<CtMessage> parse_conntrack(const Message &m)
{
    if (m.type >> 8 != NFNL_SUBSYS_CTNETLINK)
        return std::nullopt;
    const auto type = event_type(m);
    const auto head = m.head<nfgenmsg>();
    if (!type || !head || (head->nfgen_family != AF_INET && head->nfgen_family != AF_INET6))
        return std::nullopt;

    CtMessage out{*type, {}};
    CtEntry &e = out.entry;
    bool orig = false;
    bool reply = false;
    for (const Attr &a : m.attrs(sizeof(nfgenmsg))) {
        switch (a.type) {
        case CTA_TUPLE_ORIG:
            orig = parse_tuple(a, head->nfgen_family, e.orig, e.zone);
            break;
        case CTA_TUPLE_REPLY:
            reply = parse_tuple(a, head->nfgen_family, e.reply, e.zone);
            break;
        case CTA_STATUS:
            e.status = a.be32().value_or(0);
            break;
        case CTA_MARK:
            e.mark = a.be32().value_or(0);
            break;
        case CTA_ID:
            e.id = a.be32().value_or(0);
            break;
        case CTA_ZONE:
            if (const auto v = a.be16(); v && *v != 0)
                e.zone = *v;
            break;
        case CTA_TIMEOUT:
            e.timeout_s = a.be32();
            break;
        case CTA_PROTOINFO:
            parse_protoinfo(a, e);
            break;
        case CTA_HELP:
            e.helper = true;
            break;
        case CTA_SEQ_ADJ_ORIG:
        case CTA_SEQ_ADJ_REPLY:
            e.seqadj = true;
            break;
        case CTA_SYNPROXY:
            // The kernel gives every entry made through ctnetlink (conntrackd, conntrack -I) an
            // empty one, ctnetlink_create_conntrack(): only one with values is behind a SYN proxy.
            for (const Attr &value : a.nested())
                e.synproxy = e.synproxy || value.be32().value_or(1) != 0;
            break;
        default:
            break;
        }
    }
    // An entry of which a direction cannot be told is none: nothing may be decided from half of it.
    if (!orig || !reply || e.orig.proto != e.reply.proto)
        return std::nullopt;
    return out;
}

} // namespace ftctl::nl

namespace ftctl {

std::optional<CtMessage> parse_ct_message(const void *nlmsg, std::size_t len)
{
    nl::Bytes rest = nl::bytes_of(nlmsg, len);
    const auto m = nl::next_message(rest);
    return m ? nl::parse_conntrack(*m) : std::nullopt;
}

} // namespace ftctl
