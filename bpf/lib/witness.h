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
#include "parse.h"
#include "sample.h"
#include "write.h"

/* Outcomes beside enum ftctl_detail */
#define WITNESS_EQUAL	  (-1)
#define WITNESS_UNRELATED (-2) /* another packet than the sampled one, or nothing can be said */
#define WITNESS_STALE	  (-3) /* the path's addresses are not what the kernel uses now */

/* What the witness works with; too much for a BPF stack. Each object has its own: nobody shares it. */
struct witness_room {
	struct packet pkt;
	struct packet_outside out;
	struct ftctl_tuple tuple;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct witness_room);
} witness_room SEC(".maps");

/* The outer header as it was predicted? */
static __always_inline int witness_compare_outer(const struct packet *pkt, const struct packet_outside *out,
						 const struct ftctl_path_body *path,
						 const struct ftctl_sample *sample)
{
	__u16 df = path->flags & FTCTL_P_DF ? bpf_htons(IP_DF) : sample->frag_off & bpf_htons(IP_DF);
	__u8 tos = path->flags & FTCTL_P_TOS_INHERIT ? sample->tos : path->tun_tos;
	struct ftctl_tuple want = {};
	__u32 label;

	flow_other_outer(path, &want); /* turned round, as a key has it */
	if (!addr_equal(&want.outer_src, &pkt->key.outer_dst) ||
	    !addr_equal(&want.outer_dst, &pkt->key.outer_src))
		return FTCTL_D_ENCAP;
	if (out->tos != ftctl_ecn_encap(tos, sample->tos))
		return FTCTL_D_OUTER_TOS;
	if (out->ttl != (path->tun_ttl ? path->tun_ttl : sample->ttl - 1))
		return FTCTL_D_OUTER_TTL;
	if (path->tunnel == FTCTL_TUNNEL_IPV4)
		return out->frag_off == df ? WITNESS_EQUAL : FTCTL_D_OUTER_DF;
	label = outer6_word(path, sample->tos, sample->label) & bpf_htonl(IPV6_LABEL);
	if (out->label != label && (label || !(path->flags & FTCTL_P_DRAWN)))
		return FTCTL_D_OUTER_LABEL;
	if (out->has_limit != !!(path->flags & FTCTL_P_LIMIT) ||
	    (out->has_limit && out->limit != path->outer[sizeof(struct ipv6hdr) + 4]))
		return FTCTL_D_ENCAP;
	return WITNESS_EQUAL;
}

/* Addresses and ports as predicted? */
static __always_inline bool witness_same_tuple(const struct packet *pkt, const struct flow_ref *ref)
{
	const struct ftctl_flow *flow = ref->flow;

	if (pkt->key.sport != flow->new_sport || pkt->key.dport != flow->new_dport)
		return false;
	if (!packet_v6(pkt))
		return pkt->key.src.w[0] == flow->new_src && pkt->key.dst.w[0] == flow->new_dst;
	return ref->v6 && addr_equal(&pkt->key.src, &ref->v6->new_src) &&
	       addr_equal(&pkt->key.dst, &ref->v6->new_dst);
}

/* Tags with their priorities, and the session. */
static __always_inline bool witness_same_l2(const struct packet *pkt, const struct packet_outside *out,
					    const struct ftctl_path_body *path, __u8 tos)
{
	struct ftctl_tuple want = {};

	flow_other_l2(path, &want); /* turned round, as a key has them */
	if (want.pppoe != pkt->key.pppoe)
		return false;
	for (__u32 i = 0; i < 2; i++) {
		if (want.vlan[i].proto != pkt->key.vlan[i].proto || want.vlan[i].vid != pkt->key.vlan[i].vid)
			return false;
		if (want.vlan[i].proto && out->tag_bits[i] != bpf_ntohs(path_tci(path, i, tos)) >> 12)
			return false;
	}
	return true;
}

