// SPDX-License-Identifier: GPL-2.0-only
#include "flow/plan.h"

#include <algorithm>

#include <arpa/inet.h>
#include <linux/if_ether.h>

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

std::uint16_t csum_delta32(std::uint32_t from, std::uint32_t to)
{
    return csum_add(
        csum_delta16(static_cast<std::uint16_t>(from), static_cast<std::uint16_t>(to)),
        csum_delta16(static_cast<std::uint16_t>(from >> 16), static_cast<std::uint16_t>(to >> 16)));
}

FlowPlan plan_flow(const CtEntry &entry, const Ways &ways, bool reply)
{
    // As received: this direction's own tuple. As sent: the other direction's tuple, reversed.
    const Tuple &in = reply ? entry.reply : entry.orig;
    const Tuple out = (reply ? entry.orig : entry.reply).reversed();
    const Way &way_in = reply ? ways.orig : ways.reply;

    FlowPlan plan;
    plan.key.in.src = in.src.v4();
    plan.key.in.dst = in.dst.v4();
    plan.key.in.sport = htons(in.sport);
    plan.key.in.dport = htons(in.dport);
    plan.key.in.iif_proto = ftctl_iif_proto(way_in.oif, in.proto);
    if (way_in.tunnel) {
        plan.tunneled = true;
        plan.key.outer_src = way_in.tunnel->remote.v4();
        plan.key.outer_dst = way_in.tunnel->local.v4();
    }
    plan.new_src = out.src.v4();
    plan.new_dst = out.dst.v4();
    plan.new_sport = htons(out.sport);
    plan.new_dport = htons(out.dport);
    plan.nat = in != out;
    plan.addr_delta =
        csum_add(csum_delta32(plan.key.in.src, plan.new_src), csum_delta32(plan.key.in.dst, plan.new_dst));
    plan.port_delta = csum_add(csum_delta16(plan.key.in.sport, plan.new_sport),
                               csum_delta16(plan.key.in.dport, plan.new_dport));
    return plan;
}

ftctl_path_body plan_path(const Way &way, const Mac &smac, const Mac *dmac, bool up, bool xdp)
{
    ftctl_path_body body{};
    std::copy(smac.bytes.begin(), smac.bytes.end(), body.smac);
    body.ethertype = htons(ETH_P_IP);
    body.mtu = way.mtu;
    body.oif = way.oif;
    if (!up) {
        body.reason = FTCTL_R_PATH_DOWN;
    } else if (!dmac) {
        body.reason = FTCTL_R_NO_NEIGH;
    } else {
        std::copy(dmac->bytes.begin(), dmac->bytes.end(), body.dmac);
        body.flags |= FTCTL_P_VALID;
    }
    if (xdp)
        body.flags |= FTCTL_P_XDP;
    if (way.tunnel) {
        const TunnelConfig &tunnel = *way.tunnel;
        body.flags |= FTCTL_P_IPIP;
        if (tunnel.tos & 1)
            body.flags |= FTCTL_P_TOS_INHERIT;
        else
            body.tun_tos = tunnel.tos;
        if (tunnel.pmtudisc)
            body.flags |= FTCTL_P_DF;
        body.tun_ttl = tunnel.ttl;
        body.tun_src = tunnel.local.v4();
        body.tun_dst = tunnel.remote.v4();
    }
    return body;
}

} // namespace ftctl
