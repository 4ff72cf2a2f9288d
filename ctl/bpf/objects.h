// SPDX-License-Identifier: GPL-2.0-only
// The objects that are embedded in the binary, in the form that this kernel takes.
#pragma once

#include "ftctl/abi.h" // the skeletons name its types

#include "edit.skel.h"
#include "tc.skel.h"
#include "xdp.skel.h"

namespace ftctl::bpf {

/// Opens ftctl_xdp or ftctl_tc; nullptr and errno. Kernels before 6.2 get objects that use no kfunc: libbpf
/// would look for it in all modules' BTF, which takes CAP_SYS_ADMIN. The skeleton is the same for both.
template <typename Skeleton>
Skeleton *open_object();

} // namespace ftctl::bpf
