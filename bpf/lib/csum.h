/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Internet checksums. All updates are incremental (RFC 1624, equation 3), so that a wrong
 * checksum stays wrong by the same amount, as on the slow path.
 */
#ifndef FTCTL_LIB_CSUM_H
#define FTCTL_LIB_CSUM_H

#include "common.h"

static __always_inline __u16 csum_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

/* `check` after words changed by `delta`, the sum of (~old + new) over them. */
static __always_inline __u16 csum_update(__u16 check, __u32 delta)
{
	return (__u16)~csum_fold((__u16)~check + delta);
}

/* The change of one 16-bit word. */
static __always_inline __u32 csum_delta16(__u16 from, __u16 to)
{
	return (__u16)~from + (__u32)to;
}

/* Sum over a 20-byte IPv4 header; 0xffff when its checksum is right (ip_fast_csum). */
static __always_inline __u16 csum_iphdr(const struct iphdr *ip)
{
	const __u32 *word = (const __u32 *)ip;
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < IP_HLEN / 4; i++)
		sum += word[i];
	sum = (sum & 0xffffffff) + (sum >> 32); /* at most 33 bits: csum_fold() wants a carry less */
	return csum_fold((__u32)(sum & 0xffff) + (__u32)(sum >> 16));
}

#endif
