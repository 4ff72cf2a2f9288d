// SPDX-License-Identifier: GPL-2.0-only
// Receiving: which outer packets are a tunnel's, and what becomes of the packet inside.
#include <netinet/in.h>

#include "ftctl/ecn.h"
#include "tunnel/ip_view.h"
#include "tunnel/rules.h"

namespace ftctl {

namespace {

using Verdict = DecapDecision::Verdict;

/// __INET_ECN_decapsulate() on a packet that has been found to be this tunnel's.
DecapDecision decap_inner(const TunnelConfig &config, std::uint8_t outer_tos,
                          std::span<const std::uint8_t> inner)
{
    DecapDecision d;
    std::uint8_t tos = 0;
    if (inner_family(config.mode) == AF_INET) {
        const auto in = Ipv4View::parse(inner);
        if (!in)
            return d;
        tos = in->tos();
        d.length = in->total_length();
    } else {
        const auto in = Ipv6View::parse(inner);
        if (!in)
            return d;
        tos = in->traffic_class();
        d.length = in->total_length();
    }
    if (ftctl_ecn_decap_drops(outer_tos, tos)) {
        d.verdict = Verdict::drop_ecn;
        return d;
    }
    d.tos = ftctl_ecn_decap(outer_tos, tos);
    d.verdict = Verdict::deliver;
    return d;
}

} // namespace

DecapDecision decap_packet(const TunnelConfig &config, std::span<const std::uint8_t> packet)
{
    const auto outer = Ipv4View::parse(packet);
    if (!outer || outer->protocol() != tunnel_row(config.mode).protocol || outer->is_fragment())
        return {};
    if (outer->saddr() != config.remote.v4() || (config.local && outer->daddr() != config.local.v4()))
        return {};
    DecapDecision d = decap_inner(config, outer->tos(), outer->payload());
    d.offset = outer->header_length();
    return d;
}

DecapDecision decap_payload(const TunnelConfig &config, const OuterHeader &outer,
                            std::span<const std::uint8_t> payload)
{
    if (outer.src != config.remote || (config.local && outer.dst != config.local))
        return {};
    return decap_inner(config, outer.traffic_class, payload);
}

void set_tos(std::span<std::uint8_t> header, std::uint8_t tos)
{
    if (header.size() < kIpv4Header)
        return;
    if (header[0] >> 4 == 6) {
        header[0] = static_cast<std::uint8_t>(0x60 | tos >> 4);
        header[1] = static_cast<std::uint8_t>((header[1] & 0x0f) | tos << 4);
        return;
    }
    if (header[1] == tos)
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
