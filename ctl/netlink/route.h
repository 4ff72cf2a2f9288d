// SPDX-License-Identifier: GPL-2.0-only
// Route, neighbour, link, address, rule: what the kernel says about ways.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "netlink/tunnel_config.h"
#include "util/addr.h"
#include "util/result.h"

namespace ftctl {

/// An 802.1Q or 802.1ad tag, in host byte order.
struct VlanTag {
    std::uint16_t proto = 0;
    std::uint16_t vid = 0;
    /// PCP that frames leave with, by priority 0 to 7 of their skb: four bits each, 0 lowest.
    std::uint32_t pcp = 0;
    auto operator<=>(const VlanTag &) const = default;
};

/// Settings of a VLAN device.
struct VlanConfig {
    VlanTag tag;
    bool keeps_tag = false; ///< frames keep their tag when they are received (reorder_hdr off)
    auto operator<=>(const VlanConfig &) const = default;
};

/// Settings of a bridge.
struct BridgeConfig {
    bool vlan_filtering = false;
    std::uint16_t vlan_proto = 0; ///< of the tags it filters; host byte order
    bool mst = false;             ///< one spanning tree per VLAN group: a port has several states
    auto operator<=>(const BridgeConfig &) const = default;
};

/// Settings of a port of a bridge.
struct BridgePort {
    bool forwarding = false;  ///< BR_STATE_FORWARDING
    bool locked = false;      ///< takes frames of known stations only (802.1X)
    bool vlan_tunnel = false; ///< maps VLANs to tunnels
    auto operator<=>(const BridgePort &) const = default;
};

/// A VLAN of a bridge, or of one of its ports.
struct BridgeVlan {
    std::uint16_t vid = 0;
    bool pvid = false;     ///< frames without a tag belong to it
    bool untagged = false; ///< frames leave without a tag
    auto operator<=>(const BridgeVlan &) const = default;
};
/// By ifindex; sorted by VID.
using BridgeVlans = std::map<std::uint32_t, std::vector<BridgeVlan>>;

struct Link {
    std::uint32_t index = 0;
    std::string name;
    std::string kind;        ///< IFLA_INFO_KIND: "veth", "bridge", "ipip", ...; empty for hardware
    std::uint16_t type = 0;  ///< ARPHRD_*
    std::uint32_t flags = 0; ///< IFF_*
    bool carrier = true;     ///< operstate is up or unknown
    std::uint32_t mtu = 0;
    Mac mac;
    std::uint32_t lower = 0;       ///< IFLA_LINK, 0: none or in another namespace
    std::uint32_t master = 0;      ///< IFLA_MASTER
    std::string master_kind;       ///< IFLA_INFO_SLAVE_KIND ("bridge", "bond", "vrf"), when enslaved
    std::string qdisc;             ///< root qdisc, as IFLA_QDISC names it
    std::uint32_t xdp_prog_id = 0; ///< program attached now, any mode; 0: none
    std::uint8_t xdp_mode = 0;     ///< XDP_ATTACHED_*
    std::optional<TunnelConfig> tunnel;
    std::optional<VlanConfig> vlan;
    std::optional<BridgeConfig> bridge;
    std::optional<BridgePort> port; ///< of the bridge .master
};

/// Neighbour entry; NUD_* state from <linux/neighbour.h>.
struct Neigh {
    std::uint32_t ifindex = 0;
    IpAddr addr;
    Mac mac;
    std::uint16_t state = 0;
    /// The kernel sends packets to .mac in this state (NUD_VALID).
    [[nodiscard]] bool valid() const;
};

struct RouteQuery {
    IpAddr dst;
    IpAddr src;            ///< none: output route with the kernel's choice
    std::uint32_t iif = 0; ///< set: input route, with source validation (rp_filter), as ip_forward takes it
    std::uint32_t oif = 0;
    std::uint8_t proto = 0; ///< with ports: what policy rules and multipath hashes see
    std::uint16_t sport = 0;
    std::uint16_t dport = 0;
    std::uint32_t mark = 0;
    std::uint8_t tos = 0;
};

struct RouteAnswer {
    std::uint8_t type = 0; ///< RTN_UNICAST, RTN_LOCAL, ...
    std::uint32_t oif = 0;
    IpAddr gateway; ///< none: on link. IPv4 over an IPv6 next hop: family AF_INET6
    IpAddr prefsrc;
    std::uint32_t mtu = 0; ///< RTAX_MTU (metric or learnt PMTU); 0: the device's
    bool mtu_locked = false;
    std::uint32_t table = 0;
};

/// What changed. Each carries enough to find what depends on it.
struct LinkChanged {
    Link link;
};
struct LinkGone {
    std::uint32_t index;
    std::string name;
};
struct NeighChanged {
    Neigh neigh;
    bool gone = false;
};
/// A station of a bridge was learnt, has moved, or is forgotten.
struct FdbChanged {
    std::uint32_t bridge = 0;
    Mac mac;
};
/// State, flags or VLANs of a bridge port, or VLANs of a bridge.
struct PortChanged {
    std::uint32_t index = 0;
};
struct AddrChanged {
    std::uint32_t ifindex;
    IpAddr addr;
    bool gone = false;
};
struct RouteChanged {
    Prefix dst; ///< none address: default route (of that family in .family)
    std::uint8_t family = 0;
    std::uint32_t table = 0;
    bool tos = false;       ///< the route has a TOS selector
    bool multipath = false; ///< it has, or through a nexthop object may have, several next hops
};
struct RuleChanged {};
struct NetconfChanged {}; ///< forwarding, rp_filter, ... of some device
struct NexthopChanged {}; ///< nexthop objects (RTNLGRP_NEXTHOP)
struct Overrun {};        ///< events were lost: read everything again
using RtEvent = std::variant<LinkChanged, LinkGone, NeighChanged, FdbChanged, PortChanged, AddrChanged,
                             RouteChanged, RuleChanged, NetconfChanged, NexthopChanged, Overrun>;

/// rtnetlink subscription: LINK, NEIGH, IPV4/IPV6_IFADDR, _ROUTE, _RULE, _NETCONF, NEXTHOP.
class RtEvents {
  public:
    static Result<std::unique_ptr<RtEvents>> open();
    virtual ~RtEvents() = default;
    [[nodiscard]] virtual int fd() const = 0;
    /// Reads what waits (bounded) and calls the handler for each event. ENOBUFS becomes Overrun.
    virtual Status read(const std::function<void(const RtEvent &)> &handler) = 0;
};

/// What policy routing asks for beyond addresses, ports, protocol and input device.
struct RuleSummary {
    bool fwmark = false; ///< some rule matches on the packet mark
    bool tos = false;    ///< ... on TOS/DSCP
    bool other = false;  ///< ... on something else that cannot be given to a route query (uidrange, ...)
    bool ports = false;  ///< ... on the protocol or on ports
};

/// Requests to rtnetlink; each is answered before it returns.
class RtControl {
  public:
    static Result<std::unique_ptr<RtControl>> open();
    virtual ~RtControl() = default;

