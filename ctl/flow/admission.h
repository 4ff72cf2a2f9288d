// SPDX-License-Identifier: GPL-2.0-only
// Which conntrack entries may have flows, as far as the entry itself tells: what
// nft_flow_offload_eval() asks, and more where user space knows less.
// No system calls here.
#pragma once

#include <cstdint>
#include <optional>

#include "flow/refusal.h"
#include "netlink/conntrack.h"
#include "util/addr.h"

namespace ftctl {

/// The conntrack mark that means "leave alone".
struct MarkRule {
    std::uint32_t value = 0x80000000; ///< ct mark & mask == value: leave alone
    std::uint32_t mask = 0x80000000;  ///< 0: no mark means anything
};

/// Nothing, or why this entry may not have flows (nft_flow_offload_eval() and what user space has
/// to add to it).
std::optional<Refusal> refuse_entry(const CtEntry &entry, const MarkRule &mark);

/// The entry is one that is over or nearly so: its flows, if any, must go.
bool entry_closed(const CtEntry &entry);

/// A unicast address that ip_forward() or ip6_forward() accepts as source and as destination.
bool forwardable(const IpAddr &addr);

} // namespace ftctl
