// SPDX-License-Identifier: GPL-2.0-only
// IP headers, read byte by byte: the buffers are not aligned.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <sys/socket.h>

#include "util/addr.h"

namespace ftctl {

inline constexpr std::size_t kIpv4Header = 20;
inline constexpr std::size_t kIpv6Header = 40;

/// A packet whose version, header length and total length were checked as ip_rcv_core() does it
/// (the checksum is left to the kernel). Bytes after the total length are ignored. Borrows the packet.
class Ipv4View {
  public:
    static std::optional<Ipv4View> parse(std::span<const std::uint8_t> p)
    {
        if (p.size() < kIpv4Header || p[0] >> 4 != 4)
            return std::nullopt;
        const std::size_t ihl = (p[0] & 0x0fU) * 4U;
        const std::size_t total = static_cast<std::size_t>(p[2]) << 8 | p[3];
        if (ihl < kIpv4Header || total < ihl || total > p.size())
            return std::nullopt;
        return Ipv4View(p.first(total), static_cast<std::uint16_t>(ihl));
    }

    [[nodiscard]] std::uint16_t header_length() const { return ihl_; }
    [[nodiscard]] std::uint16_t total_length() const { return static_cast<std::uint16_t>(p_.size()); }
    [[nodiscard]] std::uint8_t tos() const { return p_[1]; }
    [[nodiscard]] bool df() const { return (p_[6] & 0x40) != 0; }
    [[nodiscard]] unsigned fragment_offset() const { return (p_[6] & 0x1fU) << 8 | p_[7]; }
    [[nodiscard]] bool is_fragment() const { return (p_[6] & 0x20) != 0 || fragment_offset() != 0; }
    [[nodiscard]] std::uint8_t ttl() const { return p_[8]; }
    [[nodiscard]] std::uint8_t protocol() const { return p_[9]; }
    [[nodiscard]] std::uint32_t saddr() const { return be32(12); } ///< network order
    [[nodiscard]] std::uint32_t daddr() const { return be32(16); } ///< network order
    [[nodiscard]] std::span<const std::uint8_t> bytes() const { return p_; }
    [[nodiscard]] std::span<const std::uint8_t> payload() const { return p_.subspan(ihl_); }

  private:
    Ipv4View(std::span<const std::uint8_t> p, std::uint16_t ihl) : p_(p), ihl_(ihl) {}
    [[nodiscard]] std::uint32_t be32(std::size_t at) const
    {
        std::uint32_t v = 0;
        std::memcpy(&v, p_.data() + at, sizeof v);
        return v;
    }

    std::span<const std::uint8_t> p_;
    std::uint16_t ihl_;
};

/// An IPv6 packet whose version and payload length were checked as ip6_rcv_core() does it. Bytes after
/// the payload are ignored; extension headers are payload. Borrows the packet.
class Ipv6View {
  public:
    static std::optional<Ipv6View> parse(std::span<const std::uint8_t> p)
    {
        if (p.size() < kIpv6Header || p[0] >> 4 != 6)
            return std::nullopt;
        const std::size_t total = kIpv6Header + (static_cast<std::size_t>(p[4]) << 8 | p[5]);
        if (total > p.size())
            return std::nullopt;
        return Ipv6View(p.first(total));
    }

    [[nodiscard]] std::uint32_t total_length() const { return static_cast<std::uint32_t>(p_.size()); }
    [[nodiscard]] std::uint8_t traffic_class() const
    {
        return static_cast<std::uint8_t>((p_[0] & 0x0fU) << 4 | p_[1] >> 4);
    }
    [[nodiscard]] std::uint32_t flow_label() const ///< host order, 20 bits
    {
        return (p_[1] & 0x0fU) << 16 | static_cast<std::uint32_t>(p_[2]) << 8 | p_[3];
    }
    [[nodiscard]] std::uint8_t next_header() const { return p_[6]; }
    [[nodiscard]] std::uint8_t hop_limit() const { return p_[7]; }
    [[nodiscard]] IpAddr src() const { return IpAddr::from_bytes(AF_INET6, p_.data() + 8, 16); }
    [[nodiscard]] IpAddr dst() const { return IpAddr::from_bytes(AF_INET6, p_.data() + 24, 16); }
    [[nodiscard]] std::span<const std::uint8_t> bytes() const { return p_; }
    [[nodiscard]] std::span<const std::uint8_t> payload() const { return p_.subspan(kIpv6Header); }

  private:
    explicit Ipv6View(std::span<const std::uint8_t> p) : p_(p) {}
    std::span<const std::uint8_t> p_;
};

/// One's-complement sum of big-endian 16-bit words, folded; an odd last byte is the high one.
inline std::uint16_t ones_sum(std::span<const std::uint8_t> p, std::uint32_t start = 0)
{
    std::uint64_t sum = start;
    std::size_t i = 0;
    for (; i + 1 < p.size(); i += 2)
        sum += static_cast<std::uint32_t>(p[i]) << 8 | p[i + 1];
    if (i < p.size())
        sum += static_cast<std::uint32_t>(p[i]) << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
}

} // namespace ftctl
