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

struct rt6_statistics {
	__u32 fib_discarded_routes;
} __attribute__((preserve_access_index));

struct fib_rules_ops {
	__u32 fib_rules_seq;
} __attribute__((preserve_access_index));

struct netns_ipv6 {
	struct rt6_statistics *rt6_stats;
	bool fib6_has_custom_rules;
	struct fib_rules_ops *fib6_rules_ops;
	atomic_t fib6_sernum;
} __attribute__((preserve_access_index));

struct net {
	__u64 net_cookie;
	struct netns_ipv4 ipv4;
	struct netns_ipv6 ipv6;
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
 * A number that is another one after every change of routes, rules, addresses and devices that may change
 * the result of a lookup. false: there is none.
 *
 * IPv4: rt_cache_flush() makes it; the kernel's own routes in sockets are valid as long as it is the same.
 *
 * IPv6 has four that only ever grow, and so does their sum: routes added and replaced (fib6_new_sernum()),
 * routes gone (fib6_del_route()), rules gone, and, for devices that have both families, IPv4's. A rule counts
 * before it is in place (fib_newrule()), so that with rules of the operator's nothing is known.
 */
static __always_inline bool kernel_route_gen(const struct net_device *dev, bool v6, __u32 *gen)
{
	const struct net *net = dev->nd_net.net;

	*gen = (__u32)net->ipv4.rt_genid.counter;
	if (!v6)
		return true;
	if (!bpf_core_field_exists(net->ipv6.fib6_rules_ops) || net->ipv6.fib6_has_custom_rules)
		return false;
	*gen += (__u32)net->ipv6.fib6_sernum.counter + net->ipv6.rt6_stats->fib_discarded_routes +
		net->ipv6.fib6_rules_ops->fib_rules_seq;
	return true;
}

#endif
