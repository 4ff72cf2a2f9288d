// SPDX-License-Identifier: GPL-2.0-only
// The ICMP error a tunnel owes the source of a packet that is too big for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ftctl {

/// Linux quotes as much as fits in 576 bytes (RFC 1812 4.3.2.3): 8 bytes of ICMP and this.
inline constexpr std::size_t kIcmpQuote = 576 - 20 - 8;

struct IcmpError {
    std::array<std::uint8_t, 8 + kIcmpQuote> bytes{}; ///< the ICMP message, checksum included
    std::size_t length = 0;                           ///< 0: none may be sent
    std::uint32_t destination = 0;                    ///< network order
    std::uint8_t tos = 0;
};

/// "Fragmentation needed" (RFC 792 type 3 code 4, next-hop MTU as in RFC 1191) about `packet`, under
/// the rules of icmp_send(): never about a later fragment, an ICMP error, or to no single machine.
/// mtu: largest packet that fits, bytes. Written into `error`, which the caller keeps.
void build_frag_needed(std::span<const std::uint8_t> packet, std::uint16_t mtu, IcmpError &error);

} // namespace ftctl
