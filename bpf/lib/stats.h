/* SPDX-License-Identifier: GPL-2.0-only */
/* Per-slot counters: rx_packets = fast_packets + sum(reasons). */
#ifndef FTCTL_LIB_STATS_H
#define FTCTL_LIB_STATS_H

#include "maps.h"

static __always_inline struct ftctl_stats *stats_get(__u32 slot)
{
	return bpf_map_lookup_elem(&stats, &slot);
}

/* Counts a packet that was not taken. Per-CPU map, softirq context: plain adds. */
static __always_inline void stats_reason(struct ftctl_stats *st, __u32 reason)
{
	if (reason >= FTCTL_PACKET_REASONS)
		reason = FTCTL_R_PATH_DOWN; /* a path of the daemon's that names no packet reason */
	st->reasons[reason]++;
}

static __always_inline void stats_fast(struct ftctl_stats *st, __u64 bytes)
{
	st->fast_packets++;
	st->fast_bytes += bytes;
}

/* Atomic, as several processors may have packets of one flow. */
static __always_inline void count_add(struct ftctl_count *count, __u32 packets, __u64 bytes)
{
	__u64 add = (__u64)packets << FTCTL_COUNT_BYTES | bytes;
	__u64 was = __sync_fetch_and_add(&count->low, add), now = was + add;

	if (unlikely((__s64)(now & ~was) < 0)) {
		__u64 full = (now & ((1ULL << FTCTL_COUNT_BYTES) - 1)) >> 32;

		__sync_fetch_and_add(&count->high, (1ULL << 32) + full);
		__sync_fetch_and_add(&count->low, -((1ULL << 63) + (full << 32)));
	}
}

#endif
