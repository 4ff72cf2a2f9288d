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

// What SKELETON__open() does, with another object's bytes.
template <typename Skeleton>
Skeleton *open_with(int (*create)(Skeleton *), const void *bytes, std::size_t size)
{
    auto *skeleton = static_cast<Skeleton *>(std::calloc(1, sizeof(Skeleton))); // destroy() frees it
    if (skeleton == nullptr) {
        errno = ENOMEM;
        return nullptr;
    }
    int err = create(skeleton);
    if (err == 0) {
        skeleton->skeleton->data = bytes;
        skeleton->skeleton->data_sz = size;
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
    if (kernel_has_kfuncs())
        return ftctl_xdp__open();
    std::size_t size = 0;
    const void *bytes = ftctl_xdp_old__elf_bytes(&size);
    return open_with<ftctl_xdp>(ftctl_xdp__create_skeleton, bytes, size);
}

template <>
ftctl_tc *open_object<ftctl_tc>()
{
    if (kernel_has_kfuncs())
        return ftctl_tc__open();
    std::size_t size = 0;
    const void *bytes = ftctl_tc_old__elf_bytes(&size);
    return open_with<ftctl_tc>(ftctl_tc__create_skeleton, bytes, size);
}

} // namespace ftctl::bpf
