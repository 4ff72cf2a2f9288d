// SPDX-License-Identifier: GPL-2.0-only
#include "tunnel/rules.h"

#include <array>
#include <netinet/in.h>

#include <fmt/format.h>

namespace ftctl {

namespace {

using Mode = TunnelConfig::Mode;

constexpr std::array<TunnelRow, 4> kRows{{
    {Mode::ipip, "ipip", AF_INET, AF_INET, IPPROTO_IPIP, 20},
    {Mode::ip6ip6, "ip6ip6", AF_INET6, AF_INET6, IPPROTO_IPV6, 40},
    {Mode::ip4in6, "4in6", AF_INET6, AF_INET, IPPROTO_IPIP, 40},
    {Mode::ip6in4, "6in4", AF_INET, AF_INET6, IPPROTO_IPV6, 20},
}};

bool is_multicast(const IpAddr &a)
{
    return a.family == AF_INET ? (a.bytes[0] & 0xf0) == 0xe0 : a.bytes[0] == 0xff;
}

/// 0.0.0.0/8, 255.255.255.255, loopback and :: name no machine.
bool is_endpoint(const IpAddr &a)
{
    if (is_multicast(a))
        return false;
    if (a.family == AF_INET)
        return a.bytes[0] != 0 && a.bytes[0] != 127 && a.v4() != INADDR_NONE;
    IpAddr loopback = a;
    loopback.bytes = {};
    if (a == loopback)
        return false;
    loopback.bytes[15] = 1;
    return a != loopback;
}

} // namespace

const TunnelRow &tunnel_row(TunnelConfig::Mode mode)
{
    for (const TunnelRow &row : kRows) {
        if (row.mode == mode)
            return row;
    }
    return kRows[0];
}

Result<TunnelConfig> validate_tunnel(const TunnelConfig &config)
{
    const TunnelRow &row = tunnel_row(config.mode);
    const std::string what = fmt::format("tunnel mode {}", row.name);
    const char *family = row.outer_family == AF_INET ? "IPv4" : "IPv6";

    if (!config.remote)
        return fail(what, "no remote address", "name the peer: remote ADDRESS", Code::usage);
    if (config.remote.family != row.outer_family)
        return fail(what, fmt::format("remote {} is not an {} address", config.remote.str(), family),
                    fmt::format("the outer header of this mode is {}", family), Code::usage);
    if (config.local && config.local.family != row.outer_family)
        return fail(what, fmt::format("local {} is not an {} address", config.local.str(), family),
                    fmt::format("the outer header of this mode is {}", family), Code::usage);
    for (const IpAddr *a : {&config.remote, &config.local}) {
        if (*a && !is_endpoint(*a))
            return fail(what, fmt::format("{} is no unicast address of a machine", a->str()),
                        "a tunnel has one peer, named by its unicast address", Code::usage);
    }
    if (config.local == config.remote)
        return fail(what, fmt::format("local and remote are both {}", config.local.str()),
                    "local is this machine's address, remote the peer's", Code::usage);
    // ip6_tnl_xmit_ctl(): without, the kernel's tunnel sends nothing either.
    if (row.outer_family == AF_INET6 && !config.local)
        return fail(what, "no local address", "name this machine's own: local ADDRESS", Code::usage);
    constexpr std::uint32_t label_bits = 0xfffff;
    if (config.flow_label > label_bits)
        return fail(what, fmt::format("flow label {:#x} has more than 20 bits", config.flow_label),
                    "use at most 0xfffff", Code::usage);
    // The kernel sends DF whenever the TTL is fixed, since traceroute could not work otherwise;
    // iproute2 refuses to be asked for the contrary.
    if (config.ttl != 0 && !config.pmtudisc)
        return fail(what, "a fixed ttl needs path MTU discovery", "use ttl inherit", Code::usage);
    if (config.fou || config.collect_md || config.isatap || config.mip6 || config.any)
        return fail(what, "FOU, GUE, metadata, ISATAP, mobility and any mode have no tun driver",
                    "use a plain tunnel, or one for each family");
    if (config.dscp_copy || config.fwmark_inherit)
        return fail(what, "the tun driver copies neither DSCP inwards nor marks outwards",
                    "use a plain tunnel");

    TunnelConfig out = config;
    out.declared = true;
    return out;
}

bool tunnels_overlap(const TunnelConfig &a, const TunnelConfig &b)
{
    return tunnel_row(a.mode).outer_family == tunnel_row(b.mode).outer_family &&
           tunnel_row(a.mode).protocol == tunnel_row(b.mode).protocol && a.remote == b.remote &&
           (!a.local || !b.local || a.local == b.local) && (!a.link || !b.link || a.link == b.link);
}

} // namespace ftctl
