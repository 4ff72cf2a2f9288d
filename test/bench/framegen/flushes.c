// SPDX-License-Identifier: GPL-2.0-only
#include "framegen.h"

#include <bpf/btf.h>
#include <unistd.h>

/* Offset of a member of struct net_device in the running kernel, in bytes; negative when that is not known.
 */
static int device_offset(const char *member)
{
    struct btf *btf = btf__load_vmlinux_btf();
    int found = -1, id = btf ? btf__find_by_name_kind(btf, "net_device", BTF_KIND_STRUCT) : -1;
    const struct btf_type *type = id > 0 ? btf__type_by_id(btf, (__u32)id) : NULL;

    for (__u32 i = 0; type && i < btf_vlen(type); i++)
        if (strcmp(btf__name_by_offset(btf, btf_members(type)[i].name_off), member) == 0)
            found = (int)btf_member_bit_offset(type, i) / 8;
    btf__free(btf);
    return found;
}

/* Counts in this process's softirqs; there the generator's own frames come from the loopback device. */
int flushes_open(void)
{
    int map = bpf_map_create(BPF_MAP_TYPE_ARRAY, "framegen", 4, sizeof(struct flushes), 1, NULL);
    int offset = device_offset("ifindex");
    int program = map < 0 || offset < 0 ? -1 : load_flush_counter(map, offset, getpid());

    if (program < 0 || bpf_raw_tracepoint_open("xdp_devmap_xmit", program) < 0) {
        fail("counting flushes", errno);
        return -1;
    }
    return map;
}

struct flushes flushes_read(int map)
{
    struct flushes flushes = {0};
    __u32 zero = 0;

    (void)bpf_map_lookup_elem(map, &zero, &flushes);
    return flushes;
}
