// SPDX-License-Identifier: GPL-2.0-only
// The way a packet takes out of this machine, predicted from what the kernel says of routes, links
// and neighbours. Decisions only: what the kernel says comes through the Fib interface.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "flow/forward_path.h"
#include "flow/refusal.h"
#include "netlink/conntrack.h"
#include "netlink/route.h"
#include "util/addr.h"
#include "util/result.h"

namespace ftctl {

/// What resolution asks of the kernel (implemented by the daemon; by a table in tests).
class Fib {
  public:
    virtual ~Fib() = default;
    virtual Result<RouteAnswer> route(const RouteQuery &query) = 0;
    /// The link as last seen; null when there is none.
    virtual const Link *link(std::uint32_t ifindex) = 0;
    [[nodiscard]] virtual const Link *link_by_name(const std::string &name) const = 0;
    /// ftctl is attached to this device.
    virtual bool attached(std::uint32_t ifindex) = 0;
    /// The kernel would send ICMP redirects for packets that leave by the device they came in on.
    virtual bool sends_redirects(std::uint32_t ifindex) = 0;
    /// Known to be one of this machine's own addresses, without a lookup. False: not known.
    virtual bool known_local(const IpAddr &addr) = 0;
    /// The device's own MTU for IPv6 (net.ipv6.conf.DEV.mtu), bytes. 0: not known, the link's counts.
    virtual std::uint32_t ipv6_mtu(std::uint32_t /*ifindex*/) { return 0; }
    /// net.ipv6.auto_flowlabels: 0 off, 1 on, 2 for sockets that ask, 3 forced. Not known: on.
    virtual int auto_flow_labels() { return 1; }
    /// The neighbour's address, when the kernel would send to it now. Who asks in vain has it resolved.
    virtual std::optional<Mac> neighbour_mac(std::uint32_t /*ifindex*/, const IpAddr & /*addr*/)
    {
        return std::nullopt;
    }
    /// The port that a bridge sends frames for this station to; none: to all of them, or to itself.
    virtual std::optional<std::uint32_t> fdb_port(std::uint32_t /*bridge*/, const Mac & /*mac*/,
                                                  std::uint16_t /*vid*/)
    {
        return std::nullopt;
    }
    /// The VLANs of a bridge or of a port, as far as it filters them.
    [[nodiscard]] virtual const std::vector<BridgeVlan> &bridge_vlans(std::uint32_t ifindex) const = 0;
    /// The session of a ppp device; none when it has none, or it cannot be told which.
    virtual std::optional<PppoeSession> pppoe(const Link & /*ppp*/) { return std::nullopt; }
    /// Beside its own, the MAC address that an attached device takes frames for (ftctl_slot.upper).
    virtual std::optional<Mac> upper_mac(std::uint32_t /*ifindex*/) { return std::nullopt; }
    /// A rule or route of this family depends on what no query can tell (mark, TOS, ...).
    [[nodiscard]] virtual bool policy_routed(std::uint8_t /*family*/) const { return false; }
    /// Some IPv6 route has several next hops, and which one a packet takes depends on its flow label.
    [[nodiscard]] virtual bool flow_label_routed() const { return false; }
};

/// The way out of one direction. Equal ways share a path.
struct Way : ForwardPath {
    std::uint8_t family = 2;     ///< AF_INET or AF_INET6: of the packets that go this way
    std::uint32_t l3_oif = 0;    ///< what the route says: the tunnel, or the same as neigh_dev
    std::uint32_t neigh_dev = 0; ///< where next_hop is a neighbour: devices.front()
    IpAddr next_hop;
    std::uint16_t mtu = 0;              ///< largest inner L3 packet
    std::optional<TunnelConfig> tunnel; ///< pushed; local is filled in, mode is the one of these packets

    /// A change of this device may change the way.
    [[nodiscard]] bool uses(std::uint32_t ifindex) const
    {
        return l3_oif == ifindex || std::find(devices.begin(), devices.end(), ifindex) != devices.end();
    }
    auto operator<=>(const Way &) const = default;
};

/// Both directions of a connection.
struct Ways {
    Way orig;  ///< towards the server: where packets of the original direction leave
    Way reply; ///< towards the client
};

/// The ways of a connection whose conntrack entry has been found eligible. The way in of each
/// direction is taken to be the other one's way out: conntrack does not tell where packets come
/// from, and a wrong guess matches no packet. `mark` is what its packets carry when they are routed;
/// it matters only where ip rules look at marks.
Decision<Ways> resolve_ways(const CtEntry &entry, Fib &fib, std::uint32_t mark = 0);

/// The way behind one route answer: through a tunnel device or not. `mtu` as ip_forward() or
/// ip6_forward() sees it (ip_dst_mtu_maybe_forward) and, for a tunnel, as its transmit function would
/// limit it: the largest packet that the slow path sends on without ICMP and in one piece.
Decision<Way> resolve_way(const RouteAnswer &answer, const IpAddr &dst, Fib &fib);

/// ip_dst_mtu_maybe_forward(dst, true) or, for IPv6, ip6_dst_mtu_maybe_forward(), conservative: a learnt
/// path MTU or a metric that is not locked counts even where the kernel ignores it (the packet then goes
/// to the stack, which knows better). There is no floor of 1280 bytes for IPv6: what ip6_forward() lets
/// pass below it, ip6_output() refuses. ipv6_mtu: see Fib; 0 for IPv4.
std::uint32_t forward_mtu(const RouteAnswer &answer, const Link &link, std::uint32_t ipv6_mtu = 0);

/// How the kernel routes what such a tunnel sends (ip_tunnel_init_flow, ipip6_tunnel_xmit,
/// ip6_tnl_link_config). A flow label that a rule matches on is not in it: such rules make the family
/// policy_routed().
RouteQuery underlay_query(const TunnelConfig &tunnel);

/// Why this tunnel's encapsulation, for packets of one family (for_payload()), cannot be reproduced
/// byte for byte; nothing when it can. What depends on settings of the namespace is not in it.
std::optional<std::string> tunnel_obstacle(const TunnelConfig &config);

} // namespace ftctl
