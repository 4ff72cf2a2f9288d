// SPDX-License-Identifier: GPL-2.0-only
// Sending: what the outer header says, and which packets do not get one.
#include <algorithm>
#include <netinet/in.h>

#include "ftctl/ecn.h"
#include "tunnel/ip_view.h"
#include "tunnel/rules.h"

namespace ftctl {

namespace {

using Mode = TunnelConfig::Mode;
using Verdict = EncapDecision::Verdict;

constexpr std::uint32_t kIpv4MinMtu = 68;   // IPV4_MIN_MTU
constexpr std::uint32_t kIpv6MinMtu = 1280; // IPV6_MIN_MTU

constexpr std::uint8_t kLimitType = 4; // IPV6_TLV_TNL_ENCAP_LIMIT
constexpr std::size_t kLimitBytes = 3; // type, length, limit

/// What the two kinds of inner packet have in common.
struct Inner {
    std::uint8_t tos;
    std::uint8_t ttl;
    std::uint32_t length;
    bool df;
    std::uint32_t flow_label;
    bool loops;    ///< it is a packet of this very tunnel
    bool conflict; ///< it claims to come from the tunnel's peer itself
};

/// The outer packet was routed into its own tunnel: the kernel counts a collision. Compared without
/// the source, which masquerading may have changed on the way.
std::optional<Inner> read_inner(const TunnelConfig &config, std::span<const std::uint8_t> packet)
{
    const std::uint8_t protocol = tunnel_row(config.mode).protocol;
    if (inner_family(config.mode) == AF_INET) {
        const auto in = Ipv4View::parse(packet);
        if (!in)
            return std::nullopt;
        const bool loops =
            config.mode == Mode::ipip && in->protocol() == protocol && in->daddr() == config.remote.v4();
        return Inner{in->tos(), in->ttl(), in->total_length(), in->df(), 0, loops, false};
    }
    const auto in = Ipv6View::parse(packet);
    if (!in)
        return std::nullopt;
    const bool same = config.mode == Mode::ip6ip6;
    const bool loops = same && (in->next_header() == protocol || in->next_header() == IPPROTO_DSTOPTS) &&
                       in->dst() == config.remote;
    return Inner{in->traffic_class(),
                 in->hop_limit(),
                 in->total_length(),
                 true,
                 in->flow_label(),
                 loops,
                 same && in->src() == config.remote};
}

/// The largest inner packet over a path of this MTU; 0: none at all. May clear DF.
std::uint32_t inner_limit(const TunnelConfig &config, std::uint32_t underlay_mtu, EncapDecision &d)
{
    const std::uint32_t header = tunnel_row(config.mode).header_bytes + (d.encap_limit ? 8U : 0U);
    const std::uint32_t room = underlay_mtu > header ? underlay_mtu - header : 0;
    switch (config.mode) {
    case Mode::ipip: // tnl_update_pmtu(): asks about packets with DF only
        return room == 0 || !d.inner_df ? UINT32_MAX : room;
    case Mode::ip6in4: // ipip6_tunnel_xmit()
        if (!d.df)
            return UINT32_MAX;
        if (room < kIpv4MinMtu)
            return 0;
        d.df = room >= kIpv6MinMtu;
        return std::max(room, kIpv6MinMtu);
    case Mode::ip6ip6: // ip6_tnl_xmit()
        return std::max(room, kIpv6MinMtu);
    case Mode::ip4in6: // the same, and ICMP "even if DF is not set"
        return std::max(room, kIpv4MinMtu);
    }
    return 0;
}

/// One destination options header. Sets `found` to the option's place.
void scan_options(std::span<const std::uint8_t> header, std::size_t at, std::optional<std::uint16_t> &found)
{
    std::size_t i = 2;
    while (i + kLimitBytes <= header.size()) {
        if (header[i] == kLimitType && header[i + 1] == 1) {
            found = static_cast<std::uint16_t>(at + i);
            return;
        }
        i += header[i] == 0 ? 1 : std::size_t{2} + header[i + 1]; // Pad1 has no length
    }
}

} // namespace

std::optional<std::uint16_t> find_encap_limit(std::span<const std::uint8_t> packet)
{
    const auto ip = Ipv6View::parse(packet);
    if (!ip)
        return std::nullopt;
    const auto all = ip->bytes();
    std::uint8_t next = ip->next_header();
    std::size_t at = kIpv6Header;
    std::optional<std::uint16_t> found;
    while (!found && at + 8 <= all.size()) {
        std::size_t length = 8U * (all[at + 1] + std::size_t{1});
        switch (next) {
        case IPPROTO_HOPOPTS:
        case IPPROTO_ROUTING:
        case IPPROTO_DSTOPTS:
            break;
        case IPPROTO_AH:
            length = 4U * (all[at + 1] + std::size_t{2});
            break;
        case IPPROTO_FRAGMENT:
            length = 8;
            if (all[at + 2] != 0 || all[at + 3] != 0) // offset or more to come
                return std::nullopt;
            break;
        default:
            return std::nullopt;
        }
        if (at + length > all.size())
            return std::nullopt;
        if (next == IPPROTO_DSTOPTS)
            scan_options(all.subspan(at, length), at, found);
        next = all[at];
        at += length;
    }
    return found;
}

EncapDecision encap_packet(const TunnelConfig &config, std::span<const std::uint8_t> inner,
                           std::uint32_t underlay_mtu)
{
    EncapDecision d;
    const auto in = read_inner(config, inner);
    if (!in || in->loops || in->conflict)
        return d;

    d.length = in->length;
    d.inner_df = in->df;
    const std::uint8_t tos = (config.tos & 1) ? in->tos : config.tos;
    d.tos = ftctl_ecn_encap(tos, in->tos);
    d.ttl = config.ttl != 0 ? config.ttl : in->ttl;
    if (d.ttl == 0) // no forwarded packet has it, and a socket cannot send it
        return d;

    if (tunnel_row(config.mode).outer_family == AF_INET6) {
        d.flow_label = config.flow_label_inherit ? in->flow_label : config.flow_label;
        d.encap_limit = config.encap_limit;
        if (config.mode == Mode::ip6ip6)
            if (const auto at = find_encap_limit(inner)) {
                const std::uint8_t left = inner[*at + 2U];
                if (left == 0) {
                    d.verdict = Verdict::too_deep;
                    d.pointer = static_cast<std::uint16_t>(*at + 2);
                    return d;
                }
                d.encap_limit = static_cast<std::uint8_t>(left - 1);
            }
    } else {
        // sit takes the device's own setting; ipip adds what the inner packet asks for.
        d.df = config.pmtudisc || (config.mode == Mode::ipip && d.inner_df);
    }

    if (underlay_mtu != 0) {
        const std::uint32_t limit = inner_limit(config, underlay_mtu, d);
        if (limit == 0)
            return d;
        if (d.length > limit) {
            d.verdict = Verdict::too_big;
            d.mtu = static_cast<std::uint16_t>(limit);
            return d;
        }
    }
    d.verdict = Verdict::send;
    return d;
}

} // namespace ftctl
