// SPDX-License-Identifier: GPL-2.0-only
#include "bpf/objects.h"

#include <cerrno>
#include <cstdlib>
#include <memory>

#include <bpf/btf.h>

#include "tc_old.skel.h"
#include "xdp_old.skel.h"

namespace ftctl::bpf {
namespace {

// By BTF, not by version: that is where libbpf looks for it.
bool kernel_has_kfuncs()
{
    static const bool has = [] {
        const std::unique_ptr<btf, void (*)(btf *)> kernel(btf__load_vmlinux_btf(), btf__free);
        return kernel && btf__find_by_name_kind(kernel.get(), "bpf_cast_to_kern_ctx", BTF_KIND_FUNC) > 0;
    }();
    return has;
}

// SKELETON__open(), or what it does with another object's bytes.
template <typename Skeleton>
Skeleton *open_either(int (*create)(Skeleton *), const void *(*old_bytes)(std::size_t *))
{
    if (kernel_has_kfuncs())
        return Skeleton::open();
    auto *skeleton = static_cast<Skeleton *>(std::calloc(1, sizeof(Skeleton))); // destroy() frees it
    if (skeleton == nullptr) {
        errno = ENOMEM;
        return nullptr;
    }
    int err = create(skeleton);
    if (err == 0) {
        skeleton->skeleton->data = old_bytes(&skeleton->skeleton->data_sz);
        err = bpf_object__open_skeleton(skeleton->skeleton, nullptr);
    }
    if (err == 0)
        return skeleton;
    Skeleton::destroy(skeleton);
    errno = -err;
    return nullptr;
}

} // namespace

template <>
ftctl_xdp *open_object<ftctl_xdp>()
{
    return open_either<ftctl_xdp>(ftctl_xdp__create_skeleton, ftctl_xdp_old__elf_bytes);
}

template <>
ftctl_tc *open_object<ftctl_tc>()
{
    return open_either<ftctl_tc>(ftctl_tc__create_skeleton, ftctl_tc_old__elf_bytes);
}

} // namespace ftctl::bpf
