/* SPDX-License-Identifier: GPL-2.0-only */
/* Headers, helpers and read-only data that every program starts from. */
#ifndef FTCTL_LIB_COMMON_H
#define FTCTL_LIB_COMMON_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <stddef.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <ftctl/abi.h>
#include <ftctl/ecn.h>

#define TCI_VID	      0x0fff
#define TCI_PCP_SHIFT 13

#define IP_RF	  0x8000 /* reserved bit */
#define IP_DF	  0x4000
#define IP_MF	  0x2000
#define IP_OFFSET 0x1fff
#define IP_HLEN	  20 /* headers with options go to the stack */

#ifndef likely
#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

/*
 * Set by the loader, per program instance. They are constants to the verifier, so a dry
 * instance has the side effects compiled out.
 */
const volatile __u32 cfg_slot = 0;    /* index into slots and stats */
const volatile __u32 cfg_ifindex = 0; /* the device this instance is attached to */
const volatile __u32 cfg_homes4 = 1;  /* of map flow4 (flow4.h) */
const volatile __u32 cfg_homes4t = 1; /* of map flow4t */
const volatile __u32 cfg_dry = 0;     /* 1: run for `explain`: no flow, sample or event is touched */

/*
 * Reads a packet pointer from the context. In assembly, since clang knows the field as 32 bits wide
 * and may zero-extend it, after which the verifier takes it for a number.
 */
#define CTX_POINTER(ctx, field)                                                                              \
	({                                                                                                   \
		void *__ptr;                                                                                 \
		asm volatile("%0 = *(u32 *)(%1 + %2)"                                                        \
			     : "=r"(__ptr)                                                                   \
			     : "r"(ctx), "i"(offsetof(typeof(*(ctx)), field)));                              \
		__ptr;                                                                                       \
	})

/*
 * Copies `len` bytes, an even constant, by words: of memory that may be unaligned clang would copy
 * single bytes. (Packets are unaligned anyway, and kernels with a BPF JIT worth having allow it.)
 */
static __always_inline void copy_words(void *to, const void *from, __u32 len)
{
	__u32 i = 0;

#pragma unroll
	for (; i + 4 <= len; i += 4)
		*(__u32 *)(to + i) = *(const __u32 *)(from + i);
	if (i < len)
		*(__u16 *)(to + i) = *(const __u16 *)(from + i);
}

/*
 * A reason, not loaded before the branch that needs it: clang would load one ahead of every check, which
 * the packets that pass all checks pay for.
 */
static __always_inline __u32 because(__u32 reason)
{
	asm volatile("" : "+r"(reason));
	return reason;
}

static __always_inline __u32 ticks(__u64 ns)
{
	return (__u32)(ns >> FTCTL_TICK_SHIFT);
}

#endif
