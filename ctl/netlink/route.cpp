// SPDX-License-Identifier: GPL-2.0-only
#include "netlink/route.h"

#include <netinet/in.h>

#include <fmt/format.h>
#include <linux/fib_rules.h>
#include <linux/if.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/nexthop.h>
#include <linux/rtnetlink.h>

#include "netlink/route_message.h"
#include "netlink/socket.h"

namespace ftctl {
namespace {

// rtm_tos and the FIB know DSCP only: the two ECN bits never decide a route.
constexpr std::uint8_t dscp_bits = 0xfc;

/// The address goes into an rtmsg with its full length, as strict checking demands.
std::uint8_t bits(const IpAddr &a)
{
    return static_cast<std::uint8_t>(a.size() * 8);
}

/// The two may serve the same packets, and nothing in them says which one does. IPv4 has that for
/// default routes only.
bool rival(const nl::FibRoute &a, const nl::FibRoute &b)
{
    const auto &dst = b.route.dst;
    if (a.route.dst != dst || a.route.table != b.route.table || a.priority != b.priority)
        return false;
    if (b.route.family == AF_INET)
        return dst.len == 0;
    // Every device has these; what they lead to is never forwarded.
    return dst.addr.bytes[0] != 0xff && !(dst.addr.bytes[0] == 0xfe && (dst.addr.bytes[1] & 0xc0) == 0x80);
}

class Control final : public RtControl {
  public:
    explicit Control(nl::Socket socket) : socket_(std::move(socket)) {}

    Result<RouteAnswer> route(const RouteQuery &q) override;
    Result<std::vector<Link>> links() override;
    Result<Link> link(std::uint32_t index) override;
    Result<Link> link(const std::string &name) override;
    Result<std::vector<Neigh>> neighbours() override;
    Result<std::optional<Neigh>> neighbour(std::uint32_t ifindex, const IpAddr &addr) override;
    Result<std::optional<std::uint32_t>> fdb_port(std::uint32_t bridge, const Mac &mac,
                                                  std::uint16_t vid) override;
    Result<BridgeVlans> bridge_vlans() override;
    Result<RuleSummary> rules(std::uint8_t family) override;
    Status probe_neighbour(std::uint32_t ifindex, const IpAddr &addr) override;
    Result<RouteTraits> route_traits(std::uint8_t family) override;

  private:
    Result<Link> one_link(const nl::Request &r, const std::string &what);
    int any_nexthop_group(bool &found);

