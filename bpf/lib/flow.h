/* SPDX-License-Identifier: GPL-2.0-only */
/* Flows and paths: lookup, state, the other direction, events. */
#ifndef FTCTL_LIB_FLOW_H
#define FTCTL_LIB_FLOW_H

#include "maps.h"

static __always_inline bool addr_equal(const struct ftctl_addr *a, const struct ftctl_addr *b)
{
	return !((a->w[0] ^ b->w[0]) | (a->w[1] ^ b->w[1]) | (a->w[2] ^ b->w[2]) | (a->w[3] ^ b->w[3]));
}

static __always_inline bool tuple_equal(const struct ftctl_tuple *a, const struct ftctl_tuple *b)
{
	__u32 differ = 0;

#pragma unroll
	for (unsigned int i = 0; i < sizeof(*a) / sizeof(__u32); i++)
		differ |= ftctl_tuple_word(a, i) ^ ftctl_tuple_word(b, i);
	return !differ;
}

/* A flow as found: `v6` is the same entry where its map holds struct ftctl_flow6, else NULL. */
struct flow_ref {
	struct ftctl_flow *flow;
	struct ftctl_flow6 *v6;
};

/*
 * One call for each map: clang would join them, and then the verifier cannot replace the call by the
 * map's own lookup.
 */
#define FLOW_LOOKUP(map, key)                                                                                \
	({                                                                                                   \
		void *__found = bpf_map_lookup_elem(map, key);                                               \
		asm volatile("" : "+r"(__found));                                                            \
		__found;                                                                                     \
	})

/* No flow of that shape has come yet: there is no map. */
#define FLOW_LOOKUP_INNER(outer, key)                                                                        \
	({                                                                                                   \
		__u32 __first = 0;                                                                           \
		void *__inner = FLOW_LOOKUP(&(outer), &__first);                                             \
		__inner ? FLOW_LOOKUP(__inner, key) : NULL;                                                  \
	})

/* A function of its own: inlined, all words of the tuple would want a register. */
static __attribute__((noinline)) struct ftctl_flow6 *flowx_find(const struct ftctl_tuple *tuple)
{
	struct ftctl_keyx key = {ftctl_tuple_digest(tuple)};
	struct ftctl_flowx *found = FLOW_LOOKUP_INNER(outer_flowx, &key);

	return found && tuple_equal(&found->tuple, tuple) ? &found->flow : NULL;
}

/*
 * The flow at that place of flow4, or of `map`, a flow4t, if it is that tuple's; else NULL, and `free` tells
 * whether no other place can have it.
 */
static __always_inline struct ftctl_flow *flow4_at(void *map, bool ipip, const struct ftctl_tuple *tuple,
						   __u32 index, bool *free)
{
	struct ftctl_key4 *key = FLOW_LOOKUP(map, &index); /* how either entry begins */
	struct ftctl_flow *flow;
	__u64 differ;

	*free = false;
	if (!key)
		return NULL;
	differ = key->iif_proto ^ ftctl_tuple_word(tuple, FTCTL_WORD_PORTS + 1);
	differ |= key->src ^ ftctl_tuple_word(tuple, FTCTL_WORD_SRC);
	differ |= key->dst ^ ftctl_tuple_word(tuple, FTCTL_WORD_SRC + 4);
	differ |= *(__u32 *)&key->sport ^ ftctl_tuple_word(tuple, FTCTL_WORD_PORTS);
	if (ipip) {
		struct ftctl_flow4t *entry = (void *)key;

		differ |= entry->key.outer_src ^ ftctl_tuple_word(tuple, FTCTL_WORD_OUTER);
		differ |= entry->key.outer_dst ^ ftctl_tuple_word(tuple, FTCTL_WORD_OUTER + 4);
		flow = &entry->flow;
	} else {
		flow = &((struct ftctl_flow4 *)key)->flow;
	}
	if (differ) {
		*free = key->iif_proto == FTCTL_FLOW4_FREE;
		return NULL;
	}
	/* Nothing of the flow is read ahead of its key: the address depends on it. */
	asm volatile("%0 += %1" : "+r"(flow) : "r"(differ));
	return flow;
}

/* NULL: no such flow has come yet. */
static __always_inline void *flow4t_map(void)
{
	__u32 first = 0;

	return FLOW_LOOKUP(&outer_flow4t, &first);
}

static __always_inline struct ftctl_flow *flow4_after(void *map, bool ipip, const struct ftctl_tuple *tuple,
						      __u32 home)
{
	bool free;

	for (__u32 i = 1; i < FTCTL_FLOW4_PROBES; i++) {
		struct ftctl_flow *flow = flow4_at(map, ipip, tuple, home + i, &free);

		if (flow || free)
			return flow;
	}
	return NULL;
}

/* Where a flow may stand beside its home. Functions of their own: three of four are at home. */
static __attribute__((noinline)) struct ftctl_flow *flow4_behind(const struct ftctl_tuple *tuple, __u32 home)
{
	return flow4_after(&flow4, false, tuple, home);
}

static __attribute__((noinline)) struct ftctl_flow *flow4t_behind(const struct ftctl_tuple *tuple, __u32 home)
{
	void *map = flow4t_map();

	return map ? flow4_after(map, true, tuple, home) : NULL;
}

/* false: there is no such flow. `hash`: ftctl_bloom_hash() */
static __always_inline bool flow_may_be(const struct ftctl_config *cfg, __u64 hash)
{
	__u32 bit = ftctl_bloom_bit(hash, cfg->bloom_level), index = bit / 64;
	__u64 *bits = bpf_map_lookup_elem(&flow_bloom, &index);

	return bits && *bits >> bit % 64 & 1;
}

