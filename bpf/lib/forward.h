/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The life of a packet: parse, filter, find the flow, check everything, then write. Up to ctx_adjust()
 * the packet goes to the stack as it came; after it there is only transmit or a counted failure.
 *
 * Needs the context layer (ctx_xdp.h or ctx_tc.h) to be included first, and the half of it that
 * changes packets (adjust_xdp.h or adjust_tc.h).
 */
#ifndef FTCTL_LIB_FORWARD_H
#define FTCTL_LIB_FORWARD_H

#include "filter.h"
#include "flow.h"
#include "parse.h"
#include "rpf.h"
#include "sample.h"
#include "stats.h"
#include "write.h"

/* Flow and path say the packet may be taken now? 0 or the reason. */
static __always_inline __u32 forward_check(struct context *ctx, struct ftctl_flow *flow,
					   const struct ftctl_path_body *path, const struct packet *pkt,
					   struct ftctl_config *cfg, __u64 now)
{
	__u32 state = flow->state;
	__u16 limit = path->mtu;

	if (unlikely(state == FTCTL_FLOW_CLOSING))
		return because(FTCTL_R_CLOSING);
	if (unlikely(state == FTCTL_FLOW_DIFFERS))
		return because(FTCTL_R_REFUSED);
	if (unlikely(!(path->flags & FTCTL_P_VALID)))
		return path->reason ? path->reason : FTCTL_R_PATH_DOWN;
	if (unlikely(path->family != pkt->key.family))
		return because(FTCTL_R_PATH_DOWN);
	if (unlikely((flow->flags ^ pkt->upper) & FTCTL_F_UPPER))
		return because(FTCTL_R_OTHER_HOST);
	if (unlikely(pkt->seglen > limit))
		return because(FTCTL_R_MTU);
	if (path->tunnel) {
		/* With DF clear the outer packet may be fragmented on its way: only the kernel's ID will do.
		 */
		if (path->tunnel == FTCTL_TUNNEL_IPV4 && !(path->flags & FTCTL_P_DF) &&
		    !(pkt->frag_off & bpf_htons(IP_DF)))
			return because(FTCTL_R_DF);
		if (pkt->len > 0xffff - path_outer_len(path))
			return because(FTCTL_R_GSO);
	}
	if (unlikely(state != FTCTL_FLOW_LIVE || flow->gen != cfg->gen)) {
		if (!cfg_dry)
			sample_put(ctx, pkt, flow, cfg, now);
		if (sample_is_blank(pkt))
			return because(FTCTL_R_BLANK);
		return state == FTCTL_FLOW_LIVE ? FTCTL_R_STALE : FTCTL_R_PENDING;
	}
	if (!ctx_egress_ok(path))
		return because(FTCTL_R_EGRESS);
	if (flow->trickle_s && unlikely(((__u64)(ticks(now) - flow->last_trickle) << FTCTL_TICK_SHIFT) >=
					flow->trickle_s * FTCTL_NSEC_PER_SEC)) {
		if (!cfg_dry) {
			flow->last_trickle = ticks(now);
			sample_put(ctx, pkt, flow, cfg, now);
			return because(FTCTL_R_TRICKLE);
		}
	}
	return 0;
}

/* FIN, RST or a new SYN: neither direction is taken any more. Rare: a function of its own, for its stack. */
static __attribute__((noinline)) void forward_close(const struct flow_ref *ref, __u8 proto, __u8 tcp_flags)
{
	struct ftctl_flow *flow = ref->flow;
	const struct ftctl_path_body *path = path_lookup(flow->path);
	__u32 was = flow->state, zero = 0;
	struct headers_room *room = bpf_map_lookup_elem(&headers_room, &zero);

	if (was == FTCTL_FLOW_CLOSING || was == FTCTL_FLOW_DIFFERS)
		return;
	flow_set_state(flow, was, FTCTL_FLOW_CLOSING);
	if (path && room) {
		struct ftctl_tuple *tuple = &room->pkt.key;
		struct flow_ref other;

		__builtin_memset(tuple, 0, sizeof(*tuple));
		flow_other_tuple(ref, proto, path, tuple);
		if (flow_find(tuple, ftctl_bloom_hash(tuple), &other) &&
		    other.flow->state != FTCTL_FLOW_DIFFERS)
			flow_set_state(other.flow, other.flow->state, FTCTL_FLOW_CLOSING);
	}
	flow_event(FTCTL_EV_CLOSING, flow, tcp_flags);
}