    nl::Socket socket_;
};

Result<RouteAnswer> Control::route(const RouteQuery &q)
{
    const auto what = [&] { return fmt::format("look up the route to {}", q.dst.str()); };
    if (q.dst.size() == 0 || (q.src && q.src.family != q.dst.family))
        return fail_errno(what(), EINVAL);
    nl::Request r(RTM_GETROUTE, 0);
    auto &head = r.head<rtmsg>();
    head.rtm_family = q.dst.family;
    head.rtm_dst_len = bits(q.dst);
    head.rtm_src_len = bits(q.src);
    head.rtm_tos = q.tos & dscp_bits;
    // IPv4 names the table only when asked to; IPv6 always does and refuses the flag.
    if (q.dst.family == AF_INET)
        head.rtm_flags = RTM_F_LOOKUP_TABLE;
    r.put(RTA_DST, q.dst);
    if (q.src)
        r.put(RTA_SRC, q.src);
    if (q.iif)
        r.put_u32(RTA_IIF, q.iif);
    if (q.oif)
        r.put_u32(RTA_OIF, q.oif);
    if (q.mark)
        r.put_u32(RTA_MARK, q.mark);
    // The kernel takes no other protocol here (rtm_getroute_parse_ip_proto), and ports only with one.
    if (q.proto == IPPROTO_TCP || q.proto == IPPROTO_UDP) {
        r.put_u8(RTA_IP_PROTO, q.proto);
        if (q.sport)
            r.put_be16(RTA_SPORT, q.sport);
        if (q.dport)
            r.put_be16(RTA_DPORT, q.dport);
    }
    std::optional<RouteAnswer> answer;
    const int err = socket_.ask(r, [&answer](const nl::Message &m) {
        answer = nl::parse_route_answer(m);
        return true;
    });
    if (err)
        return socket_.error(what(), err);
    if (!answer)
        return fail_errno(what(), EBADMSG);
    return *answer;
}

Result<std::vector<Link>> Control::links()
{
    nl::Request r(RTM_GETLINK, NLM_F_DUMP);
    r.head<ifinfomsg>();
    r.put_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    std::vector<Link> all;
    const int err = socket_.dump_consistent(
        r, [&] { all.clear(); },
        [&](const nl::Message &m) {
            if (auto link = nl::parse_link(m))
                all.push_back(std::move(*link));
            return true;
        });
    if (err)
        return socket_.error("list network devices", err);
    return all;
}

Result<Link> Control::one_link(const nl::Request &r, const std::string &what)
{
    std::optional<Link> found;
    const int err = socket_.ask(r, [&found](const nl::Message &m) {
        found = nl::parse_link(m);
        return true;
    });
    if (err)
        return socket_.error(what, err);
    if (!found)
        return fail_errno(what, EBADMSG);
    return std::move(*found);
}

Result<Link> Control::link(std::uint32_t index)
{
    nl::Request r(RTM_GETLINK, 0);
    r.head<ifinfomsg>().ifi_index = static_cast<int>(index);
    r.put_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    return one_link(r, fmt::format("look up device {}", index));
}

Result<Link> Control::link(const std::string &name)
{
    const auto what = fmt::format("look up device {}", name);
    // Without a name the kernel would look for an index.
    if (name.empty() || name.size() >= IFNAMSIZ)
        return fail_errno(what, ENODEV);
    nl::Request r(RTM_GETLINK, 0);
    r.head<ifinfomsg>();
    r.put_text(IFLA_IFNAME, name);
    r.put_u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    return one_link(r, what);
}

Result<std::vector<Neigh>> Control::neighbours()
{
    nl::Request r(RTM_GETNEIGH, NLM_F_DUMP);
    r.head<ndmsg>();
    std::vector<Neigh> all;
    const int err = socket_.dump_consistent(
        r, [&] { all.clear(); },
        [&](const nl::Message &m) {
            if (const auto n = nl::parse_neigh(m))
                all.push_back(*n);
            return true;
        });
    if (err)
        return socket_.error("list neighbours", err);
    return all;
}

Result<std::optional<Neigh>> Control::neighbour(std::uint32_t ifindex, const IpAddr &addr)
{
    nl::Request r(RTM_GETNEIGH, 0);
    auto &head = r.head<ndmsg>();
    head.ndm_family = addr.family;
    head.ndm_ifindex = static_cast<int>(ifindex);
    r.put(NDA_DST, addr);
    std::optional<Neigh> found;
    const int err = addr.size() == 0 ? EINVAL : socket_.ask(r, [&found](const nl::Message &m) {
        found = nl::parse_neigh(m);
        return true;
    });
    if (err == ENOENT)
        return std::optional<Neigh>{};
    if (err)
        return socket_.error(fmt::format("look up neighbour {}", addr.str()), err);
    return found;
}

Result<std::optional<std::uint32_t>> Control::fdb_port(std::uint32_t bridge, const Mac &mac,
                                                       std::uint16_t vid)
{
    nl::Request r(RTM_GETNEIGH, 0);
    r.head<ndmsg>().ndm_family = AF_BRIDGE;
    r.put_u32(NDA_MASTER, bridge);
    r.put(NDA_LLADDR, mac.bytes.data(), mac.bytes.size());
    if (vid)
        r.put_u16(NDA_VLAN, vid);
    std::optional<std::uint32_t> found;
    const int err = socket_.ask(r, [&found](const nl::Message &m) {
        found = nl::parse_fdb_port(m);
        return true;
    });
    if (err == ENOENT)
        return std::optional<std::uint32_t>{};
    if (err)
        return socket_.error(fmt::format("look up station {}", mac.str()), err);
    return found;
}

Result<BridgeVlans> Control::bridge_vlans()
{
    nl::Request r(RTM_GETLINK, NLM_F_DUMP);
    r.head<ifinfomsg>().ifi_family = AF_BRIDGE;
    r.put_u32(IFLA_EXT_MASK, RTEXT_FILTER_BRVLAN_COMPRESSED | RTEXT_FILTER_SKIP_STATS);
    BridgeVlans all;
    const int err = socket_.dump_consistent(
        r, [&] { all.clear(); },
        [&](const nl::Message &m) {
            if (auto port = nl::parse_port_vlans(m))
                all[port->index] = std::move(port->vlans);
            return true;
        });
    if (err == EAFNOSUPPORT || err == EOPNOTSUPP)
        return BridgeVlans{}; // a kernel without bridges
    if (err)
        return socket_.error("list the VLANs of bridges", err);
    return all;
}

Result<RuleSummary> Control::rules(std::uint8_t family)
{
    nl::Request r(RTM_GETRULE, NLM_F_DUMP);
    r.head<fib_rule_hdr>().family = family;
    RuleSummary all;
    const int err = socket_.dump_consistent(
        r, [&] { all = {}; },
        [&](const nl::Message &m) {
            // The three rules of every namespace (local, main, default) select nothing.
            if (const auto s = nl::parse_rule(m)) {
                all.fwmark |= s->fwmark;
                all.tos |= s->tos;
                all.other |= s->other;
                all.ports |= s->ports;
            }
            return true;
        });
    if (err == EAFNOSUPPORT || err == EOPNOTSUPP)
        return RuleSummary{}; // a kernel without policy routing
    if (err)
        return socket_.error("list routing rules", err);
    return all;
}

Status Control::probe_neighbour(std::uint32_t ifindex, const IpAddr &addr)
{
    nl::Request r(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_ACK);
    auto &head = r.head<ndmsg>();
    head.ndm_family = addr.family;
    head.ndm_ifindex = static_cast<int>(ifindex);
    head.ndm_flags = NTF_USE; // neigh_add(): neigh_event_send(), nothing is overwritten
    r.put(NDA_DST, addr);
    const int err = addr.size() == 0 ? EINVAL : socket_.ask(r);
    if (err)
        return socket_.error(fmt::format("resolve neighbour {}", addr.str()), err);
    return {};
}

int Control::any_nexthop_group(bool &found)
{
    nl::Request r(RTM_GETNEXTHOP, NLM_F_DUMP);
    r.head<nhmsg>();
    r.put(NHA_GROUPS, nullptr, 0);
    return socket_.dump(r, [&found](const nl::Message &m) {
        found |= nl::is_nexthop_group(m);
        return !found;
    });
}

Result<RtControl::RouteTraits> Control::route_traits(std::uint8_t family)
{
    const char *what = "list routes";
    nl::Request r(RTM_GETROUTE, NLM_F_DUMP);
    r.head<rtmsg>().rtm_family = family;
    RouteTraits traits;
    bool objects = false;
    // IPv6 routes have no TOS, so that one is known from the start.
    const bool has_tos = family == AF_INET;
    std::optional<nl::FibRoute> before; // routes to the same prefix follow each other
    int err = socket_.dump(r, [&](const nl::Message &m) {
        if (const auto f = nl::parse_fib_route(m)) {
            traits.tos |= f->route.tos;
            objects |= f->nexthop_object;
            traits.multipath |= f->route.multipath && !f->nexthop_object;
            traits.alternatives |= before && rival(*before, *f);
            before = f;
        }
        return !(traits.multipath && (traits.tos || !has_tos));
    });
    // A table under change may hide a route from this dump; the event of the change tells of it.
    if (err && err != EINTR)
        return socket_.error(what, err);
    if (objects && !traits.multipath) {
        err = any_nexthop_group(traits.multipath);
        if (err)
            traits.multipath = true; // cannot be told: assume so
    }
    return traits;
}

} // namespace

Result<std::unique_ptr<RtControl>> RtControl::open()
{
    auto socket = nl::Socket::open(NETLINK_ROUTE);
    if (!socket)
        return tl::unexpected(socket.error());
    return std::make_unique<Control>(std::move(*socket));
}

} // namespace ftctl
