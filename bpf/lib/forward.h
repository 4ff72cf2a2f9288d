/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The life of a packet: parse, find the flow, check everything, then write. Up to "the first
 * byte written" the packet goes to the stack as it came; after it there is only transmit or a
 * counted failure.
 *
 * Needs the context layer (ctx_xdp.h or ctx_tc.h) to be included first.
 */
#ifndef FTCTL_LIB_FORWARD_H
#define FTCTL_LIB_FORWARD_H

#include "flow.h"
#include "parse.h"
#include "sample.h"
#include "stats.h"

/* Flow and path say the packet may be taken now? 0 or the reason. */
static __always_inline __u32 forward_check(struct ftctl_flow *flow, const struct ftctl_path_body *path,
					   const struct packet *pkt, struct ftctl_config *cfg, __u64 now)
{
	__u32 state = flow->state;
	__u16 limit = path->mtu;

	if (unlikely(state == FTCTL_FLOW_CLOSING))
		return FTCTL_R_CLOSING;
	if (unlikely(state == FTCTL_FLOW_DIFFERS))
		return FTCTL_R_REFUSED;
	if (unlikely(!(path->flags & FTCTL_P_VALID)))
		return path->reason ? path->reason : FTCTL_R_PATH_DOWN;
	if (unlikely(pkt->seglen > limit))
		return FTCTL_R_MTU;
	/* With DF clear the outer packet may be fragmented on its way: only the kernel's ID will do. */
	if ((path->flags & (FTCTL_P_IPIP | FTCTL_P_DF)) == FTCTL_P_IPIP &&
	    !(pkt->frag_off & bpf_htons(IP_DF)))
		return FTCTL_R_DF;
	if ((path->flags & FTCTL_P_IPIP) && pkt->len > 0xffff - IP_HLEN)
		return FTCTL_R_GSO;
	if (unlikely(state != FTCTL_FLOW_LIVE || flow->gen != cfg->gen)) {
		if (!cfg_dry)
			sample_put(pkt, cfg, now);
		return state == FTCTL_FLOW_LIVE ? FTCTL_R_STALE : FTCTL_R_PENDING;
	}
	if (!ctx_egress_ok(path))
		return FTCTL_R_EGRESS;
	if (flow->trickle_s && unlikely(((__u64)(ticks(now) - flow->last_trickle) << FTCTL_TICK_SHIFT) >=
					flow->trickle_s * FTCTL_NSEC_PER_SEC)) {
		if (!cfg_dry) {
			flow->last_trickle = ticks(now);
			sample_put(pkt, cfg, now);
			return FTCTL_R_TRICKLE;
		}
	}
	return 0;
}

/* The header ipip's ip_tunnel_xmit() and iptunnel_xmit() would push (semantics of ctl/tunnel/rules.h). */
static __always_inline void forward_push_ipip(struct iphdr *ip, const struct ftctl_path_body *path,
					      const struct packet *pkt)
{
	__u8 tos = path->flags & FTCTL_P_TOS_INHERIT ? pkt->new_tos : path->tun_tos;
	__u16 df = path->flags & FTCTL_P_DF ? bpf_htons(IP_DF) : pkt->frag_off & bpf_htons(IP_DF);
	struct iphdr outer = {
		.version = 4,
		.ihl = 5,
		.tos = ftctl_ecn_encap(tos, pkt->new_tos),
		.tot_len = bpf_htons(pkt->len + IP_HLEN),
		.id = (__u16)bpf_get_prandom_u32(), /* DF is set: any will do (RFC 6864) */
		.frag_off = df,
		.ttl = path->tun_ttl ? path->tun_ttl : pkt->ttl - 1,
		.protocol = IPPROTO_IPIP,
		.saddr = path->tun_src,
		.daddr = path->tun_dst,
	};

	outer.check = (__u16)~csum_iphdr(&outer);
	*ip = outer;
}

/*
 * Writes the packet that leaves. Everything has been checked; false means the buffer could
 * not be reached, which the checks should have made impossible.
 */
