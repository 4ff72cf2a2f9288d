// SPDX-License-Identifier: GPL-2.0-only
#include "netlink/conntrack.h"

#include <netinet/in.h>

#include <fmt/format.h>
#include <linux/netfilter/nf_conntrack_tcp.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

#include "netlink/ct_message.h"
#include "netlink/socket.h"

namespace ftctl {
namespace {

constexpr std::uint16_t ct_type(unsigned msg)
{
    return static_cast<std::uint16_t>(NFNL_SUBSYS_CTNETLINK << 8 | msg);
}

void start(nl::Request &r, std::uint8_t family)
{
    auto &head = r.head<nfgenmsg>();
    head.nfgen_family = family;
    head.version = NFNETLINK_V0;
}

bool has_ports(std::uint8_t proto)
{
    switch (proto) {
    case IPPROTO_TCP:
    case IPPROTO_UDP:
    case IPPROTO_UDPLITE:
    case IPPROTO_SCTP:
    case IPPROTO_DCCP:
    case IPPROTO_GRE:
        return true;
    default:
        return false;
    }
}

/// Names an entry by its original tuple, as ctnetlink_parse_tuple() wants it.
void put_tuple(nl::Request &r, const Tuple &t)
{
    const bool v4 = t.src.family == AF_INET;
    nlattr *tuple = r.nest(CTA_TUPLE_ORIG);
    nlattr *ip = r.nest(CTA_TUPLE_IP);
    r.put(v4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC, t.src);
    r.put(v4 ? CTA_IP_V4_DST : CTA_IP_V6_DST, t.dst);
    r.end(ip);
    nlattr *proto = r.nest(CTA_TUPLE_PROTO);
    r.put_u8(CTA_PROTO_NUM, t.proto);
    if (has_ports(t.proto)) {
        r.put_be16(CTA_PROTO_SRC_PORT, t.sport);
        r.put_be16(CTA_PROTO_DST_PORT, t.dport);
    }
    r.end(proto);
    r.end(tuple);
}

class Events final : public CtEvents {
  public:
    explicit Events(nl::EventSocket socket) : socket_(std::move(socket)) {}
    [[nodiscard]] int fd() const override { return socket_.fd(); }

    Result<bool> read(const Handler &handler, unsigned max_messages) override
    {
        const auto state = socket_.read(
            [&](const nl::Message &m) {
                if (const auto parsed = nl::parse_conntrack(m))
                    handler(parsed->type, parsed->entry);
            },
            max_messages);
        if (!state)
            return tl::unexpected(state.error());
        return *state != nl::EventSocket::State::overrun;
    }

  private:
    nl::EventSocket socket_;
};

class Control final : public CtControl {
  public:
    explicit Control(nl::Socket socket) : socket_(std::move(socket)) {}

    Status dump(const std::function<bool(const CtEntry &)> &handler) override
    {
        // On a socket of its own: the handler may ask and change entries meanwhile, and answers must
        // not mix with what is left of the dump.
        auto socket = nl::Socket::open(NETLINK_NETFILTER);
        if (!socket)
            return tl::unexpected(socket.error());
        nl::Request r(ct_type(IPCTNL_MSG_CT_GET), NLM_F_DUMP);
        start(r, AF_UNSPEC);
        const int err = socket->dump(r, [&](const nl::Message &m) {
            const auto parsed = nl::parse_conntrack(m);
            return !parsed || handler(parsed->entry);
        });
        // ctnetlink walks its hash bucket by bucket: an interrupted dump (a resize) can miss
        // entries, never invent them. The handler has seen some already, so say so.
        if (err)
            return socket->error("list conntrack entries", err);
        return {};
    }

