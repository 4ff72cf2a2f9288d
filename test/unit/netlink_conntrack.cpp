// SPDX-License-Identifier: GPL-2.0-only
#include <catch2/catch.hpp>

#include <netinet/in.h>

#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

#include "netlink/conntrack.h"
#include "netlink_messages.h"

using namespace ftctl;
using netlink_test::Builder;

namespace {

void put_tuple(Builder &b, std::uint16_t type, const Tuple &t, std::uint16_t zone = 0)
{
    const bool v4 = t.src.family == AF_INET;
    b.nest(type, [&] {
        b.nest(CTA_TUPLE_IP, [&] {
            b.addr(v4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC, t.src.str());
            b.addr(v4 ? CTA_IP_V4_DST : CTA_IP_V6_DST, t.dst.str());
        });
        b.nest(CTA_TUPLE_PROTO, [&] {
            b.u8(CTA_PROTO_NUM, t.proto);
            b.be16(CTA_PROTO_SRC_PORT, t.sport);
            b.be16(CTA_PROTO_DST_PORT, t.dport);
        });
        if (zone)
            b.be16(CTA_TUPLE_ZONE, zone);
    });
}

Tuple tuple(const char *src, std::uint16_t sport, const char *dst, std::uint16_t dport, std::uint8_t proto)
{
    return {IpAddr::parse(src).value(), IpAddr::parse(dst).value(), sport, dport, proto};
}

Builder ct_message(std::uint8_t msg, std::uint16_t flags, std::uint8_t family)
{
    Builder b(static_cast<std::uint16_t>(NFNL_SUBSYS_CTNETLINK << 8 | msg), flags);
    b.head<nfgenmsg>().nfgen_family = family;
    return b;
}

const Tuple orig4 = tuple("192.0.2.2", 40000, "198.51.100.2", 80, IPPROTO_TCP);
const Tuple reply4 = tuple("198.51.100.2", 80, "198.51.100.1", 40001, IPPROTO_TCP);

Builder full_v4()
{
    Builder b = ct_message(IPCTNL_MSG_CT_NEW, NLM_F_CREATE | NLM_F_EXCL, AF_INET);
    put_tuple(b, CTA_TUPLE_ORIG, orig4);
    put_tuple(b, CTA_TUPLE_REPLY, reply4);
    b.be32(CTA_STATUS, IPS_CONFIRMED | IPS_SEEN_REPLY | IPS_ASSURED | IPS_SRC_NAT);
    b.be32(CTA_TIMEOUT, 432000);
    b.be32(CTA_MARK, 0x80000001);
    b.be32(CTA_ID, 0xdeadbeef);
    b.be16(CTA_ZONE, 7);
    b.nest(CTA_PROTOINFO, [&] {
        b.nest(CTA_PROTOINFO_TCP, [&] {
            b.u8(CTA_PROTOINFO_TCP_STATE, 3);
            b.put(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, "\x2b", 2);
            b.put(CTA_PROTOINFO_TCP_FLAGS_REPLY, "\x23", 2);
        });
    });
    b.nest(CTA_HELP, [&] { b.text(CTA_HELP_NAME, "ftp"); });
    b.nest(CTA_SEQ_ADJ_ORIG, [&] { b.be32(CTA_SEQADJ_CORRECTION_POS, 1); });
    b.nest(CTA_SYNPROXY, [&] { b.be32(CTA_SYNPROXY_ISN, 1); });
    return b;
}

std::optional<CtMessage> parse(const std::vector<char> &msg)
{
    const auto block = std::make_unique<char[]>(msg.size());
    std::copy(msg.begin(), msg.end(), block.get());
    return parse_ct_message(block.get(), msg.size());
}

} // namespace

TEST_CASE("conntrack: an IPv4 TCP entry with everything", "[netlink]")
{
    const auto m = parse(full_v4().bytes());
    REQUIRE(m);
    CHECK(m->type == CtEventType::created);
    const CtEntry &e = m->entry;
    CHECK(e.orig == orig4);
    CHECK(e.reply == reply4);
    CHECK(e.id == 0xdeadbeef);
    CHECK(e.status == (IPS_CONFIRMED | IPS_SEEN_REPLY | IPS_ASSURED | IPS_SRC_NAT));
    CHECK(e.mark == 0x80000001);
    CHECK(e.zone == 7);
    CHECK(e.timeout_s == 432000U);
    CHECK(e.tcp_state == 3);
    CHECK(e.tcp_flags_orig == 0x2b);
    CHECK(e.tcp_flags_reply == 0x23);
    CHECK(e.helper);
    CHECK(e.seqadj);
    CHECK(e.synproxy);
}

TEST_CASE("conntrack: an IPv6 UDP entry without options", "[netlink]")
{
    const Tuple orig = tuple("2001:db8:a::2", 5353, "2001:db8:b::2", 53, IPPROTO_UDP);
    Builder b = ct_message(IPCTNL_MSG_CT_NEW, 0, AF_INET6);
    put_tuple(b, CTA_TUPLE_ORIG, orig, 9);
    put_tuple(b, CTA_TUPLE_REPLY, orig.reversed());
    const auto m = parse(b.bytes());
    REQUIRE(m);
    CHECK(m->type == CtEventType::updated);
    CHECK(m->entry.orig == orig);
    CHECK(m->entry.reply == orig.reversed());
    CHECK(m->entry.zone == 9); // a zone of one direction is no zone 0
    CHECK_FALSE(m->entry.timeout_s);
    CHECK_FALSE(m->entry.tcp_state);
    CHECK_FALSE(m->entry.helper);
    CHECK_FALSE(m->entry.seqadj);
    CHECK_FALSE(m->entry.synproxy);
}

TEST_CASE("conntrack: messages that are none", "[netlink]")
{
    Builder destroy = ct_message(IPCTNL_MSG_CT_DELETE, 0, AF_INET);
    put_tuple(destroy, CTA_TUPLE_ORIG, orig4);
    CHECK_FALSE(parse(destroy.bytes())); // half an entry
    put_tuple(destroy, CTA_TUPLE_REPLY, reply4);
    const auto m = parse(destroy.bytes());
    REQUIRE(m);
    CHECK(m->type == CtEventType::destroyed);

    Builder mixed = ct_message(IPCTNL_MSG_CT_NEW, 0, AF_INET6); // family and addresses disagree
    put_tuple(mixed, CTA_TUPLE_ORIG, orig4);
    put_tuple(mixed, CTA_TUPLE_REPLY, reply4);
    CHECK_FALSE(parse(mixed.bytes()));

    Builder other(static_cast<std::uint16_t>(NFNL_SUBSYS_CTNETLINK_EXP << 8), 0);
    other.head<nfgenmsg>().nfgen_family = AF_INET;
    CHECK_FALSE(parse(other.bytes()));
    CHECK_FALSE(parse({}));
}

TEST_CASE("conntrack: mauled messages are survived", "[netlink]")
{
    const auto msg = full_v4().bytes();
    for (std::size_t len = 0; len < msg.size(); len++) {
        // Whatever the header says beyond what arrived is no message.
        CHECK_FALSE(parse({msg.begin(), msg.begin() + static_cast<std::ptrdiff_t>(len)}));
    }
    netlink_test::maul(msg, [](const nl::Message &m) {
        // Through the public entrance, with the header as mauled.
        const auto *head = reinterpret_cast<const char *>(m.payload.data()) - sizeof(nlmsghdr);
        return parse_ct_message(head, m.payload.size() + sizeof(nlmsghdr)).has_value();
    });
}
