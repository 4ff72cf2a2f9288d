// SPDX-License-Identifier: GPL-2.0-only
// Which conntrack entries may have flows, as far as the entry itself tells (semantics 1.1, 1.6).
// No system calls here.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "flow/refusal.h"
#include "netlink/conntrack.h"
#include "util/addr.h"

namespace ftctl {

/// One entry of the operator's policy; what is unset matches everything. The first match decides.
struct PolicyRule {
    std::optional<std::uint8_t> proto;
    Prefix src; ///< of the original direction, as received
    Prefix dst;
    std::optional<std::uint16_t> sport;
    std::optional<std::uint16_t> dport;
    bool offload = true; ///< false: skip

    [[nodiscard]] bool matches(const Tuple &orig) const;
};

struct AdmissionPolicy {
    std::uint32_t mark_value = 0x80000000; ///< ct mark & mark_mask == mark_value: leave alone
    std::uint32_t mark_mask = 0x80000000;  ///< 0: no mark means anything
    std::vector<PolicyRule> rules;
};

/// Nothing, or why this entry may not have flows (nft_flow_offload_eval() and what user space has
/// to add to it).
std::optional<Refusal> refuse_entry(const CtEntry &entry, const AdmissionPolicy &policy);

/// The entry is one that is over or nearly so: its flows, if any, must go.
bool entry_closed(const CtEntry &entry);

/// A unicast address that ip_forward() accepts as source or destination (semantics 4.1, 4.4).
bool forwardable(const IpAddr &addr);

} // namespace ftctl
