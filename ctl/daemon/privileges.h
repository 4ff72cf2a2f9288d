// SPDX-License-Identifier: GPL-2.0-only
// What a daemon born as root keeps.
#pragma once

#include "util/result.h"

namespace ftctl {

/// Gives up every capability but CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_NET_RAW (raw sockets of
/// declared tunnels), for good: the bounding set is cut as well, and no_new_privs set.
Status drop_privileges();

} // namespace ftctl
