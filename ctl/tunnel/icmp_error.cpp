// SPDX-License-Identifier: GPL-2.0-only
#include "tunnel/icmp_error.h"

#include <algorithm>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>

#include "tunnel/ipv4_view.h"

namespace ftctl {

namespace {

/// Only queries get an answer; icmp_pointers[].error, and types nobody knows.
bool is_icmp_query(std::span<const std::uint8_t> icmp)
{
    if (icmp.empty())
        return false;
    switch (icmp[0]) {
    case ICMP_ECHOREPLY:
    case ICMP_ECHO:
    case ICMP_TIMESTAMP:
    case ICMP_TIMESTAMPREPLY:
    case ICMP_INFO_REQUEST:
    case ICMP_INFO_REPLY:
    case ICMP_ADDRESS:
    case ICMP_ADDRESSREPLY:
        return true;
    default:
        return false;
    }
}

bool is_one_machine(std::uint32_t be)
{
    const std::uint32_t a = ntohl(be);
    return a >> 24 != 0 && (a >> 28) != 0xe && a != INADDR_BROADCAST;
}

} // namespace

void build_frag_needed(std::span<const std::uint8_t> packet, std::uint16_t mtu, IcmpError &error)
{
    error.length = 0;
    const auto ip = Ipv4View::parse(packet);
    if (!ip || ip->fragment_offset() != 0 || !is_one_machine(ip->saddr()) || !is_one_machine(ip->daddr()))
        return;
    if (ip->protocol() == IPPROTO_ICMP && !is_icmp_query(ip->payload()))
        return;

    const auto quote = ip->bytes().first(std::min<std::size_t>(ip->total_length(), kIcmpQuote));
    auto &b = error.bytes;
    b[0] = ICMP_DEST_UNREACH;
    b[1] = ICMP_FRAG_NEEDED;
    std::fill(b.begin() + 2, b.begin() + 6, std::uint8_t{0}); // checksum; unused
    b[6] = static_cast<std::uint8_t>(mtu >> 8);
    b[7] = static_cast<std::uint8_t>(mtu);
    std::copy(quote.begin(), quote.end(), b.begin() + 8);
    error.length = 8 + quote.size();
    const std::uint16_t check = static_cast<std::uint16_t>(~ones_sum(std::span(b).first(error.length)));
    b[2] = static_cast<std::uint8_t>(check >> 8);
    b[3] = static_cast<std::uint8_t>(check);
    error.destination = ip->saddr();
    // __icmp_send(): the TOS bits of the packet under "internetwork control".
    error.tos = static_cast<std::uint8_t>((ip->tos() & IPTOS_TOS_MASK) | IPTOS_PREC_INTERNETCONTROL);
}

} // namespace ftctl
