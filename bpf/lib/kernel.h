/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What kernels have since when, where CO-RE cannot ask for it (flags of anonymous enums, kfuncs), and what
 * a program's context is inside of the kernel. Branches on these are gone once the program is loaded.
 */
#ifndef FTCTL_LIB_KERNEL_H
#define FTCTL_LIB_KERNEL_H

#include "common.h"

#include <bpf/bpf_core_read.h>

extern int LINUX_KERNEL_VERSION __kconfig;

#define KERNEL_SINCE(major, minor) (LINUX_KERNEL_VERSION >= (((major) << 16) + ((minor) << 8)))

/* struct xdp_buff or struct sk_buff of a context; costs nothing. */
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;
#define KERNEL_HAS_CTX KERNEL_SINCE(6, 2)

/* The little of the kernel's types that is needed; relocated when loaded (CO-RE). */
struct xdp_buff {
	__u32 flags;
} __attribute__((preserve_access_index));
#define XDP_BUFF_FRAGS 1 /* XDP_FLAGS_HAS_FRAGS */

struct sk_buff {
	__u8 ip_summed : 2;
} __attribute__((preserve_access_index));

/* sk_buff.ip_summed: who knows the sum of the packet. */
enum {
	CHECKSUM_NONE,
	CHECKSUM_UNNECESSARY,
	CHECKSUM_COMPLETE, /* the device has summed it: skb->csum */
	CHECKSUM_PARTIAL,  /* the device will: the field has the pseudo header's */
	CHECKSUM_UNKNOWN,  /* this kernel does not tell */
};

#endif
