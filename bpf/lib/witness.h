/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The far half of the witness, at TC egress. A packet that the stack sends is traced back to
 * its flow and compared with the prediction and with the sample taken on its way in. Equal:
 * the direction goes live. Different: it is refused with the field that differs.
 *
 * The flow is found without a table of its own: turned round, the packet is one of the other
 * direction as it arrives, and that direction's action turned round is this flow's key.
 */
#ifndef FTCTL_LIB_WITNESS_H
#define FTCTL_LIB_WITNESS_H

#include "flow.h"
#include "packet.h"

/* A sample older than this belongs to some other packet. */
#define WITNESS_MAX_AGE_NS (2 * FTCTL_NSEC_PER_SEC)

/* Outcomes beside enum ftctl_detail */
#define WITNESS_EQUAL	  (-1)
#define WITNESS_UNRELATED (-2) /* another packet than the sampled one, or nothing can be said */
#define WITNESS_STALE	  (-3) /* the path's addresses are not what the kernel uses now */

struct emitted {
	struct ethhdr eth;
	struct iphdr outer; /* of a tunnel; else unset */
	struct iphdr ip;
	__u16 sport, dport; /* be */
	__u32 l4_tag;
	__u32 tunneled;
	__u16 seglen;
};

/* False: not a packet that a flow could have sent. */
static __always_inline bool witness_load(struct __sk_buff *skb, const struct ftctl_config *cfg,
					 struct emitted *out)
{
	__u32 off = sizeof(out->eth);
	__u32 hdrlen, len;
	__u8 l4[16];

	if (bpf_skb_load_bytes(skb, 0, &out->eth, sizeof(out->eth)) ||
	    out->eth.h_proto != bpf_htons(ETH_P_IP) ||
	    bpf_skb_load_bytes(skb, off, &out->ip, sizeof(out->ip)))
		return false;
	if (out->ip.protocol == IPPROTO_IPIP && cfg->tunnels && out->ip.ihl == 5) {
		out->outer = out->ip;
		out->tunneled = 1;
		off += IP_HLEN;
		if (bpf_skb_load_bytes(skb, off, &out->ip, sizeof(out->ip)))
			return false;
	}
	if (out->ip.version != 4 || out->ip.ihl != 5)
		return false;
	if (out->ip.frag_off & bpf_htons(IP_MF | IP_OFFSET))
		return false;
	off += IP_HLEN;
	len = bpf_ntohs(out->ip.tot_len);
	if (out->ip.protocol == IPPROTO_TCP) {
		if (bpf_skb_load_bytes(skb, off, l4, 16))
			return false;
		__builtin_memcpy(&out->l4_tag, l4 + 4, 4);
		hdrlen = IP_HLEN + (l4[12] >> 4) * 4;
	} else if (out->ip.protocol == IPPROTO_UDP) {
		__u16 udp_len;

		if (bpf_skb_load_bytes(skb, off, l4, 8))
			return false;
		__builtin_memcpy(&udp_len, l4 + 4, 2);
		out->l4_tag = udp_len;
		hdrlen = IP_HLEN + sizeof(struct udphdr);
	} else {
		return false;
	}
	__builtin_memcpy(&out->sport, l4, 2);
	__builtin_memcpy(&out->dport, l4 + 2, 2);
	if (skb->gso_size && len > hdrlen + skb->gso_size)
		len = hdrlen + skb->gso_size;
	out->seglen = len;
	return true;
}

/* The outer header as it was predicted? */
static __always_inline int witness_compare_outer(const struct emitted *out,
						 const struct ftctl_path_body *path,
						 const struct ftctl_sample *sample)
{
	__u8 tos = path->flags & FTCTL_P_TOS_INHERIT ? sample->tos : path->tun_tos;
	__u16 df = path->flags & FTCTL_P_DF ? bpf_htons(IP_DF) : sample->frag_off & bpf_htons(IP_DF);

	if (out->outer.saddr != path->tun_src || out->outer.daddr != path->tun_dst)
		return FTCTL_D_ENCAP;
	if (out->outer.tos != ftctl_ecn_encap(tos, sample->tos))
		return FTCTL_D_OUTER_TOS;
	if (out->outer.ttl != (path->tun_ttl ? path->tun_ttl : sample->ttl - 1))
		return FTCTL_D_OUTER_TTL;
	if (out->outer.frag_off != df)
		return FTCTL_D_OUTER_DF;
	return WITNESS_EQUAL;
}