static __always_inline bool flow_find(const struct ftctl_tuple *tuple, __u64 hash, struct flow_ref *ref)
{
	struct ftctl_key6 key6;
	__u32 home;
	bool free;
	void *map;

	ref->v6 = NULL;
	switch (ftctl_shape_of(tuple)) {
	case FTCTL_SHAPE_4:
		home = ftctl_flow4_home(hash, cfg_homes4);
		ref->flow = flow4_at(&flow4, false, tuple, home, &free);
		if (likely(ref->flow))
			return true;
		if (likely(free))
			return false;
		ref->flow = flow4_behind(tuple, home);
		if (likely(ref->flow))
			return true;
		ref->v6 = flowx_find(tuple);
		break;
	case FTCTL_SHAPE_4T:
		map = flow4t_map();
		if (!map)
			return false;
		home = ftctl_flow4_home(hash, cfg_homes4t);
		ref->flow = flow4_at(map, true, tuple, home, &free);
		if (likely(ref->flow))
			return true;
		if (likely(free))
			return false;
		ref->flow = flow4t_behind(tuple, home);
		if (likely(ref->flow))
			return true;
		ref->v6 = flowx_find(tuple);
		break;
	case FTCTL_SHAPE_6:
		ftctl_key6_of(tuple, &key6);
		ref->v6 = FLOW_LOOKUP_INNER(outer_flow6, &key6);
		break;
	default:
		ref->v6 = flowx_find(tuple);
		break;
	}
	if (!ref->v6)
		return false;
	ref->flow = &ref->v6->flow;
	return true;
}

static __always_inline const struct ftctl_path_body *path_lookup(__u32 index)
{
	struct ftctl_path *path = bpf_map_lookup_elem(&paths, &index);

	if (!path)
		return NULL;
	return &path->body[path->active & 1];
}

/* The outer addresses of the other direction's packets: those of the header that is pushed, turned round. */
static __always_inline void flow_other_outer(const struct ftctl_path_body *path, struct ftctl_tuple *tuple)
{
	const struct ipv6hdr *ip6 = (const void *)path->outer;
	const struct iphdr *ip = (const void *)path->outer;

	tuple->tunnel = path->tunnel;
	if (path->tunnel == FTCTL_TUNNEL_IPV4) {
		tuple->outer_src.w[0] = ip->daddr;
		tuple->outer_dst.w[0] = ip->saddr;
	} else if (path->tunnel == FTCTL_TUNNEL_IPV6) {
		__builtin_memcpy(&tuple->outer_src, &ip6->daddr, sizeof(tuple->outer_src));
		__builtin_memcpy(&tuple->outer_dst, &ip6->saddr, sizeof(tuple->outer_dst));
	}
}

/* Tags and PPPoE session of the other direction's packets: those that are pushed. */
static __always_inline void flow_other_l2(const struct ftctl_path_body *path, struct ftctl_tuple *tuple)
{
	const __u16 *word = (const __u16 *)path->l2;

	if (likely(path->l2_len == ETH_HLEN))
		return;
	if (path->vlans) {
		tuple->vlan[0].proto = word[6];
		tuple->vlan[0].vid = word[7] & bpf_htons(TCI_VID);
	}
	if (path->vlans > 1) {
		tuple->vlan[1].proto = word[8];
		tuple->vlan[1].vid = word[9] & bpf_htons(TCI_VID);
	}
	if (path->pppoe) {
		tuple->pppoe = path->pppoe;
		__builtin_memcpy(tuple->peer, path->l2, ETH_ALEN);
	}
}

/*
 * The tuple under which the packets of the other direction arrive: this direction's packet as it
 * leaves, turned round. `tuple` must be zero.
 */
static __always_inline void flow_other_tuple(const struct flow_ref *ref, __u8 proto,
					     const struct ftctl_path_body *path, struct ftctl_tuple *tuple)
{
	const struct ftctl_flow *flow = ref->flow;

	tuple->family = path->family;
	if (path->family == 6 && ref->v6) {
		tuple->src = ref->v6->new_dst;
		tuple->dst = ref->v6->new_src;
	} else {
		tuple->src.w[0] = flow->new_dst;
		tuple->dst.w[0] = flow->new_src;
	}
	tuple->sport = flow->new_dport;
	tuple->dport = flow->new_sport;
	tuple->iif_proto = ftctl_iif_proto(path->oif, proto);
	flow_other_outer(path, tuple);
	flow_other_l2(path, tuple);
}

/* state := to, unless it has left `from`. */
static __always_inline bool flow_set_state(struct ftctl_flow *flow, __u32 from, __u32 to)
{
	return __sync_val_compare_and_swap(&flow->state, from, to) == from;
}

static __always_inline void flow_event(__u32 type, const struct ftctl_flow *flow, __u8 tcp_flags)
{
	struct ftctl_event *ev = bpf_ringbuf_reserve(&events, sizeof(*ev), 0);

	if (!ev)
		return; /* the daemon finds it in the flow at its next walk */
	ev->type = type;
	ev->id = flow->id;
	ev->flow_flags = flow->flags;
	ev->reason = flow->reason;
	ev->detail = flow->detail;
	ev->tcp_flags = tcp_flags;
	bpf_ringbuf_submit(ev, 0);
}

#endif
