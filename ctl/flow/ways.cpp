// SPDX-License-Identifier: GPL-2.0-only
#include "flow/ways.h"

#include <algorithm>

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>

#include "ftctl/fib_can_skip.h"

namespace ftctl {

namespace {

constexpr int kGuesses = 3;                 // of the ingress device, until both lookups agree
constexpr std::uint32_t kIpv6MinMtu = 1280; // IPV6_MIN_MTU

/// How the kernel names what a lookup met, for the refusal.
Refusal no_route(const Error &error, const IpAddr &dst)
{
    return {FTCTL_R_NO_ROUTE, dst.str() + ": " + error.why};
}

std::string link_name(Fib &fib, std::uint32_t ifindex)
{
    const Link *link = fib.link(ifindex);
    return link ? link->name : "if" + std::to_string(ifindex);
}

Decision<void> check_unicast(const RouteAnswer &answer, const IpAddr &dst)
{
    if (answer.type == RTN_UNICAST)
        return {};
    if (answer.type == RTN_LOCAL)
        return refuse(FTCTL_R_LOCAL, dst.str());
    return refuse(FTCTL_R_NO_ROUTE, dst.str());
}

std::uint32_t forward_mtu(const RouteAnswer &answer, const Link &link, std::uint8_t family, Fib &fib)
{
    return ftctl::forward_mtu(answer, link, family == AF_INET6 ? fib.ipv6_mtu(link.index) : 0);
}

/// A way of which the lower half is known.
Decision<Way> way_below(const Link &device, const IpAddr &next_hop, Fib &fib)
{
    auto path = forward_path(device, next_hop, fib);
    if (!path)
        return tl::unexpected(path.error());
    Way way;
    static_cast<ForwardPath &>(way) = std::move(*path);
    way.neigh_dev = device.index;
    way.next_hop = next_hop;
    return way;
}

/// ip6_make_flowlabel(): a packet without a label gets one drawn, from a hash with a secret key. The
/// kernel's tunnels ask for it whenever the setting is not "off"; the tun driver's sockets decline,
/// which only "forced" overrules.
bool draws_flow_label(const TunnelConfig &config, int auto_flow_labels)
{
    constexpr int off = 0;
    constexpr int forced = 3;
    if (outer_family(config.mode) == AF_INET || config.flow_label != 0)
        return false;
    return config.declared ? auto_flow_labels == forced : auto_flow_labels != off;
}

Decision<Way> resolve_tunnel(const RouteAnswer &answer, const Link &device, std::uint8_t family, Fib &fib)
{
    auto payload = for_payload(*device.tunnel, family);
    if (!payload)
        return refuse(FTCTL_R_TUNNEL,
                      device.name + (family == AF_INET ? ": no IPv4 inside" : ": no IPv6 inside"));
    TunnelConfig &config = *payload;
    if (const auto obstacle = tunnel_obstacle(config))
        return refuse(FTCTL_R_TUNNEL, device.name + ": " + *obstacle);
    config.flow_label_drawn = draws_flow_label(config, fib.auto_flow_labels());
    if (!(device.flags & IFF_UP))
        return refuse(FTCTL_R_PATH, device.name);
    const std::uint8_t outer = outer_family(config.mode);
    if (fib.policy_routed(outer))
        return refuse(FTCTL_R_POLICY_ROUTED, device.name);

    const auto underlay = fib.route(underlay_query(config));
    if (!underlay)
        return tl::unexpected(no_route(underlay.error(), config.remote));
    if (const auto unicast = check_unicast(*underlay, config.remote); !unicast)
        return tl::unexpected(unicast.error());
    const Link *lower = fib.link(underlay->oif);
    if (!lower || lower->tunnel || lower->index == device.index)
        return refuse(FTCTL_R_PATH, device.name); // tunnels in tunnels, loops
    if (underlay->gateway && underlay->gateway.family != outer)
        return refuse(FTCTL_R_PATH, lower->name + ": IPv6 next hop");
    auto way_out = way_below(*lower, underlay->gateway ? underlay->gateway : config.remote, fib);
    if (!way_out)
        return way_out;

    Way &way = *way_out;
    way.family = family;
    way.l3_oif = device.index;
    if (!config.local)
        config.local = underlay->prefsrc;
    if (config.local.family != outer)
        return refuse(FTCTL_R_TUNNEL, device.name + ": no local address");
    const std::uint32_t under = forward_mtu(*underlay, *lower, outer, fib);
    const std::uint32_t header = outer_bytes(config);
    if (under <= header)
        return refuse(FTCTL_R_PATH, device.name);
    // ipip6_tunnel_xmit() sends with DF clear there: the outer packet may be fragmented on its way.
    if (config.mode == TunnelConfig::Mode::ip6in4 && under - header < kIpv6MinMtu)
        return refuse(FTCTL_R_PATH, device.name + ": the underlay's MTU is below 1300");
    way.mtu = static_cast<std::uint16_t>(std::min(forward_mtu(answer, device, family, fib), under - header));
    way.tunnel = config;
    return way_out;
}

/// Either end is known to be this machine: the kernel's rule for skipping a lookup applies, with
/// the connection's socket as the one that takes the packets.
bool ends_here(const CtEntry &entry, Fib &fib)
{
    const bool local = fib.known_local(entry.orig.src) || fib.known_local(entry.reply.src);
    return local && ftctl_fib_can_skip(1, 0, 0, 0);
}

} // namespace

std::uint32_t forward_mtu(const RouteAnswer &answer, const Link &link, std::uint32_t ipv6_mtu)
{
    const std::uint32_t device = ipv6_mtu ? std::min(link.mtu, ipv6_mtu) : link.mtu;
    std::uint32_t mtu = answer.mtu ? std::min(answer.mtu, device) : device;
    if (answer.mtu_locked && answer.gateway.family == AF_INET && !answer.mtu)
        mtu = std::min(mtu, 576U);
    return std::min(mtu, 0xffffU);
}

RouteQuery underlay_query(const TunnelConfig &tunnel)
{
    RouteQuery query;
    query.dst = tunnel.remote;
    query.src = tunnel.local;
    query.oif = tunnel.link;
    query.proto = inner_family(tunnel.mode) == AF_INET ? IPPROTO_IPIP : IPPROTO_IPV6;
    query.tos = tunnel.tos & 1 ? 0 : tunnel.tos;
    return query;
}

std::optional<std::string> tunnel_obstacle(const TunnelConfig &config)
{
    const bool over6 = outer_family(config.mode) == AF_INET6;
    if (config.remote.family != outer_family(config.mode))
        return "no fixed remote address";
    if (config.fou)
        return "FOU or GUE encapsulation";
    if (config.collect_md)
        return "metadata mode";
    if (config.fwmark != 0 || config.fwmark_inherit)
        return "fwmark";
    if (config.isatap)
        return "ISATAP";
    if (config.mip6)
        return "mobility tunnel";
    if (config.dscp_copy)
        return "DSCP copied to the inner packet"; // IP6_TNL_F_RCV_DSCP_COPY
    // ip6_tnl_xmit_ctl() sends from an address of this machine's that was configured.
    if (over6 && !config.local)
        return "no local address";
    // Its outer DF is clear, whatever is inside: the stack must choose the ID of each packet.
    if (config.mode == TunnelConfig::Mode::ip6in4 && !config.pmtudisc)
        return "no path MTU discovery";
    return std::nullopt;
}

Decision<Way> resolve_way(const RouteAnswer &answer, const IpAddr &dst, Fib &fib)
{
    if (const auto unicast = check_unicast(answer, dst); !unicast)
        return tl::unexpected(unicast.error());
    const Link *device = fib.link(answer.oif);
    if (!device)
        return refuse(FTCTL_R_PATH, link_name(fib, answer.oif));
    if (device->tunnel)
        return resolve_tunnel(answer, *device, dst.family, fib);
    if (answer.gateway && answer.gateway.family != dst.family)
        return refuse(FTCTL_R_PATH, device->name + ": IPv6 next hop"); // RTA_VIA of an IPv4 route
    auto way = way_below(*device, answer.gateway ? answer.gateway : dst, fib);
    if (!way)
        return way;
    way->family = dst.family;
    way->l3_oif = device->index;
    way->mtu = static_cast<std::uint16_t>(forward_mtu(answer, *device, dst.family, fib));
    return way;
}

Decision<Ways> resolve_ways(const CtEntry &entry, Fib &fib, std::uint32_t mark)
{
    if (ends_here(entry, fib))
        return refuse(FTCTL_R_LOCAL);

    // Routing sees sources before SNAT and destinations after DNAT.
    struct End {
        const IpAddr &addr;
        std::uint16_t port;
    };
    const End client{entry.orig.src, entry.orig.sport};
    const End server{entry.reply.src, entry.reply.sport};
    const std::uint8_t family = client.addr.family;
    if (server.addr.family != family)
        return refuse(FTCTL_R_FAMILY);
    if (fib.policy_routed(family))
        return refuse(FTCTL_R_POLICY_ROUTED);
    if (family == AF_INET6 && fib.flow_label_routed())
        return refuse(FTCTL_R_MULTIPATH);
    const auto towards = [&](const End &to, const End &from) {
        RouteQuery query;
        query.dst = to.addr;
        query.src = from.addr;
        query.proto = entry.orig.proto;
        query.sport = from.port;
        query.dport = to.port;
        query.mark = mark;
        return query;
    };
    RouteQuery towards_server = towards(server, client);
    RouteQuery towards_client = towards(client, server);

    RouteQuery first;
    first.dst = client.addr;
    first.mark = mark;
    const auto guess = fib.route(first);
    if (!guess)
        return tl::unexpected(no_route(guess.error(), first.dst));
    if (const auto unicast = check_unicast(*guess, first.dst); !unicast)
        return tl::unexpected(unicast.error());

    std::uint32_t client_side = guess->oif;
    for (int i = 0; i < kGuesses; i++) {
        towards_server.iif = client_side;
        const auto there = fib.route(towards_server);
        if (!there)
            return tl::unexpected(no_route(there.error(), towards_server.dst));
        if (const auto unicast = check_unicast(*there, towards_server.dst); !unicast)
            return tl::unexpected(unicast.error());
        towards_client.iif = there->oif;
        const auto back = fib.route(towards_client);
        if (!back)
            return tl::unexpected(no_route(back.error(), towards_client.dst));
        if (back->oif != client_side) {
            client_side = back->oif;
            continue;
        }
        auto orig = resolve_way(*there, towards_server.dst, fib);
        if (!orig)
            return tl::unexpected(orig.error());
        auto reply = resolve_way(*back, towards_client.dst, fib);
        if (!reply)
            return tl::unexpected(reply.error());
        // ip6_forward() sends redirects whatever the settings are.
        if (orig->l3_oif == reply->l3_oif && (family == AF_INET6 || fib.sends_redirects(orig->l3_oif)))
            return refuse(FTCTL_R_HAIRPIN, link_name(fib, orig->l3_oif));
        return Ways{*orig, *reply};
    }
    return refuse(FTCTL_R_PATH, "asymmetric");
}

} // namespace ftctl
