// SPDX-License-Identifier: GPL-2.0-only
// From a conntrack entry and its ways to what stands in the flow maps.
#pragma once

#include <cstdint>

#include "flow/ways.h"
#include "ftctl/abi.h"
#include "netlink/conntrack.h"

namespace ftctl {

/// One direction, ready to be inserted once its path has an index.
struct FlowPlan {
    ftctl_tuple key{};
    ftctl_addr new_src{}; ///< as the packet leaves
    ftctl_addr new_dst{};
    std::uint16_t new_sport = 0; ///< be
    std::uint16_t new_dport = 0;
    std::uint16_t addr_delta = 0; ///< see struct ftctl_flow
    std::uint16_t port_delta = 0;
    bool nat = false;
    bool upper = false; ///< FTCTL_F_UPPER
};

/// How packets of this tuple arrive when they come in by the way that others leave by.
ftctl_tuple flow_key(const Tuple &in, const Way &way_in);

/// The direction `reply` of the connection: packets come in by the other direction's way.
FlowPlan plan_flow(const CtEntry &entry, const Ways &ways, bool reply);

/// Sum of (~old + new) over 16-bit words as they stand in memory, folded. For one word and for
/// addresses.
std::uint16_t csum_delta16(std::uint16_t from, std::uint16_t to);
std::uint16_t csum_delta(const ftctl_addr &from, const ftctl_addr &to);
std::uint16_t csum_add(std::uint16_t a, std::uint16_t b);

/// What a path depends on beside its way.
struct Egress {
    bool up = false;  ///< way.oif
    bool xdp = false; ///< it is attached there
    /// MTU of way.oif; counts at XDP, where the devmap drops frames that exceed it by two tags.
    std::uint32_t mtu = 0;
    bool priority_by_tos = true; ///< net.ipv4.ip_forward_update_priority
};

/// The body of the path for a way. dmac zero and flags without VALID while the neighbour is unknown.
ftctl_path_body plan_path(const Way &way, const Mac &smac, const Mac *dmac, const Egress &egress);

} // namespace ftctl
