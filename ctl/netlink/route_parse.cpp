// SPDX-License-Identifier: GPL-2.0-only
// Routes, neighbours, addresses, rules. Kernel: rt_fill_info(), fib_dump_info(), rt6_fill_node(),
// neigh_fill_info(), inet_fill_ifaddr(), inet6_fill_ifaddr(), fib_nl_fill_rule().
#include "netlink/route_message.h"

#include <netinet/in.h>

#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/neighbour.h>
#include <linux/nexthop.h>
#include <linux/rtnetlink.h>

namespace ftctl::nl {
namespace {

// Newer than the oldest uapi headers this is built with.
constexpr std::uint16_t fra_dscp = 25;
constexpr std::uint16_t fra_sport_mask = 28;
constexpr std::uint16_t fra_dport_mask = 29;
constexpr std::uint16_t fra_dscp_mask = 30;

bool ip_family(std::uint8_t family)
{
    return family == AF_INET || family == AF_INET6;
}

/// struct rtvia: a next hop of another family.
IpAddr parse_via(const Attr &a)
{
    const auto family = load<std::uint16_t>(a.data);
    if (!family || !ip_family(static_cast<std::uint8_t>(*family)) || *family > 0xff)
        return {};
    const Bytes addr = a.data.subspan(sizeof(std::uint16_t));
    return IpAddr::from_bytes(static_cast<std::uint8_t>(*family), addr.data(), addr.size());
}

void parse_metrics(const Attr &metrics, RouteAnswer &r)
{
    for (const Attr &a : metrics.nested()) {
        if (a.type == RTAX_MTU)
            r.mtu = a.u32().value_or(0);
        else if (a.type == RTAX_LOCK)
            r.mtu_locked = (a.u32().value_or(0) & (1U << RTAX_MTU)) != 0;
    }
}

/// More than one struct rtnexthop in RTA_MULTIPATH.
bool several_hops(Bytes hops)
{
    const auto first = load<rtnexthop>(hops);
    if (!first || first->rtnh_len < sizeof(rtnexthop))
        return true; // cannot be told: assume so
    const std::size_t step = NLMSG_ALIGN(first->rtnh_len);
    return hops.size() >= step + sizeof(rtnexthop);
}

} // namespace

std::optional<RouteAnswer> parse_route_answer(const Message &m)
{
    const auto head = m.head<rtmsg>();
    if (m.type != RTM_NEWROUTE || !head || !ip_family(head->rtm_family))
        return std::nullopt;
    RouteAnswer r;
    r.type = head->rtm_type;
    r.table = head->rtm_table;
    for (const Attr &a : m.attrs(sizeof(rtmsg))) {
        switch (a.type) {
        case RTA_OIF:
            r.oif = a.u32().value_or(0);
            break;
        case RTA_GATEWAY:
            r.gateway = a.addr(head->rtm_family);
            break;
        case RTA_VIA:
            r.gateway = parse_via(a);
            break;
        case RTA_PREFSRC:
            r.prefsrc = a.addr(head->rtm_family);
            break;
        case RTA_METRICS:
            parse_metrics(a, r);
            break;
        case RTA_TABLE:
            r.table = a.u32().value_or(r.table);
            break;
        default:
            break;
        }
    }
    return r;
}

std::optional<FibRoute> parse_fib_route(const Message &m)
{
    const auto head = m.head<rtmsg>();
    if ((m.type != RTM_NEWROUTE && m.type != RTM_DELROUTE) || !head || !ip_family(head->rtm_family) ||
        (head->rtm_flags & RTM_F_CLONED))
        return std::nullopt;
    FibRoute f;
    RouteChanged &r = f.route;
    r.family = head->rtm_family;
    r.table = head->rtm_table;
    r.tos = head->rtm_tos != 0;
    r.dst.len = head->rtm_dst_len;
    bool object = false;
    bool hops = false;
    for (const Attr &a : m.attrs(sizeof(rtmsg))) {
        switch (a.type) {
        case RTA_DST:
            r.dst.addr = a.addr(head->rtm_family);
            break;
        case RTA_TABLE:
            r.table = a.u32().value_or(r.table);
            break;
        case RTA_MULTIPATH:
            r.multipath = several_hops(a.data);
            hops = true;
            break;
        case RTA_OIF:
            hops = true;
            break;
        case RTA_PRIORITY:
            f.priority = a.u32().value_or(0);
            break;
        case RTA_NH_ID:
            object = true;
            break;
        default:
            break;
        }
    }
    // With net.ipv4.nexthop_compat_mode=0 only the id is told.
    f.nexthop_object = object && !hops;
    r.multipath = r.multipath || f.nexthop_object;
    if (r.dst.len > r.dst.addr.size() * 8)
        r.dst = {}; // no address, or one that does not fit: everything may have changed
    return f;
}

bool is_nexthop_group(const Message &m)
{
    if (m.type != RTM_NEWNEXTHOP)
        return false;
    const auto group = m.attrs(sizeof(nhmsg)).find(NHA_GROUP);
    return group && group->data.size() > sizeof(nexthop_grp);
}

std::optional<Neigh> parse_neigh(const Message &m)
{
    const auto head = m.head<ndmsg>();
    if ((m.type != RTM_NEWNEIGH && m.type != RTM_DELNEIGH) || !head || !ip_family(head->ndm_family) ||
        (head->ndm_flags & NTF_PROXY))
        return std::nullopt;
    Neigh n;
    n.ifindex = static_cast<std::uint32_t>(head->ndm_ifindex);
    n.state = head->ndm_state;
    for (const Attr &a : m.attrs(sizeof(ndmsg))) {
        if (a.type == NDA_DST)
            n.addr = a.addr(head->ndm_family);
        else if (a.type == NDA_LLADDR && a.data.size() == n.mac.bytes.size())
            std::memcpy(n.mac.bytes.data(), a.data.data(), n.mac.bytes.size());
    }
    if (!n.addr || head->ndm_ifindex <= 0)
        return std::nullopt;
    return n;
}

std::optional<AddrChanged> parse_addr(const Message &m)
{
    const auto head = m.head<ifaddrmsg>();
    if ((m.type != RTM_NEWADDR && m.type != RTM_DELADDR) || !head || !ip_family(head->ifa_family))
        return std::nullopt;
    AddrChanged c{head->ifa_index, {}, m.type == RTM_DELADDR};
    IpAddr address;
    for (const Attr &a : m.attrs(sizeof(ifaddrmsg))) {
        if (a.type == IFA_LOCAL)
            c.addr = a.addr(head->ifa_family);
        else if (a.type == IFA_ADDRESS)
            address = a.addr(head->ifa_family);
    }
    // IFA_ADDRESS is the peer's on point-to-point links; IPv6 leaves IFA_LOCAL out elsewhere.
    if (!c.addr)
        c.addr = address;
    if (!c.addr)
        return std::nullopt;
    return c;
}

std::optional<RuleSummary> parse_rule(const Message &m)
{
    const auto head = m.head<fib_rule_hdr>();
    if (m.type != RTM_NEWRULE || !head)
        return std::nullopt;
    RuleSummary s;
    s.tos = head->tos != 0;
    for (const Attr &a : m.attrs(sizeof(fib_rule_hdr))) {
        switch (a.type) {
        case FRA_FWMARK:
        case FRA_FWMASK:
            s.fwmark |= a.u32().value_or(1) != 0;
            break;
        case fra_dscp:
        case fra_dscp_mask:
            s.tos = true;
            break;
        case FRA_SPORT_RANGE:
        case FRA_DPORT_RANGE:
            s.ports = true;
            break;
        case FRA_IP_PROTO: // a route query can name these three only (rtm_getroute_parse_ip_proto)
            s.ports = true;
            s.other |= a.u8() != IPPROTO_TCP && a.u8() != IPPROTO_UDP && a.u8() != IPPROTO_ICMP;
            break;
        case FRA_TUN_ID:
        case FRA_UID_RANGE:
            s.other = true;
            break;
        case fra_sport_mask:
        case fra_dport_mask:
            s.ports = true; // which are in the query
            break;
        default:
            // The rest are addresses, devices, ports, tables, suppressors: the query gives or the
            // lookup obeys them. What is unknown here (flow labels, the future) cannot be given.
            s.other |= a.type > fra_dscp;
            break;
        }
    }
    return s;
}

std::optional<RtEvent> parse_rt_event(const Message &m)
{
    switch (m.type) {
    case RTM_NEWLINK:
        if (auto link = parse_link(m))
            return LinkChanged{std::move(*link)};
        if (const auto port = parse_port(m))
            return *port;
        return std::nullopt;
    case RTM_DELLINK:
        if (auto link = parse_link(m))
            return LinkGone{link->index, std::move(link->name)};
        if (const auto port = parse_port(m)) // has left its bridge
            return *port;
        return std::nullopt;
    case RTM_NEWNEIGH:
    case RTM_DELNEIGH:
        if (const auto neigh = parse_neigh(m))
            return NeighChanged{*neigh, m.type == RTM_DELNEIGH};
        if (const auto station = parse_fdb(m))
            return *station;
        return std::nullopt;
    case RTM_NEWADDR:
    case RTM_DELADDR:
        if (const auto addr = parse_addr(m))
            return *addr;
        return std::nullopt;
    case RTM_NEWROUTE:
    case RTM_DELROUTE:
        if (const auto route = parse_fib_route(m))
            return route->route;
        return std::nullopt;
    case RTM_NEWRULE:
    case RTM_DELRULE:
        return RuleChanged{};
    case RTM_NEWNETCONF:
    case RTM_DELNETCONF:
        return NetconfChanged{};
    case RTM_NEWNEXTHOP:
    case RTM_DELNEXTHOP:
    case RTM_NEWNEXTHOPBUCKET:
        return NexthopChanged{};
    default:
        return std::nullopt;
    }
}

} // namespace ftctl::nl

namespace ftctl {

bool Neigh::valid() const
{
    // NUD_VALID is the kernel's own (include/net/neighbour.h), not uapi.
    constexpr unsigned nud_valid =
        NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
    return (state & nud_valid) != 0;
}

} // namespace ftctl
