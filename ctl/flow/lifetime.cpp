// SPDX-License-Identifier: GPL-2.0-only
#include "flow/lifetime.h"

#include <algorithm>
#include <cmath>

namespace ftctl {

std::uint8_t trickle_seconds(std::uint32_t configured_s, std::uint32_t timeout_s)
{
    if (configured_s == 0)
        return 0;
    std::uint32_t seconds = std::min(configured_s, 255U);
    if (timeout_s > 0)
        seconds = std::min(seconds, std::max(timeout_s / 3, 1U));
    return static_cast<std::uint8_t>(seconds);
}

std::optional<std::uint32_t> corrected_timeout(const IdleFacts &facts)
{
    const double unseen = facts.kernel_idle_s - facts.idle_s;
    if (unseen < 1.0)
        return std::nullopt;
    double wanted = facts.remaining_s + unseen;
    if (facts.timeout_s > 0)
        wanted = std::min(wanted, std::max(facts.timeout_s - facts.idle_s, 1.0));
    const auto seconds = static_cast<std::uint32_t>(std::lround(wanted));
    if (seconds <= facts.remaining_s)
        return std::nullopt;
    return seconds;
}

} // namespace ftctl
