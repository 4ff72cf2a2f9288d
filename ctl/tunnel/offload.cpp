// SPDX-License-Identifier: GPL-2.0-only
#include "tunnel/offload.h"

#include <netinet/in.h>

#include "tunnel/ipv4_view.h"

namespace ftctl {

namespace {

constexpr std::size_t kTcpHeader = 20, kTcpCheck = 16, kTcpFlags = 13;
constexpr std::size_t kUdpHeader = 8, kUdpCheck = 6;
constexpr std::uint8_t kTcpCwr = 0x80;

/// The checksum field holds the bare sum over the pseudo header.
bool is_partial(const Ipv4View &ip, std::size_t check_at)
{
    const auto l4 = ip.payload();
    const auto pseudo = static_cast<std::uint32_t>(ip.protocol() + l4.size());
    const std::uint16_t sum = ones_sum(ip.bytes().subspan(12, 8), pseudo);
    return sum == (static_cast<unsigned>(l4[check_at]) << 8 | l4[check_at + 1]);
}

} // namespace

bool fill_vnet_header(std::span<const std::uint8_t> inner, std::uint16_t mtu, VnetHeader &header)
{
    header = {};
    const auto ip = Ipv4View::parse(inner);
    if (!ip)
        return false;
    if (ip->is_fragment())
        return true;
    const auto l4 = ip->payload();
    std::size_t check_at = 0;
    if (ip->protocol() == IPPROTO_TCP && l4.size() >= kTcpHeader)
        check_at = kTcpCheck;
    else if (ip->protocol() == IPPROTO_UDP && l4.size() >= kUdpHeader)
        check_at = kUdpCheck;
    else
        return true;
    if (!is_partial(*ip, check_at))
        return true;

    header.flags = kVnetNeedsCsum;
    header.csum_start = ip->header_length();
    header.csum_offset = static_cast<std::uint16_t>(check_at);
    if (ip->total_length() <= mtu)
        return true;
    if (ip->protocol() != IPPROTO_TCP)
        return false;

    const std::size_t tcp_header = std::size_t{4} * (l4[12] >> 4);
    const std::size_t headers = ip->header_length() + tcp_header;
    if (tcp_header < kTcpHeader || headers >= mtu || headers >= ip->total_length())
        return false;
    header.gso_type = kVnetGsoTcp4;
    if (l4[kTcpFlags] & kTcpCwr)
        header.gso_type |= kVnetGsoEcn;
    header.hdr_len = static_cast<std::uint16_t>(headers);
    header.gso_size = static_cast<std::uint16_t>(mtu - headers);
    return true;
}

} // namespace ftctl