static __always_inline bool forward_write(struct context *ctx, const struct ftctl_flow *flow,
					  const struct ftctl_path_body *path, const struct packet *pkt)
{
	bool encap = path->flags & FTCTL_P_IPIP;
	__u32 l3 = sizeof(struct ethhdr) + (encap ? IP_HLEN : 0);
	__u32 delta = csum_delta16(bpf_htons(0x0100), 0); /* TTL, one less */
	struct iphdr *ip;
	struct ethhdr *eth;

	if ((flow->flags & FTCTL_F_NAT) && !ctx_l4_csum(ctx, l3 + IP_HLEN, flow, pkt))
		return false;
	eth = ctx_data(ctx);
	ip = ctx_data(ctx) + l3;
	if ((void *)(ip + 1) + sizeof(struct udphdr) > ctx_data_end(ctx))
		return false;
	__builtin_memcpy(eth, path, sizeof(*eth)); /* dmac, smac, ethertype */
	if (encap) {
		struct iphdr *outer = (void *)(eth + 1);

		forward_push_ipip(outer, path, pkt);
	}
	if (flow->flags & FTCTL_F_NAT) {
		struct udphdr *ports = (void *)(ip + 1); /* TCP has its ports at the same place */

		ports->source = flow->new_sport;
		ports->dest = flow->new_dport;
		ip->saddr = flow->new_src;
		ip->daddr = flow->new_dst;
		delta += flow->addr_delta;
	}
	if (pkt->new_tos != pkt->tos) {
		delta += csum_delta16(bpf_htons(pkt->tos), bpf_htons(pkt->new_tos));
		ip->tos = pkt->new_tos;
	}
	ip->ttl = pkt->ttl - 1;
	ip->check = csum_update(pkt->ip_check, delta);
	return true;
}

static __always_inline int forward(struct context *ctx)
{
	__u32 zero = 0, slot_index = cfg_slot, reason, egress;
	const struct ftctl_path_body *path;
	struct ftctl_config *cfg;
	struct ftctl_stats *st;
	struct ftctl_slot *slot;
	struct ftctl_flow *flow;
	struct packet pkt = {};
	__u64 now, bytes;
	int room;

	st = stats_get(slot_index);
	cfg = bpf_map_lookup_elem(&config, &zero);
	slot = bpf_map_lookup_elem(&slots, &slot_index);
	if (!st || !cfg || !slot)
		return CTX_PASS;
	st->rx_packets++;

	now = bpf_ktime_get_coarse_ns();
	reason = FTCTL_R_HEARTBEAT;
	if (unlikely((__s64)(now - cfg->heartbeat_ns) > (__s64)FTCTL_HEARTBEAT_NS))
		goto pass;
	reason = FTCTL_R_DISABLED;
	if (unlikely(cfg->disabled))
		goto pass;

	reason = parse_packet(ctx, cfg, slot, &pkt);
	if (reason)
		goto pass;
	flow = flow_lookup(&pkt.key, pkt.tunneled);
	if (pkt.proto == IPPROTO_TCP && unlikely(!parse_tcp_plain(pkt.tcp_flags))) {
		if (flow && !cfg_dry && (pkt.tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)))
			flow_close(flow, &pkt.key, pkt.tunneled, pkt.proto, pkt.tcp_flags);
		reason = FTCTL_R_TCP_FLAGS;
		goto pass;
	}
	reason = FTCTL_R_NO_FLOW;
	if (!flow)
		goto pass;
	path = path_lookup(flow->path);
	reason = FTCTL_R_PATH_DOWN;
	if (!path)
		goto pass;
	reason = forward_check(flow, path, &pkt, cfg, now);
	if (reason)
		goto pass;
	reason = FTCTL_R_CSUM_UNKNOWN;
	if ((flow->flags & FTCTL_F_NAT) && !ctx_csum_known(&pkt))
		goto pass;
	reason = FTCTL_R_PADDING;
	if (unlikely(pkt.pad) && !ctx_trim(ctx, pkt.pad))
		goto pass;
	reason = FTCTL_R_HEADROOM;
	room = (path->flags & FTCTL_P_IPIP ? IP_HLEN : 0) - (pkt.tunneled ? IP_HLEN : 0);
	if (room && !ctx_adjust_room(ctx, room))
		goto pass;

	/* the first byte is written below */
	bytes = pkt.len + (pkt.segs - 1) * pkt.hdrlen;
	stats_fast(st, bytes);
	if (!cfg_dry) {
		__sync_fetch_and_add(&flow->packets, pkt.segs);
		__sync_fetch_and_add(&flow->bytes, bytes);
		if (flow->last_seen != ticks(now))
			flow->last_seen = ticks(now);
	}
	egress = path->oif;
	if (!forward_write(ctx, flow, path, &pkt)) {
		st->tx_failed++;
		return CTX_DROP;
	}
	return ctx_transmit(ctx, egress, pkt.new_tos);

pass:
	stats_pass(st, reason);
	return CTX_PASS;
}

#endif
