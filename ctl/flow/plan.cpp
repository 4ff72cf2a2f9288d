// SPDX-License-Identifier: GPL-2.0-only
#include "flow/plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "util/abi_addr.h"

namespace ftctl {

std::uint16_t csum_add(std::uint16_t a, std::uint16_t b)
{
    const std::uint32_t sum = static_cast<std::uint32_t>(a) + b;
    return static_cast<std::uint16_t>((sum & 0xffff) + (sum >> 16));
}

std::uint16_t csum_delta16(std::uint16_t from, std::uint16_t to)
{
    return csum_add(static_cast<std::uint16_t>(~from), to);
}

std::uint16_t csum_delta(const ftctl_addr &from, const ftctl_addr &to)
{
    std::uint16_t sum = 0;
    for (std::size_t i = 0; i < std::size(from.w); i++) {
        if (from.w[i] == to.w[i])
            continue; // a difference of nothing is 0xffff, which adds nothing either
        sum = csum_add(
            sum, csum_delta16(static_cast<std::uint16_t>(from.w[i]), static_cast<std::uint16_t>(to.w[i])));
        sum = csum_add(sum, csum_delta16(static_cast<std::uint16_t>(from.w[i] >> 16),
                                         static_cast<std::uint16_t>(to.w[i] >> 16)));
    }
    return sum;
}

namespace {

ftctl_tunnel outside(const TunnelConfig &tunnel)
{
    return tunnel.remote.family == AF_INET6 ? FTCTL_TUNNEL_IPV6 : FTCTL_TUNNEL_IPV4;
}

/// The outer header's constant part; what depends on the packet is zero.
void plan_outer(ftctl_path_body &body, const TunnelConfig &tunnel, bool inner_v6)
{
    const std::uint8_t payload = inner_v6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
    body.tunnel = outside(tunnel);
    body.tun_ttl = tunnel.ttl;
    if (tunnel.tos & 1)
        body.flags |= FTCTL_P_TOS_INHERIT;
    else
        body.tun_tos = tunnel.tos;
    if (body.tunnel == FTCTL_TUNNEL_IPV4) {
        iphdr ip{};
        ip.protocol = payload;
        ip.saddr = tunnel.local.v4();
        ip.daddr = tunnel.remote.v4();
        std::memcpy(body.outer, &ip, sizeof(ip));
        if (tunnel.pmtudisc)
            body.flags |= FTCTL_P_DF;
        return;
    }
    ipv6hdr ip6{};
    ip6.version = 6;
    ip6.nexthdr = payload;
    const std::uint32_t word = htonl(6U << 28 | tunnel.flow_label);
    std::memcpy(&ip6, &word, sizeof(word));
    std::memcpy(&ip6.saddr, tunnel.local.bytes.data(), sizeof(ip6.saddr));
    std::memcpy(&ip6.daddr, tunnel.remote.bytes.data(), sizeof(ip6.daddr));
    if (tunnel.encap_limit) {
        // init_tel_txopt(): the limit (RFC 2473 section 4.1.1) and PadN to 8 bytes
        const std::array<std::uint8_t, FTCTL_LIMIT_LEN> options = {payload, 0, 4, 1, *tunnel.encap_limit,
                                                                   1,       1, 0};
        ip6.nexthdr = IPPROTO_DSTOPTS;
        std::copy(options.begin(), options.end(), body.outer + sizeof(ip6));
        body.flags |= FTCTL_P_LIMIT;
    }
    std::memcpy(body.outer, &ip6, sizeof(ip6));
    if (tunnel.flow_label_inherit)
        body.flags |= FTCTL_P_LABEL;
    if (tunnel.flow_label_drawn)
        body.flags |= FTCTL_P_DRAWN;
}

/// Ethernet, tags (outermost first) and PPPoE.
void plan_l2(ftctl_path_body &body, const Way &way, const Mac &smac, const Mac &dmac, std::uint16_t proto)
{
    constexpr std::uint16_t kPppoeHead = 0x1100; // version 1, type 1, code 0: session data
    constexpr std::uint16_t kPppIp = 0x0021;
    constexpr std::uint16_t kPppIpv6 = 0x0057;
    ftctl_u8 *to = body.l2;
    const auto put16 = [&to](std::uint16_t value) {
        *to++ = static_cast<ftctl_u8>(value >> 8);
        *to++ = static_cast<ftctl_u8>(value);
    };
    to = std::copy(dmac.bytes.begin(), dmac.bytes.end(), to);
    to = std::copy(smac.bytes.begin(), smac.bytes.end(), to);
    for (const VlanTag &tag : way.tags) {
        put16(tag.proto);
        put16(tag.vid);
    }
    if (way.pppoe) {
        put16(ETH_P_PPP_SES);
        put16(kPppoeHead);
        put16(way.pppoe->id);
        put16(0); // the length: the packet's
        put16(proto == ETH_P_IPV6 ? kPppIpv6 : kPppIp);
        body.pppoe = htons(way.pppoe->id);
    } else {
        put16(proto);
    }
    body.l2_len = static_cast<ftctl_u8>(to - body.l2);
    body.vlans = static_cast<ftctl_u8>(way.tags.size());
}

/// Priorities of the tags. What is not IPv4 keeps the priority it came with: none, as a rule, and the
/// witness sees where there is one.
void plan_priorities(ftctl_path_body &body, const Way &way, bool by_tos)
{
    constexpr std::uint32_t kEach = 0x11111111;
    for (std::size_t i = 0; i < way.tags.size() && i < std::size(body.pcp); i++)
        body.pcp[i] = by_tos ? way.tags[i].pcp : (way.tags[i].pcp & 0xf) * kEach;
}

} // namespace

ftctl_tuple flow_key(const Tuple &in, const Way &way_in)
{
    ftctl_tuple key{};
    key.family = abi_family(in.src.family);
    key.src = to_abi(in.src);
    key.dst = to_abi(in.dst);
    key.sport = htons(in.sport);
    key.dport = htons(in.dport);
    key.iif_proto = ftctl_iif_proto(way_in.oif, in.proto);
    if (way_in.tunnel) {
        key.tunnel = outside(*way_in.tunnel);
        key.outer_src = to_abi(way_in.tunnel->remote);
        key.outer_dst = to_abi(way_in.tunnel->local);
    }
    for (std::size_t i = 0; i < way_in.tags.size() && i < std::size(key.vlan); i++)
        key.vlan[i] = {htons(way_in.tags[i].proto), htons(way_in.tags[i].vid)};
    if (way_in.pppoe) {
        key.pppoe = htons(way_in.pppoe->id);
        std::copy(way_in.pppoe->peer.bytes.begin(), way_in.pppoe->peer.bytes.end(), key.peer);
    }
    return key;
}

FlowPlan plan_flow(const CtEntry &entry, const Ways &ways, bool reply)
{
    // As received: this direction's own tuple. As sent: the other direction's tuple, reversed.
    const Tuple &in = reply ? entry.reply : entry.orig;
    const Tuple out = (reply ? entry.orig : entry.reply).reversed();
    const Way &way_in = reply ? ways.orig : ways.reply;

    FlowPlan plan;
    plan.key = flow_key(in, way_in);
    plan.upper = way_in.upper_mac;
    plan.new_src = to_abi(out.src);
    plan.new_dst = to_abi(out.dst);
    plan.new_sport = htons(out.sport);
    plan.new_dport = htons(out.dport);
    plan.nat = in != out;
    plan.addr_delta =
        csum_add(csum_delta(plan.key.src, plan.new_src), csum_delta(plan.key.dst, plan.new_dst));
    plan.port_delta =
        csum_add(csum_delta16(plan.key.sport, plan.new_sport), csum_delta16(plan.key.dport, plan.new_dport));
    return plan;
}

ftctl_path_body plan_path(const Way &way, const Mac &smac, const Mac *dmac, const Egress &egress)
{
    ftctl_path_body body{};
    const bool inner_v6 = way.family == AF_INET6;
    body.family = abi_family(way.family);
    body.mtu = way.mtu;
    body.oif = way.oif;
    bool outer_v6 = inner_v6;
    if (way.tunnel) {
        plan_outer(body, *way.tunnel, inner_v6);
        outer_v6 = body.tunnel == FTCTL_TUNNEL_IPV6;
    }
    plan_l2(body, way, smac, dmac ? *dmac : Mac{}, outer_v6 ? ETH_P_IPV6 : ETH_P_IP);
    plan_priorities(body, way, egress.priority_by_tos && !inner_v6);
    if (!egress.up)
        body.reason = FTCTL_R_PATH_DOWN;
    else if (!dmac)
        body.reason = FTCTL_R_NO_NEIGH;
    else
        body.flags |= FTCTL_P_VALID;
    if (egress.xdp) {
        body.flags |= FTCTL_P_XDP;
        // xdp_ok_fwd_dev(): the MTU, an Ethernet header and one tag
        const std::uint32_t most = egress.mtu + ETH_HLEN + 4 - body.l2_len;
        body.mtu = static_cast<std::uint16_t>(std::min<std::uint32_t>(body.mtu, most));
    }
    return body;
}

} // namespace ftctl
