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

/*
 * struct xdp_buff or struct sk_buff of a context; costs nothing. Since 6.2: the programs are compiled with
 * and without, as to search a kernel in vain for a kfunc takes CAP_SYS_ADMIN (module BTF).
 */
#ifdef FTCTL_WITHOUT_KFUNCS
#define KERNEL_HAS_CTX 0
static __always_inline void *bpf_cast_to_kern_ctx(void *ctx)
{
	return ctx; /* never called */
}
#else
#define KERNEL_HAS_CTX 1
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;
#endif

/* The little of the kernel's types that is needed; relocated when loaded (CO-RE). */
typedef struct {
	int counter;
} __attribute__((preserve_access_index)) atomic_t;

struct netns_ipv4 {
	atomic_t rt_genid;
} __attribute__((preserve_access_index));

struct net {
	__u64 net_cookie;
	struct netns_ipv4 ipv4;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

struct xdp_rxq_info {
	struct net_device *dev;
} __attribute__((preserve_access_index));

struct xdp_buff {
	struct xdp_rxq_info *rxq;
	__u32 flags;
} __attribute__((preserve_access_index));
#define XDP_BUFF_FRAGS 1 /* XDP_FLAGS_HAS_FRAGS */

struct sk_buff {
	struct net_device *dev;
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

/*
 * A number that the kernel changes with every change of IPv4 routes, rules, addresses and devices that may
 * change the result of a lookup (rt_cache_flush()): its own routes in sockets are valid as long as it is the
 * same. IPv6 has no such number: a route that goes does not change fib6_sernum.
 */
static __always_inline __u32 kernel_route_gen(const struct net_device *dev)
{
	return (__u32)dev->nd_net.net->ipv4.rt_genid.counter;
}

#endif
