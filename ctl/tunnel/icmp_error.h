// SPDX-License-Identifier: GPL-2.0-only
// The ICMP error a tunnel owes the source of a packet that is too big for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "util/addr.h"

namespace ftctl {

/// Linux quotes as much as fits in 576 bytes (RFC 1812 4.3.2.3): 8 bytes of ICMP and this.
inline constexpr std::size_t kIcmpQuote = 576 - 20 - 8;
/// ... and in the minimum IPv6 MTU (RFC 4443 2.4 c).
inline constexpr std::size_t kIcmp6Quote = 1280 - 40 - 8;

struct IcmpError {
    /// The message, from the ICMP header on. The checksum is there for IPv4; for ICMPv6 it is 0: the
    /// kernel puts it in, whoever sends one through a raw socket (RFC 3542 3.1).
    std::array<std::uint8_t, 8 + kIcmp6Quote> bytes{};
    std::size_t length = 0; ///< 0: none may be sent
    IpAddr destination;
    std::uint8_t tos = 0; ///< TOS or traffic class
};

/// "Fragmentation needed" (RFC 792 type 3 code 4, next-hop MTU as in RFC 1191) about `packet`, under
/// the rules of icmp_send(): never about a later fragment, an ICMP error, or to no single machine.
/// mtu: largest packet that fits, bytes. Written into `error`, which the caller keeps.
void build_frag_needed(std::span<const std::uint8_t> packet, std::uint16_t mtu, IcmpError &error);

/// "Packet too big" (RFC 4443 3.2) about an IPv6 packet, under the rules of icmp6_send().
void build_packet_too_big(std::span<const std::uint8_t> packet, std::uint16_t mtu, IcmpError &error);

/// "Parameter problem, erroneous header field" (RFC 4443 3.4): RFC 2473 6.7 asks for it when an
/// encapsulation limit is used up. pointer: of the limit in the packet, bytes.
void build_parameter_problem(std::span<const std::uint8_t> packet, std::uint16_t pointer, IcmpError &error);

} // namespace ftctl
