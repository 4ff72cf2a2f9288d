// SPDX-License-Identifier: GPL-2.0-only
// What a flow has carried, as numbers.
#pragma once

#include <cstdint>

#include "ftctl/abi.h"

namespace ftctl::test {

inline ftctl_count count_of(std::uint64_t packets, std::uint64_t bytes)
{
    const std::uint64_t some = packets & ((1ULL << FTCTL_COUNT_PACKETS) - 1);
    return {some << FTCTL_COUNT_BYTES | (bytes & 0xffffffff),
            packets >> FTCTL_COUNT_PACKETS << 32 | bytes >> 32};
}

inline std::uint64_t packets(const ftctl_flow &flow)
{
    return ftctl_count_packets(&flow.carried);
}

inline std::uint64_t bytes(const ftctl_flow &flow)
{
    return ftctl_count_bytes(&flow.carried);
}

} // namespace ftctl::test