static __always_inline int witness_compare(const struct __sk_buff *skb, const struct emitted *out,
					   const struct ftctl_flow *flow, const struct ftctl_path_body *path,
					   const struct ftctl_sample *sample)
{
	__u32 sent[2 * ETH_ALEN / sizeof(__u32)], predicted[2 * ETH_ALEN / sizeof(__u32)];
	bool encap = path->flags & FTCTL_P_IPIP;

	if (out->ip.id != sample->ip_id || out->l4_tag != sample->l4_tag || out->seglen != sample->len)
		return WITNESS_UNRELATED;
	if (!(path->flags & FTCTL_P_VALID))
		return WITNESS_UNRELATED;
	if (path->oif != cfg_ifindex)
		return WITNESS_STALE;
	if (skb->vlan_present)
		return FTCTL_D_VLAN;
	if (out->ip.saddr != flow->new_src || out->ip.daddr != flow->new_dst ||
	    out->sport != flow->new_sport || out->dport != flow->new_dport)
		return FTCTL_D_NAT;
	if (encap != !!out->tunneled)
		return FTCTL_D_ENCAP;
	if (out->ip.ttl != (__u8)(sample->ttl - 1))
		return FTCTL_D_TTL;
	if ((out->ip.tos ^ sample->tos) & ~FTCTL_ECN_MASK)
		return FTCTL_D_DSCP;
	if (out->ip.tos != sample->tos)
		return FTCTL_D_ECN;
	if (out->ip.frag_off != sample->frag_off)
		return FTCTL_D_DF;
	if (encap) {
		int what = witness_compare_outer(out, path, sample);

		if (what != WITNESS_EQUAL)
			return what;
	}
	/* dmac and smac; last, since they say least about the flow */
	__builtin_memcpy(sent, &out->eth, sizeof(sent));
	__builtin_memcpy(predicted, path, sizeof(predicted));
	if (sent[0] != predicted[0] || sent[1] != predicted[1] || sent[2] != predicted[2])
		return WITNESS_STALE;
	return WITNESS_EQUAL;
}

static __always_inline void witness_see(struct __sk_buff *skb)
{
	const struct ftctl_path_body *back_path, *path;
	struct ftctl_key4t back_key = {}, key = {};
	struct emitted out = {};
	struct ftctl_flow *back, *flow;
	struct ftctl_sample *sample;
	struct ftctl_config *cfg;
	__u32 zero = 0, tunneled, state;
	__u64 now;
	int what;

	cfg = bpf_map_lookup_elem(&config, &zero);
	if (!cfg)
		return;
	now = bpf_ktime_get_coarse_ns();
	if (likely(cfg->watch_until_ns <= now))
		return;
	if (!witness_load(skb, cfg, &out))
		return;

	back_key.in.src = out.ip.daddr;
	back_key.in.dst = out.ip.saddr;
	back_key.in.sport = out.dport;
	back_key.in.dport = out.sport;
	back_key.in.iif_proto = ftctl_iif_proto(cfg_ifindex, out.ip.protocol);
	if (out.tunneled) {
		back_key.outer_src = out.outer.daddr;
		back_key.outer_dst = out.outer.saddr;
	}
	back = flow_lookup(&back_key, out.tunneled);
	if (!back)
		return;
	back_path = path_lookup(back->path);
	if (!back_path)
		return;
	tunneled = flow_other_key(back, out.ip.protocol, back_path, &key);
	flow = flow_lookup(&key, tunneled);
	if (!flow)
		return;
	state = flow->state;
	if (state != FTCTL_FLOW_PENDING && state != FTCTL_FLOW_LIVE)
		return;
	path = path_lookup(flow->path);
	sample = bpf_map_lookup_elem(&samples, &key);
	if (!path || !sample || now - sample->ts_ns > WITNESS_MAX_AGE_NS)
		return;

	what = witness_compare(skb, &out, flow, path, sample);
	if (what == WITNESS_UNRELATED)
		return;
	if (what == WITNESS_STALE) {
		flow_set_state(flow, FTCTL_FLOW_LIVE, FTCTL_FLOW_PENDING);
		return;
	}
	if (what == WITNESS_EQUAL) {
		__u32 gen = cfg->gen;

		if (state == FTCTL_FLOW_LIVE && flow->gen == gen)
			return;
		flow->last_trickle = ticks(now);
		flow->gen = gen;
		if (state == FTCTL_FLOW_LIVE || flow_set_state(flow, FTCTL_FLOW_PENDING, FTCTL_FLOW_LIVE))
			flow_event(FTCTL_EV_LIVE, flow, &key, tunneled, 0);
		return;
	}
	flow->reason = FTCTL_R_MANGLED;
	flow->detail = (__u8)what;
	if (flow_set_state(flow, state, FTCTL_FLOW_DIFFERS))
		flow_event(FTCTL_EV_DIFFERS, flow, &key, tunneled, 0);
}

#endif
