/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The early filter: the operator's rules, before anything else is asked of a packet. include/ftctl/filter.h
 * says how they are laid out.
 *
 * Needs the context layer (ctx_xdp.h or ctx_tc.h) to be included first.
 */
#ifndef FTCTL_LIB_FILTER_H
#define FTCTL_LIB_FILTER_H

#include <ftctl/filter.h>

#include "headers.h"

/* Inner maps name sizes: of types that only they mention clang keeps nothing but the name. */
struct filter_prefixes_inner {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(struct ftctl_filter_key));
	__uint(value_size, sizeof(struct ftctl_filter_hit));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct filter_prefixes_inner);
} filter_prefixes SEC(".maps");

struct filter_sets_inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct ftctl_filter_set));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct filter_sets_inner);
} filter_sets SEC(".maps");

struct filter_counts_inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct ftctl_filter_count));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct filter_counts_inner);
} filter_counts SEC(".maps");

/* The bitmaps that one header chooses. */
struct filter_choice {
	const struct ftctl_filter_mask *src;
	const struct ftctl_filter_mask *dst;
	const struct ftctl_filter_mask *sport;
	const struct ftctl_filter_mask *dport;
	const struct ftctl_filter_mask *proto;
	const struct ftctl_filter_mask *slot;
};

static __always_inline const struct ftctl_filter_mask *filter_mask(const struct ftctl_filter_set *set,
								   __u32 index)
{
	return &set->masks[index & (FTCTL_FILTER_MASKS - 1)];
}

/* Index of the lowest bit that is set; clang 14 has no way to say that for BPF. */
static __always_inline __u32 filter_lowest_bit(__u64 word)
{
	__u32 bit = 0;

#pragma unroll
	for (__u32 width = 32; width; width /= 2) {
		if (word << (64 - width))
			continue;
		word >>= width;
		bit += width;
	}
	return bit;
}

/* The first general rule in all bitmaps. The summaries leave few words to look at. */
static __always_inline __u32 filter_general(const struct ftctl_filter_set *set, const struct filter_choice *c)
{
	__u64 summary = c->src->summary & c->dst->summary & c->sport->summary & c->dport->summary &
			c->proto->summary & c->slot->summary;

	for (__u32 i = 0; i < FTCTL_FILTER_WORDS; i++) {
		__u64 both;

		if (!(summary >> i))
			break;
		if (!(summary >> i & 1))
			continue;
		both = c->src->word[i] & c->dst->word[i] & c->sport->word[i] & c->dport->word[i] &
		       c->proto->word[i] & c->slot->word[i];
		if (both) {
			__u32 bit = i * 64 + filter_lowest_bit(both);

			return set->rule[bit & (FTCTL_FILTER_GENERAL - 1)];
		}
	}
	return FTCTL_FILTER_NONE;
}

/* The verdict of the first rule for one header; `inner`: the one inside of a tunnel's. */
static __always_inline __u32 filter_header(struct headers_room *room, void *prefixes,
					   const struct ftctl_filter_set *set, const struct headers *h,
					   __u32 inner)
{
	__u32 first = FTCTL_FILTER_NONE, mask[2] = {set->any_addr[0], set->any_addr[1]};
	struct filter_choice choice;
	__u32 general;

#pragma unroll
	for (int dst = 0; dst < 2; dst++) {
		__u32 kind = ftctl_filter_kind(h->family, dst);
		const struct ftctl_addr *addr = dst ? &h->dst : &h->src;
		const struct ftctl_filter_hit *hit;

		if (!(set->kinds >> kind & 1) || !ftctl_filter_may_cover(set, kind, bpf_ntohl(addr->w[0])))
			continue;
		room->key.prefixlen = 32 + (h->family == 6 ? 128 : 32);
		room->key.kind = bpf_htonl(kind);
		room->key.addr = *addr;
		hit = bpf_map_lookup_elem(prefixes, &room->key);
		if (!hit)
			continue;
		mask[dst] = hit->mask;
		if (!inner && hit->first < first) /* rules for what is inside are general ones */
			first = hit->first;
	}
	/* they are in order: none is before the first of them */
	if (!set->general || set->rule[0] > first)
		return first;
	choice.src = filter_mask(set, mask[0]);
	choice.dst = filter_mask(set, mask[1]);
	choice.sport = filter_mask(set, h->ports ? set->port[0][bpf_ntohs(h->sport)] : set->no_port[0]);
	choice.dport = filter_mask(set, h->ports ? set->port[1][bpf_ntohs(h->dport)] : set->no_port[1]);
	choice.proto = filter_mask(set, set->proto[inner][h->proto]);
	choice.slot = filter_mask(set, set->slot[cfg_slot & (FTCTL_MAX_SLOTS - 1)]);
	general = filter_general(set, &choice);
	return general < first ? general : first;
}

static __always_inline void filter_count(const struct ftctl_filter_set *set, __u32 which, __u32 rank,
					 __u64 bytes)
{
	__u32 stripes = set->stripes ? set->stripes : 1;
	__u32 index = bpf_get_smp_processor_id() % stripes * set->rules + rank;
	struct ftctl_filter_count *count;
	void *counts;

	counts = bpf_map_lookup_elem(&filter_counts, &which);
	if (!counts)
		return;
	count = bpf_map_lookup_elem(counts, &index);
	if (!count)
		return;
	__sync_fetch_and_add(&count->packets, 1);
	__sync_fetch_and_add(&count->bytes, bytes);
}

/* 1: a rule drops the packet whose headers were found. A function of its own as headers_find() is. */
__attribute__((noinline)) int filter_drops(void)
{
	__u32 zero = 0, which, first;
	struct headers_room *room = bpf_map_lookup_elem(&headers_room, &zero);
	const struct ftctl_filter_set *set;
	void *prefixes, *sets;

	if (!room)
		return 0;
	which = config.filter - 1; /* read once: all of this packet's rules are of one set */
	asm volatile("" : "+r"(which));
	prefixes = bpf_map_lookup_elem(&filter_prefixes, &which);
	sets = bpf_map_lookup_elem(&filter_sets, &which);
	if (!prefixes || !sets)
		return 0;
	set = bpf_map_lookup_elem(sets, &zero);
	if (!set)
		return 0;
	first = filter_header(room, prefixes, set, &room->ip, 0);
	if (set->inner && room->inner.family) {
		__u32 inside = filter_header(room, prefixes, set, &room->inner, 1);

		if (inside < first)
			first = inside;
	}
	if (first == FTCTL_FILTER_NONE)
		return 0;
	if (!cfg_dry)
		filter_count(set, which, first >> 1, room->ip.total);
	return first & 1;
}

#endif
