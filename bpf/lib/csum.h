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
	const __u16 *word = (const __u16 *)ip;
	__u32 sum = 0;

#pragma unroll
	for (int i = 0; i < IP_HLEN / 2; i++)
		sum += word[i];
	return csum_fold(sum);
}

#endif
