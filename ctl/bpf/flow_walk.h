// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <functional>

#include "bpf/datapath.h"

namespace ftctl::bpf {

/// The walk for kernels that have no batch operations; here for its test. A flow may be seen twice when
/// another one is deleted meanwhile.
Status walk_flows_by_key(int fd, ftctl_shape shape, std::uint32_t max_entries,
                         const std::function<bool(const FlowEntry &)> &handler);

} // namespace ftctl::bpf