    /// What the kernel would do with such a packet; its refusals are errors with .err set: ENETUNREACH,
    /// EHOSTUNREACH, EACCES, and for a source that fails validation EXDEV (EINVAL on newer kernels).
    /// Protocols other than TCP and UDP cannot be asked about: rules that match on them are in
    /// RuleSummary::other.
    virtual Result<RouteAnswer> route(const RouteQuery &query) = 0;
    virtual Result<std::vector<Link>> links() = 0;
    virtual Result<Link> link(std::uint32_t index) = 0;
    virtual Result<Link> link(const std::string &name) = 0;
    virtual Result<std::vector<Neigh>> neighbours() = 0;
    virtual Result<std::optional<Neigh>> neighbour(std::uint32_t ifindex, const IpAddr &addr) = 0;
    /// The port behind which a bridge knows a station; none when it does not, or when the address is
    /// the bridge's own.
    virtual Result<std::optional<std::uint32_t>> fdb_port(std::uint32_t bridge, const Mac &mac,
                                                          std::uint16_t vid) = 0;
    /// The VLANs of all bridges and their ports.
    virtual Result<BridgeVlans> bridge_vlans() = 0;
    virtual Result<RuleSummary> rules(std::uint8_t family) = 0;
    /// Makes the kernel resolve or re-check a neighbour (NTF_USE); does not wait.
    virtual Status probe_neighbour(std::uint32_t ifindex, const IpAddr &addr) = 0;
    /// What decides between routes beside addresses: TOS, a hash, the state of neighbours.
    struct RouteTraits {
        bool tos = false;
        bool multipath = false;
        /// Several routes are equally good for some packets: neighbours' states decide between them
        /// (fib_select_default, rt6_score_route).
        bool alternatives = false;
    };
    virtual Result<RouteTraits> route_traits(std::uint8_t family) = 0;
};

} // namespace ftctl