static __always_inline int witness_compare(struct __sk_buff *skb, const struct packet *pkt,
					   const struct packet_outside *out, const struct flow_ref *ref,
					   const struct ftctl_path_body *path,
					   const struct ftctl_sample *sample)
{
	if (pkt->ip_id != sample->ip_id || sample_tag(skb, pkt) != sample->l4_tag ||
	    pkt->seglen != sample->len)
		return WITNESS_UNRELATED;
	if (!(path->flags & FTCTL_P_VALID) || path->family != pkt->key.family)
		return WITNESS_UNRELATED;
	if (path->oif != cfg_ifindex)
		return WITNESS_STALE;
	if (!witness_same_l2(pkt, out, path, sample->tos))
		return FTCTL_D_VLAN;
	if (!witness_same_tuple(pkt, ref))
		return FTCTL_D_NAT;
	if (path->tunnel != pkt->key.tunnel)
		return FTCTL_D_ENCAP;
	if (pkt->ttl != (__u8)(sample->ttl - 1))
		return FTCTL_D_TTL;
	if ((pkt->tos ^ sample->tos) & ~FTCTL_ECN_MASK)
		return FTCTL_D_DSCP;
	if (pkt->tos != sample->tos)
		return FTCTL_D_ECN;
	if (pkt->frag_off != sample->frag_off)
		return FTCTL_D_DF;
	if (pkt->label != sample->label)
		return FTCTL_D_LABEL;
	if (path->tunnel) {
		int what = witness_compare_outer(pkt, out, path, sample);

		if (what != WITNESS_EQUAL)
			return what;
	}
	/* dmac and smac; last, since they say least about the flow */
	for (__u32 i = 0; i < sizeof(out->macs) / sizeof(__u16); i++)
		if (((const __u16 *)out->macs)[i] != ((const __u16 *)path->l2)[i])
			return WITNESS_STALE;
	return WITNESS_EQUAL;
}

/* The tuple of the other direction's packets, from one of this direction as it leaves. */
static __always_inline void witness_turn(const struct packet *pkt, const struct packet_outside *out,
					 struct ftctl_tuple *back)
{
	*back = pkt->key;
	back->src = pkt->key.dst;
	back->dst = pkt->key.src;
	back->outer_src = pkt->key.outer_dst;
	back->outer_dst = pkt->key.outer_src;
	back->sport = pkt->key.dport;
	back->dport = pkt->key.sport;
	if (pkt->key.pppoe)
		__builtin_memcpy(back->peer, out->macs, ETH_ALEN); /* who gets ours sends the others */
}

/* The flow that this packet, as the stack sends it, belongs to. */
static __always_inline bool witness_find(const struct ftctl_config *cfg, struct witness_room *room,
					 struct flow_ref *ref)
{
	const struct ftctl_path_body *back_path;
	struct flow_ref back;
	__u64 hash;

	witness_turn(&room->pkt, &room->out, &room->tuple);
	hash = ftctl_bloom_hash(&room->tuple);
	if (!flow_may_be(cfg, hash) || !flow_find(&room->tuple, hash, &back))
		return false;
	back_path = path_lookup(back.flow->path);
	if (!back_path)
		return false;
	__builtin_memset(&room->tuple, 0, sizeof(room->tuple));
	flow_other_tuple(&back, room->pkt.proto, back_path, &room->tuple);
	return flow_find(&room->tuple, ftctl_bloom_hash(&room->tuple), ref);
}

/* A function of its own, so that the egress hook saves no registers for packets that it does not look at. */
static __attribute__((noinline)) void witness_see(struct __sk_buff *skb, struct ftctl_config *cfg, __u64 now)
{
	const struct ftctl_path_body *path;
	struct ftctl_sample *sample;
	struct ftctl_sample_key key;
	struct ftctl_flow *flow;
	struct witness_room *room;
	struct flow_ref ref;
	__u32 zero = 0, state;
	int what;

	room = bpf_map_lookup_elem(&witness_room, &zero);
	if (!room)
		return;
	__builtin_memset(room, 0, sizeof(*room));
	if (parse_packet(skb, cfg, NULL, &room->pkt, &room->out) || !witness_find(cfg, room, &ref))
		return;
	flow = ref.flow;
	state = flow->state;
	if (state != FTCTL_FLOW_PENDING && state != FTCTL_FLOW_LIVE)
		return;
	path = path_lookup(flow->path);
	key = sample_key(flow);
	sample = bpf_map_lookup_elem(&samples, &key);
	if (!path || !sample || now - sample->ts_ns > SAMPLE_MAX_AGE_NS)
		return;

	what = witness_compare(skb, &room->pkt, &room->out, &ref, path, sample);
	if (what == WITNESS_UNRELATED)
		return;
	bpf_map_delete_elem(&samples, &key); /* answered: no later packet is compared with it */
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
			flow_event(FTCTL_EV_LIVE, flow, 0);
		return;
	}
	flow->reason = FTCTL_R_MANGLED;
	flow->detail = (__u8)what;
	if (flow_set_state(flow, state, FTCTL_FLOW_DIFFERS))
		flow_event(FTCTL_EV_DIFFERS, flow, 0);
}

#endif