static __always_inline int forward(struct context *ctx)
{
	__u32 slot_index = cfg_slot, reason;
	const struct ftctl_path_body *path;
	struct ftctl_config *cfg = &config;
	struct ftctl_stats *st;
	struct ftctl_slot *slot;
	struct ftctl_flow *flow;
	struct flow_ref ref;
	struct packet pkt = {};
	__u64 now, hash, bytes;
	enum adjusted adjusted;
	bool found, plain, written;

	st = stats_get(slot_index);
	slot = bpf_map_lookup_elem(&slots, &slot_index);
	if (!st || !slot)
		return CTX_PASS;
	st->rx_packets++;
	now = clock_now(cfg);
	if (unlikely((__s64)(now - cfg->heartbeat_ns) > (__s64)FTCTL_HEARTBEAT_NS))
		reason = FTCTL_R_HEARTBEAT;
	else if (unlikely(cfg->disabled))
		reason = FTCTL_R_DISABLED;
	else
		reason = parse_packet(ctx, cfg, slot, &pkt, NULL);
	if (unlikely(cfg->filter) && headers_known(ctx, &pkt, !reason) && filter_drops()) {
		stats_reason(st, FTCTL_R_FILTER);
		return CTX_DROP;
	}
	if (unlikely(reason == FTCTL_R_HEARTBEAT))
		goto pass;
	/* One with an encapsulation limit of its own makes a tunnel without one lower path MTUs: the daemon
	 * asks. */
	if (unlikely(reason == FTCTL_R_IP_OPTIONS) && cfg->tunnels && !cfg->options && !cfg_dry)
		cfg->options = 1;
	if (reason)
		goto unknown;
	hash = ftctl_bloom_hash(&pkt.key);
	found = flow_may_be(cfg, hash) && flow_find(&pkt.key, hash, &ref);
	if (pkt.proto == IPPROTO_TCP && unlikely(!parse_tcp_plain(pkt.tcp_flags))) {
		if (found && !cfg_dry && (pkt.tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)))
			forward_close(&ref, pkt.proto, pkt.tcp_flags);
		reason = because(FTCTL_R_TCP_FLAGS);
		if (!found)
			goto unknown;
		goto pass;
	}
	if (!found) {
		reason = because(FTCTL_R_NO_FLOW);
		goto unknown;
	}
	flow = ref.flow;
	path = path_lookup(flow->path);
	if (!path) {
		reason = because(FTCTL_R_PATH_DOWN);
		goto pass;
	}
	reason = forward_check(ctx, flow, path, &pkt, cfg, now);
	if (reason)
		goto pass;
	reason = ctx_adjust_check(ctx, path, &pkt);
	if (reason)
		goto pass;
	if ((flow->flags & FTCTL_F_NAT) && !ctx_csum_known(ctx, &pkt)) {
		reason = because(FTCTL_R_CSUM_UNKNOWN);
		goto pass;
	}
	if (unlikely(pkt.pad) && !ctx_trim(ctx, pkt.pad)) {
		reason = because(FTCTL_R_PADDING);
		goto pass;
	}
	if (!ctx_pull(ctx, pkt.l3 + pkt.hdrlen)) {
		reason = because(FTCTL_R_HEADROOM);
		goto pass;
	}
	plain = write_is_plain(path, &pkt);
	adjusted = likely(plain) ? ADJUSTED : ctx_adjust(ctx, path, &pkt);
	if (unlikely(adjusted == ADJUST_UNTOUCHED)) {
		reason = because(FTCTL_R_HEADROOM);
		goto pass;
	}

	/* from here on the packet is not what the stack should have got */
	bytes = pkt.len + (pkt.segs - 1) * pkt.hdrlen;
	stats_fast(st, bytes);
	if (!cfg_dry) {
		count_add(&flow->carried, pkt.segs, bytes);
		if (flow->last_seen != ticks(now))
			flow->last_seen = ticks(now);
	}
	if (likely(plain))
		written = write_plain(ctx, path, &ref, &pkt);
	else
		written = adjusted == ADJUSTED && ctx_write(ctx, path, &ref, &pkt);
	if (unlikely(!written)) {
		st->tx_failed++;
		return CTX_DROP;
	}
	return ctx_transmit(ctx, path->oif, &pkt);

unknown: /* no flow says that the kernel takes packets like this one from this device */
	if (unlikely(cfg->rpf) && slot->rpf &&
	    !(reason == FTCTL_R_NO_FLOW && rpf_found_lately(ctx, &pkt, cfg, slot, now)) &&
	    headers_known(ctx, &pkt, reason == FTCTL_R_NO_FLOW))
		reason = (__u32)rpf_judge(ctx, reason);
	if (unlikely(reason == FTCTL_R_RPF)) {
		stats_reason(st, reason);
		return CTX_DROP;
	}
pass:
	stats_reason(st, reason);
	return CTX_PASS;
}

#endif
