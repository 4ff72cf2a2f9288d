// SPDX-License-Identifier: GPL-2.0-only
#include "tunnel/icmp_error.h"

#include <algorithm>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>

#include "tunnel/ip_view.h"

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

/// is_ineligible() of icmp6_send(): the packet is itself an ICMPv6 error, behind whatever extension
/// headers. What cannot be read counts as none.
bool is_icmp6_error(const Ipv6View &ip)
{
    constexpr std::uint8_t informational = 0x80; // ICMPV6_INFOMSG_MASK
    const auto all = ip.bytes();
    std::uint8_t next = ip.next_header();
    std::size_t at = kIpv6Header;
    while (next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_DSTOPTS ||
           next == IPPROTO_FRAGMENT || next == IPPROTO_AH) {
        if (at + 8 > all.size())
            return false;
        std::size_t length = 8U * (all[at + 1] + std::size_t{1});
        if (next == IPPROTO_AH)
            length = 4U * (all[at + 1] + std::size_t{2});
        if (next == IPPROTO_FRAGMENT) {
            if (all[at + 2] != 0 || (all[at + 3] & 0xf8) != 0)
                return false; // a later fragment
            length = 8;
        }
        next = all[at];
        at += length;
    }
    return next == IPPROTO_ICMPV6 && at < all.size() && (all[at] & informational) == 0;
}

void build_icmp6(std::span<const std::uint8_t> packet, std::uint8_t type, std::uint16_t info,
                 IcmpError &error)
{
    error.length = 0;
    const auto ip = Ipv6View::parse(packet);
    if (!ip)
        return;
    const IpAddr source = ip->src();
    const bool one_machine = source.bytes[0] != 0xff && source.bytes != decltype(source.bytes){};
    // Of the two, only "too big" may be about a packet to a group.
    if (!one_machine || is_icmp6_error(*ip) || (ip->dst().bytes[0] == 0xff && type != ICMP6_PACKET_TOO_BIG))
        return;

    const auto quote = ip->bytes().first(std::min<std::size_t>(ip->total_length(), kIcmp6Quote));
    auto &b = error.bytes;
    std::fill(b.begin(), b.begin() + 8, std::uint8_t{0});
    b[0] = type;
    b[6] = static_cast<std::uint8_t>(info >> 8);
    b[7] = static_cast<std::uint8_t>(info);
    std::copy(quote.begin(), quote.end(), b.begin() + 8);
    error.length = 8 + quote.size();
    error.destination = source;
    error.tos = 0;
}

} // namespace

void build_packet_too_big(std::span<const std::uint8_t> packet, std::uint16_t mtu, IcmpError &error)
{
    build_icmp6(packet, ICMP6_PACKET_TOO_BIG, mtu, error);
}

void build_parameter_problem(std::span<const std::uint8_t> packet, std::uint16_t pointer, IcmpError &error)
{
    build_icmp6(packet, ICMP6_PARAM_PROB, pointer, error);
}

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
    error.destination = IpAddr::from_v4(ip->saddr());
    // __icmp_send(): the TOS bits of the packet under "internetwork control".
    error.tos = static_cast<std::uint8_t>((ip->tos() & IPTOS_TOS_MASK) | IPTOS_PREC_INTERNETCONTROL);
}

} // namespace ftctl
