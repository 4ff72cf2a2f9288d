// SPDX-License-Identifier: GPL-2.0-only
// From the device that IP leaves by down to the one that frames leave by: PPPoE, VLANs, bridges. The
// kernel's dev_fill_forward_path(), asked of the outside.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "flow/refusal.h"
#include "netlink/pppoe.h"
#include "netlink/route.h"
#include "util/addr.h"

namespace ftctl {

class Fib;

/// What lies below. The same headers, turned round, stand before packets that come in this way.
struct ForwardPath {
    std::uint32_t oif = 0;      ///< attached device that the frames leave by
    std::uint32_t smac_dev = 0; ///< device whose MAC address they come from
    bool upper_mac = false;     ///< ... which is not oif's own (FTCTL_F_UPPER)
    std::vector<VlanTag> tags;  ///< pushed; outermost first, two at most
    std::optional<PppoeSession> pppoe;
    std::optional<Mac> station;         ///< below a bridge: whose port was asked for
    std::vector<std::uint32_t> devices; ///< all of them, from the top down to oif

    auto operator<=>(const ForwardPath &) const = default;
};

/// The path below `device`, for frames to `next_hop`, a neighbour there. Refuses what cannot be told
/// exactly, or is not attached, and names it.
Decision<ForwardPath> forward_path(const Link &device, const IpAddr &next_hop, Fib &fib);

} // namespace ftctl
