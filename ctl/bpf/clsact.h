// SPDX-License-Identifier: GPL-2.0-only
// TC filters of a clsact qdisc: where the kernel has no tcx, or other filters must come first.
#pragma once

#include <cstdint>
#include <string>

#include "util/result.h"

namespace ftctl::bpf {

/// Ours are known by these. The lowest priority there is: every other filter sees the packet first.
/// (49152 and below is where the kernel numbers filters that came without a priority.)
inline constexpr std::uint32_t kFilterHandle = 0xf7c7;
inline constexpr std::uint32_t kFilterPriority = 65535;

/// What stands at a device's clsact hooks.
struct ClsactState {
    bool ours = false;            ///< a filter with our handle and priority, in either direction
    bool foreign_ingress = false; ///< filters of others
    bool foreign_egress = false;
};
/// Nothing set when there is no such qdisc. Only an error when the kernel cannot be asked.
Result<ClsactState> clsact_state(std::uint32_t ifindex);

/// Makes the qdisc. true: made; false: one was there. `for_egress`: an ingress qdisc will not do.
Result<bool> clsact_create(std::uint32_t ifindex, const std::string &device, bool for_egress);
/// Removes the qdisc when no filter is left in it; fine when it is gone.
Status clsact_destroy_if_empty(std::uint32_t ifindex);

/// Adds our filter, or replaces its program in place.
Status clsact_attach(std::uint32_t ifindex, const std::string &device, bool egress, int prog_fd);
/// Removes our filter only; fine when it, the qdisc or the device is gone.
Status clsact_detach(std::uint32_t ifindex, bool egress);
/// The program of our filter; 0 when there is none.
std::uint32_t clsact_program(std::uint32_t ifindex, bool egress);

} // namespace ftctl::bpf
