// SPDX-License-Identifier: GPL-2.0-only
// The packet that `ftctl explain` asks the programs about.
#pragma once

#include <cstdint>
#include <vector>

#include "ftctl/abi.h"

namespace ftctl {

/// A data packet of this tuple as it would arrive: with its tags, PPPoE session and outer header.
/// `mac`: whom it is for, as struct ftctl_slot has it. The L4 checksum is left zero: the fast path
/// does not verify it.
std::vector<std::uint8_t> synthetic_packet(std::uint64_t mac, const ftctl_tuple &tuple);

} // namespace ftctl