    Result<CtEntry> get(const Tuple &orig) override
    {
        const auto what = [&] { return fmt::format("read conntrack entry {}", orig.str()); };
        if (const int err = check(orig))
            return fail_errno(what(), err);
        nl::Request r(ct_type(IPCTNL_MSG_CT_GET), 0);
        start(r, orig.src.family);
        put_tuple(r, orig);
        std::optional<CtMessage> answer;
        const int err = socket_.ask(r, [&](const nl::Message &m) {
            answer = nl::parse_conntrack(m);
            return true;
        });
        if (err)
            return socket_.error(what(), err);
        if (!answer)
            return fail_errno(what(), EBADMSG);
        // The kernel finds an entry by either of its tuples; only the original one was asked for.
        if (answer->entry.orig != orig)
            return fail_errno(what(), ENOENT);
        return answer->entry;
    }

    Status set_liberal(const Tuple &orig) override
    {
        return change(orig, "relax window tracking of", [](nl::Request &r) {
            const nf_ct_tcp_flags flags{IP_CT_TCP_FLAG_BE_LIBERAL,
                                        IP_CT_TCP_FLAG_BE_LIBERAL | IP_CT_TCP_FLAG_MAXACK_SET};
            nlattr *info = r.nest(CTA_PROTOINFO);
            nlattr *tcp = r.nest(CTA_PROTOINFO_TCP);
            r.put(CTA_PROTOINFO_TCP_FLAGS_ORIGINAL, &flags, sizeof(flags));
            r.put(CTA_PROTOINFO_TCP_FLAGS_REPLY, &flags, sizeof(flags));
            r.end(tcp);
            r.end(info);
        });
    }

    Status set_timeout(const Tuple &orig, std::uint32_t seconds) override
    {
        return change(orig, "set the timeout of",
                      [seconds](nl::Request &r) { r.put_be32(CTA_TIMEOUT, seconds); });
    }

    Status set_tcp_state(const Tuple &orig, std::uint8_t state, std::uint32_t seconds) override
    {
        return change(orig, "set the TCP state of", [state, seconds](nl::Request &r) {
            r.put_be32(CTA_TIMEOUT, seconds);
            nlattr *info = r.nest(CTA_PROTOINFO);
            nlattr *tcp = r.nest(CTA_PROTOINFO_TCP);
            r.put_u8(CTA_PROTOINFO_TCP_STATE, state);
            r.end(tcp);
            r.end(info);
        });
    }

  private:
    /// 0, or why the kernel could not find an entry by this tuple.
    static int check(const Tuple &t)
    {
        if (t.src.size() == 0 || t.src.family != t.dst.family)
            return EINVAL;
        // These entries are told apart by their ids, which a Tuple does not have.
        return t.proto == IPPROTO_ICMP || t.proto == IPPROTO_ICMPV6 ? EOPNOTSUPP : 0;
    }

    /// IPCTNL_MSG_CT_NEW without NLM_F_CREATE changes an entry or says ENOENT.
    template <typename Fill>
    Status change(const Tuple &orig, const char *verb, const Fill &fill)
    {
        int err = check(orig);
        if (err)
            return fail_errno(fmt::format("{} conntrack entry {}", verb, orig.str()), err);
        nl::Request r(ct_type(IPCTNL_MSG_CT_NEW), NLM_F_ACK);
        start(r, orig.src.family);
        put_tuple(r, orig);
        fill(r);
        err = socket_.ask(r);
        if (err)
            return socket_.error(fmt::format("{} conntrack entry {}", verb, orig.str()), err);
        return {};
    }

    nl::Socket socket_;
};

} // namespace

Result<std::unique_ptr<CtEvents>> CtEvents::open(std::size_t rcvbuf_bytes)
{
    auto socket = nl::EventSocket::open(
        NETLINK_NETFILTER, {NFNLGRP_CONNTRACK_NEW, NFNLGRP_CONNTRACK_UPDATE, NFNLGRP_CONNTRACK_DESTROY},
        rcvbuf_bytes);
    if (!socket)
        return tl::unexpected(socket.error());
    return std::make_unique<Events>(std::move(*socket));
}

Result<std::unique_ptr<CtControl>> CtControl::open()
{
    auto socket = nl::Socket::open(NETLINK_NETFILTER);
    if (!socket)
        return tl::unexpected(socket.error());
    return std::make_unique<Control>(std::move(*socket));
}

} // namespace ftctl
