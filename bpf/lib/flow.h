/* SPDX-License-Identifier: GPL-2.0-only */
/* Flows and paths: lookup, state, the other direction, events. */
#ifndef FTCTL_LIB_FLOW_H
#define FTCTL_LIB_FLOW_H

#include "maps.h"

static __always_inline struct ftctl_flow *flow_lookup(const struct ftctl_key4t *key, __u32 tunneled)
{
	if (tunneled)
		return bpf_map_lookup_elem(&flow4t, key);
	return bpf_map_lookup_elem(&flow4, &key->in);
}

static __always_inline const struct ftctl_path_body *path_lookup(__u32 index)
{
	struct ftctl_path *path = bpf_map_lookup_elem(&paths, &index);

	if (!path)
		return NULL;
	return &path->body[path->active & 1];
}

/*
 * The key under which the packets of the other direction arrive: this direction's packet as
 * it leaves, turned round. Returns whether that key is a tunnel's.
 */
static __always_inline __u32 flow_other_key(const struct ftctl_flow *flow, __u8 proto,
					    const struct ftctl_path_body *path, struct ftctl_key4t *key)
{
	key->in.src = flow->new_dst;
	key->in.dst = flow->new_src;
	key->in.sport = flow->new_dport;
	key->in.dport = flow->new_sport;
	key->in.iif_proto = ftctl_iif_proto(path->oif, proto);
	key->outer_src = path->tun_dst;
	key->outer_dst = path->tun_src;
	return !!(path->flags & FTCTL_P_IPIP);
}

/* state := to, unless it has left `from`. */
static __always_inline bool flow_set_state(struct ftctl_flow *flow, __u32 from, __u32 to)
{
	return __sync_val_compare_and_swap(&flow->state, from, to) == from;
}

static __always_inline void flow_event(__u32 type, const struct ftctl_flow *flow,
				       const struct ftctl_key4t *key, __u32 tunneled, __u8 tcp_flags)
{
	struct ftctl_event *ev = bpf_ringbuf_reserve(&events, sizeof(*ev), 0);

	if (!ev)
		return; /* the daemon finds it in the flow at its next walk */
	__builtin_memset(ev, 0, sizeof(*ev));
	ev->type = type;
	ev->id = flow->id;
	ev->key = *key;
	ev->tunneled = (__u8)tunneled;
	ev->flow_flags = flow->flags;
	ev->reason = flow->reason;
	ev->detail = flow->detail;
	ev->tcp_flags = tcp_flags;
	bpf_ringbuf_submit(ev, 0);
}

/* FIN, RST or a new SYN: neither direction is taken any more. */
static __always_inline void flow_close(struct ftctl_flow *flow, const struct ftctl_key4t *key, __u32 tunneled,
				       __u8 proto, __u8 tcp_flags)
{
	const struct ftctl_path_body *path = path_lookup(flow->path);
	__u32 was = flow->state;

	if (was == FTCTL_FLOW_CLOSING || was == FTCTL_FLOW_DIFFERS)
		return;
	flow_set_state(flow, was, FTCTL_FLOW_CLOSING);
	if (path) {
		struct ftctl_key4t other_key = {};
		struct ftctl_flow *other;
		__u32 other_tunneled = flow_other_key(flow, proto, path, &other_key);

		other = flow_lookup(&other_key, other_tunneled);
		if (other && other->state != FTCTL_FLOW_DIFFERS)
			flow_set_state(other, other->state, FTCTL_FLOW_CLOSING);
	}
	flow_event(FTCTL_EV_CLOSING, flow, key, tunneled, tcp_flags);
}

#endif
