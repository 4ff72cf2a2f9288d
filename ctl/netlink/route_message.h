// SPDX-License-Identifier: GPL-2.0-only
// rtnetlink messages, parsed from netlink messages that are already bounded. Each function gives
// nothing when the message is of another type, another family, or makes no sense.
#pragma once

#include "netlink/attr.h"
#include "netlink/route.h"

namespace ftctl::nl {

/// RTM_NEWROUTE as the answer to a query.
std::optional<RouteAnswer> parse_route_answer(const Message &m);

/// RTM_NEWROUTE, RTM_DELROUTE as FIB entries; cached and cloned routes are left out.
struct FibRoute {
    RouteChanged route;
    bool nexthop_object = false; ///< RTA_NH_ID without its next hops: only the object tells how many
    std::uint32_t priority = 0;
};
std::optional<FibRoute> parse_fib_route(const Message &m);

/// RTM_NEWNEXTHOP: it is a group of more than one.
bool is_nexthop_group(const Message &m);

/// RTM_NEWLINK, RTM_DELLINK of the device itself (AF_UNSPEC; not what a bridge or IPv6 adds).
std::optional<Link> parse_link(const Message &m);

/// RTM_NEWNEIGH, RTM_DELNEIGH of IPv4 and IPv6; no proxy entries, no bridge FDB.
std::optional<Neigh> parse_neigh(const Message &m);

/// RTM_NEWNEIGH, RTM_DELNEIGH of a bridge's forwarding database.
std::optional<FdbChanged> parse_fdb(const Message &m);
/// The port in RTM_NEWNEIGH as the answer to a query of it.
std::optional<std::uint32_t> parse_fdb_port(const Message &m);

/// RTM_NEWLINK, RTM_DELLINK as a bridge sends them (AF_BRIDGE).
std::optional<PortChanged> parse_port(const Message &m);
/// The VLANs in such a message, of the device it is about.
struct PortVlans {
    std::uint32_t index = 0;
    std::vector<BridgeVlan> vlans;
};
std::optional<PortVlans> parse_port_vlans(const Message &m);

/// Settings of a bridge (IFLA_INFO_DATA) and of a port (IFLA_INFO_SLAVE_DATA).
BridgeConfig parse_bridge(const Attr &data);
BridgePort parse_bridge_port(const Attr &data);

/// RTM_NEWADDR, RTM_DELADDR.
std::optional<AddrChanged> parse_addr(const Message &m);

/// RTM_NEWRULE: what the rule matches on.
std::optional<RuleSummary> parse_rule(const Message &m);

/// Any message of the subscription, as an event.
std::optional<RtEvent> parse_rt_event(const Message &m);

} // namespace ftctl::nl
