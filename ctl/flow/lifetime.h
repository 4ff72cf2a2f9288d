// SPDX-License-Identifier: GPL-2.0-only
// How long a connection lives when conntrack does not see its packets.
//
// The trickle lets the kernel refresh its own timeout every few seconds, with whatever timeout its
// rules gave the connection. When a flow falls idle the entry would still expire too early, by the
// time between the last packet the kernel saw and the last packet there was. That much is added,
// once per idle period.
#pragma once

#include <cstdint>
#include <optional>

namespace ftctl {

/// Seconds between two trickle packets for a connection with this timeout: often enough for the
/// kernel never to let it expire under traffic. 0 when asked for no trickle.
std::uint8_t trickle_seconds(std::uint32_t configured_s, std::uint32_t timeout_s);

struct IdleFacts {
    double idle_s = 0;             ///< since the last packet in either direction
    double kernel_idle_s = 0;      ///< since the last one that conntrack saw
    std::uint32_t remaining_s = 0; ///< what conntrack says is left
    std::uint32_t timeout_s = 0;   ///< the connection's full timeout, 0: not known
};

/// The remaining time conntrack would show had it seen every packet; nothing when it already
/// does, to within a second.
std::optional<std::uint32_t> corrected_timeout(const IdleFacts &facts);

} // namespace ftctl
