// SPDX-License-Identifier: GPL-2.0-only
// Loading: from the skeletons embedded in the binary to program descriptors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bpf/maps.h"
#include "util/fd.h"
#include "util/result.h"

namespace ftctl::bpf {

/// Read-only data of a program instance.
struct InstanceParams {
    std::uint32_t slot = FTCTL_SLOT_SCRATCH;
    std::uint32_t ifindex = 0;
    bool dry = false; ///< for explain: no side effects on flows, samples and events
};

/// A loaded instance for one device. The descriptors are all that keeps it.
struct Instance {
    Fd ingress; ///< xdp_ingress or tc_ingress
    Fd egress;  ///< tc_egress
};

/// Loads an instance for `hook`. Errors carry the verifier's last word.
Result<Instance> load_instance(const Maps &maps, ftctl_hook hook, const InstanceParams &params);
/// Programs that user space runs.
struct EditPrograms {
    Fd flow_edit; ///< changes a flow in place
    Fd clock_set; ///< sets config.clock_ns
};
Result<EditPrograms> load_edit(const Maps &maps);
/// Runs that program; 0 or a negative errno.
int run_clock_set(int fd);
/// A program at a kernel tracepoint. They count frames that an XDP egress device did not take.
struct Tracepoint {
    std::string name; ///< of the program
    Fd program;
};
/// Loads those that the XDP object has; needs kernel BTF.
Result<std::vector<Tracepoint>> load_tracepoints(const Maps &maps);

/// What every failure to load for want of privilege says.
inline constexpr const char *kPrivilegeHint = "run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON";

} // namespace ftctl::bpf
