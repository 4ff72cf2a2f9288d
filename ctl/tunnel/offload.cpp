// SPDX-License-Identifier: GPL-2.0-only
#include "tunnel/offload.h"

#include <netinet/in.h>

#include "tunnel/ip_view.h"

namespace ftctl {

namespace {

constexpr std::size_t kTcpHeader = 20, kTcpCheck = 16, kTcpFlags = 13;
constexpr std::size_t kUdpHeader = 8, kUdpCheck = 6;
constexpr std::uint8_t kTcpCwr = 0x80;

/// The transport header of a whole TCP or UDP packet.
struct Transport {
    std::uint8_t protocol;
    std::size_t at;                          ///< where it begins, bytes
    std::span<const std::uint8_t> addresses; ///< source and destination, as the pseudo header has them
    std::span<const std::uint8_t> bytes;     ///< header and payload
    std::size_t check_at;                    ///< of the checksum field, from the header on
};

enum class Kind { broken, other, transport };

/// Fragments and everything behind IPv6 extension headers are `other`.
Kind find_transport(std::span<const std::uint8_t> packet, Transport &t)
{
    bool fragment = false;
    if (const auto ip = Ipv4View::parse(packet)) {
        t = {ip->protocol(), ip->header_length(), ip->bytes().subspan(12, 8), ip->payload(), 0};
        fragment = ip->is_fragment();
    } else if (const auto ip6 = Ipv6View::parse(packet)) {
        t = {ip6->next_header(), kIpv6Header, ip6->bytes().subspan(8, 32), ip6->payload(), 0};
    } else {
        return Kind::broken;
    }
    if (!fragment && t.protocol == IPPROTO_TCP && t.bytes.size() >= kTcpHeader)
        t.check_at = kTcpCheck;
    else if (!fragment && t.protocol == IPPROTO_UDP && t.bytes.size() >= kUdpHeader)
        t.check_at = kUdpCheck;
    else
        return Kind::other;
    return Kind::transport;
}

/// The checksum field holds the bare sum over the pseudo header. (IPv6 has the length in 32 bits, of
/// which the upper ones are 0 here: the sum is the same.)
bool is_partial(const Transport &t)
{
    const auto pseudo = static_cast<std::uint32_t>(t.protocol + t.bytes.size());
    const std::uint16_t sum = ones_sum(t.addresses, pseudo);
    return sum == (static_cast<unsigned>(t.bytes[t.check_at]) << 8 | t.bytes[t.check_at + 1]);
}

} // namespace

bool fill_vnet_header(std::span<const std::uint8_t> inner, std::uint16_t mtu, VnetHeader &header)
{
    header = {};
    Transport t{};
    const Kind kind = find_transport(inner, t);
    if (kind != Kind::transport || !is_partial(t))
        return kind != Kind::broken;

    header.flags = kVnetNeedsCsum;
    header.csum_start = static_cast<std::uint16_t>(t.at);
    header.csum_offset = static_cast<std::uint16_t>(t.check_at);
    const std::size_t total = t.at + t.bytes.size();
    if (total <= mtu)
        return true;
    if (t.protocol != IPPROTO_TCP)
        return false;

    const std::size_t tcp_header = std::size_t{4} * (t.bytes[12] >> 4);
    const std::size_t headers = t.at + tcp_header;
    if (tcp_header < kTcpHeader || headers >= mtu || headers >= total)
        return false;
    header.gso_type = inner[0] >> 4 == 6 ? kVnetGsoTcp6 : kVnetGsoTcp4;
    if (t.bytes[kTcpFlags] & kTcpCwr)
        header.gso_type |= kVnetGsoEcn;
    header.hdr_len = static_cast<std::uint16_t>(headers);
    header.gso_size = static_cast<std::uint16_t>(mtu - headers);
    return true;
}

} // namespace ftctl
