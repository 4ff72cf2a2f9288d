// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/privileges.h"

#include <cerrno>

#include <cap-ng.h>
#include <linux/capability.h>
#include <sys/prctl.h>

namespace ftctl {

Status drop_privileges()
{
    capng_clear(CAPNG_SELECT_BOTH);
    if (capng_updatev(CAPNG_ADD,
                      static_cast<capng_type_t>(CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET),
                      CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_NET_RAW, -1) != 0)
        return fail("drop privileges", "libcap-ng does not know the capabilities");
    if (const int rc = capng_apply(CAPNG_SELECT_BOTH); rc != 0)
        return fail("drop privileges", "capng_apply: " + std::to_string(rc),
                    "start ftctld as root, or with CAP_SETPCAP");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return fail_errno("drop privileges", errno);
    return {};
}

} // namespace ftctl
