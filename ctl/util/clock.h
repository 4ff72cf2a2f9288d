// SPDX-License-Identifier: GPL-2.0-only
// CLOCK_MONOTONIC, the clock the datapath uses.
#pragma once

#include <cstdint>
#include <ctime>

#include "ftctl/abi.h"

namespace ftctl {

inline std::uint64_t monotonic_ns()
{
    timespec ts{};
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<std::uint64_t>(ts.tv_sec) * FTCTL_NSEC_PER_SEC +
           static_cast<std::uint64_t>(ts.tv_nsec);
}

inline std::uint32_t to_ticks(std::uint64_t ns)
{
    return static_cast<std::uint32_t>(ns >> FTCTL_TICK_SHIFT);
}

/// Seconds from `earlier` to `later`, both in ticks; the wrap is taken into account.
inline double tick_seconds(std::uint32_t later, std::uint32_t earlier)
{
    const auto ticks = static_cast<std::int32_t>(later - earlier);
    return static_cast<double>(ticks) * static_cast<double>(1U << FTCTL_TICK_SHIFT) / 1e9;
}

} // namespace ftctl
