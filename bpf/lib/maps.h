/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The maps. All objects share one set: the loader makes them once, pins them, and hands
 * them to each object by descriptor. Sizes of the flow maps are the loader's to choose.
 */
#ifndef FTCTL_LIB_MAPS_H
#define FTCTL_LIB_MAPS_H

#include "common.h"

#include <ftctl/bloom.h>
#include <ftctl/flow4.h>

/* Map config, an array of one: as a variable it costs no lookup. */
struct ftctl_config config SEC(FTCTL_VARIABLE "config");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FTCTL_MAX_PATHS);
	__type(key, __u32);
	__type(value, struct ftctl_path);
} paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FTCTL_MAX_SLOTS);
	__type(key, __u32);
	__type(value, struct ftctl_slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FTCTL_MAX_SLOTS);
	__type(key, __u32);
	__type(value, struct ftctl_stats);
} stats SEC(".maps");

/*
 * CLOCK_MONOTONIC as of the last tick or the one before, like bpf_ktime_get_coarse_ns(), but without a call:
 * jiffies are counted by the same clock (tick_do_update_jiffies64()), so that the two stay as far apart as
 * they are.
 */
static __always_inline __u64 clock_now(const struct ftctl_config *cfg)
{
	return bpf_jiffies64() * cfg->tick_ns + cfg->clock_ns;
}

/*
 * One map per key shape: a plain flow does not pay for the size of a tunnel's key. All but flow4 are made
 * when the first flow of that shape comes, and put into the outer map; no other ever takes its place.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, FTCTL_FLOW4_PROBES);
	__type(key, __u32);
	__type(value, struct ftctl_flow4);
} flow4 SEC(".maps");

#define FLOW_INNER_MAP(inner, outer, map_type, flags, key_type, flow_type)                                   \
	/* sizes, not types: of types that only an inner map mentions clang keeps nothing but the name */    \
	struct inner {                                                                                       \
		__uint(type, map_type);                                                                      \
		__uint(map_flags, flags);                                                                    \
		__uint(max_entries, 1);                                                                      \
		__uint(key_size, sizeof(key_type));                                                          \
		__uint(value_size, sizeof(flow_type));                                                       \
	};                                                                                                   \
	struct {                                                                                             \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                                                    \
		__uint(max_entries, 1);                                                                      \
		__type(key, __u32);                                                                          \
		__array(values, struct inner);                                                               \
	} outer SEC(".maps")

FLOW_INNER_MAP(flow4t, outer_flow4t, BPF_MAP_TYPE_ARRAY, BPF_F_MMAPABLE | BPF_F_INNER_MAP, __u32,
	       struct ftctl_flow4t);
FLOW_INNER_MAP(flow6, outer_flow6, BPF_MAP_TYPE_HASH, BPF_F_NO_PREALLOC, struct ftctl_key6,
	       struct ftctl_flow6);
FLOW_INNER_MAP(flowx, outer_flowx, BPF_MAP_TYPE_HASH, BPF_F_NO_PREALLOC, struct ftctl_keyx,
	       struct ftctl_flowx);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 << (FTCTL_BLOOM_FIRST - 6));
	__type(key, __u32);
	__type(value, __u64);
} flow_bloom SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FTCTL_MAX_SAMPLES);
	__type(key, struct ftctl_sample_key);
	__type(value, struct ftctl_sample);
} samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, FTCTL_EVENT_RING_BYTES);
} events SEC(".maps");

#endif
