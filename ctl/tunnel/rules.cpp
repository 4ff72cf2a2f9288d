// SPDX-License-Identifier: GPL-2.0-only
#include "tunnel/rules.h"

#include <array>
#include <netinet/in.h>

#include <fmt/format.h>

#include "ftctl/ecn.h"
#include "tunnel/ipv4_view.h"

namespace ftctl {

namespace {

using Mode = TunnelConfig::Mode;

constexpr std::array<TunnelRow, 4> kRows{{
    {Mode::ipip, "ipip", AF_INET, AF_INET, IPPROTO_IPIP, 20, true},
    {Mode::ip6ip6, "ip6ip6", AF_INET6, AF_INET6, IPPROTO_IPV6, 40, false},
    {Mode::ip4in6, "4in6", AF_INET6, AF_INET, IPPROTO_IPIP, 40, false},
    {Mode::ip6in4, "6in4", AF_INET, AF_INET6, IPPROTO_IPV6, 20, false},
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

    if (!row.driver)
        return fail(what, "the tun driver has no such mode yet",
                    "use mode ipip, or the kernel's own tunnel device");
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
    // The kernel sends DF whenever the TTL is fixed, since traceroute could not work otherwise;
    // iproute2 refuses to be asked for the contrary.
    if (config.ttl != 0 && !config.pmtudisc)
        return fail(what, "a fixed ttl needs path MTU discovery", "use ttl inherit", Code::usage);
    if (config.fou || config.collect_md)
        return fail(what, "FOU, GUE and metadata mode have no tun driver", "use a plain tunnel");

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

EncapDecision encap_ipv4(const TunnelConfig &config, std::span<const std::uint8_t> inner,
                         std::uint32_t underlay_mtu)
{
    EncapDecision d;
    const auto in = Ipv4View::parse(inner);
    if (!in)
        return d;
    // The outer packet was routed into its own tunnel: ip_tunnel_xmit() counts a collision.
    // Compared without the source, which masquerading may have changed on the way.
    if (in->protocol() == IPPROTO_IPIP && in->daddr() == config.remote.v4())
        return d;

    d.length = in->total_length();
    d.inner_df = in->df();
    d.df = config.pmtudisc || d.inner_df;
    const std::uint8_t tos = (config.tos & 1) ? in->tos() : config.tos;
    d.tos = ftctl_ecn_encap(tos, in->tos());
    d.ttl = config.ttl != 0 ? config.ttl : in->ttl();
    if (d.ttl == 0) // no forwarded packet has it, and a socket cannot send it
        return d;

    const std::uint32_t header = tunnel_row(config.mode).header_bytes;
    if (underlay_mtu > header && d.inner_df && d.length > underlay_mtu - header) {
        d.verdict = EncapDecision::Verdict::too_big;
        d.mtu = static_cast<std::uint16_t>(underlay_mtu - header);
        return d;
    }
    d.verdict = EncapDecision::Verdict::send;
    return d;
}

DecapDecision decap_ipv4(const TunnelConfig &config, std::span<const std::uint8_t> packet)
{
    DecapDecision d;
    const auto outer = Ipv4View::parse(packet);
    if (!outer || outer->protocol() != IPPROTO_IPIP || outer->is_fragment())
        return d;
    if (outer->saddr() != config.remote.v4() || (config.local && outer->daddr() != config.local.v4()))
        return d;
    const auto in = Ipv4View::parse(outer->payload());
    if (!in)
        return d;
    if (ftctl_ecn_decap_drops(outer->tos(), in->tos())) {
        d.verdict = DecapDecision::Verdict::drop_ecn;
        return d;
    }
    d.tos = ftctl_ecn_decap(outer->tos(), in->tos());
    d.offset = outer->header_length();
    d.length = in->total_length();
    d.verdict = DecapDecision::Verdict::deliver;
    return d;
}

void set_tos(std::span<std::uint8_t> header, std::uint8_t tos)
{
    if (header.size() < kIpv4Header || header[1] == tos)
        return;
    // csum16_add() of the negated change, so that a sum of zero is written as the kernel does it.
    const unsigned check = static_cast<unsigned>(header[10]) << 8 | header[11];
    const unsigned add = header[1] > tos ? static_cast<unsigned>(header[1] - tos)
                                         : 0xffffU - static_cast<unsigned>(tos - header[1]);
    unsigned sum = check + add;
    sum = (sum & 0xffff) + (sum >> 16);
    header[1] = tos;
    header[10] = static_cast<std::uint8_t>(sum >> 8);
    header[11] = static_cast<std::uint8_t>(sum);
}

} // namespace ftctl
