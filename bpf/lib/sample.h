/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The near half of the witness: a packet of a flow that is given to the stack on purpose is
 * remembered, so that the far half (witness.h) can compare what comes out with it.
 */
#ifndef FTCTL_LIB_SAMPLE_H
#define FTCTL_LIB_SAMPLE_H

#include "maps.h"
#include "packet.h"

/*
 * While a sample is younger than this it is not replaced: its packet may still be under way. One that nothing
 * came of is followed by one that is held twice as long, as its packet may wait in a longer queue: that of a
 * tunnel's device, which a flow fills alone.
 */
#define SAMPLE_HOLD_NS	   (5 * 1000 * 1000U)
#define SAMPLE_HOLD_MAX_NS (64 * SAMPLE_HOLD_NS)
/* A sample older than this belongs to some other packet. */
#define SAMPLE_MAX_AGE_NS (2 * FTCTL_NSEC_PER_SEC)
/* How long the witness stays awake after the last sample. */
#define SAMPLE_WATCH_NS FTCTL_NSEC_PER_SEC

static __always_inline struct ftctl_sample_key sample_key(const struct ftctl_flow *flow)
{
	return (struct ftctl_sample_key){flow->id, !!(flow->flags & FTCTL_F_REPLY)};
}

/* Bytes behind the L4 header, of one segment. */
static __always_inline __u32 sample_payload(const struct packet *pkt)
{
	return pkt->seglen - pkt->hdrlen;
}

/*
 * What tells one packet of a flow from another, beside ID and length: TCP's sequence number; else how the
 * payload begins, for IPv6 has no ID, and many senders of IPv4 leave it zero.
 */
static __always_inline __u32 sample_tag(struct context *ctx, const struct packet *pkt)
{
	__u32 start[4] = {}, off = pkt->l3 + pkt->hdrlen, payload = sample_payload(pkt);

	if (pkt->proto == IPPROTO_TCP) {
		if (!packet_v6(pkt))
			return pkt->l4_tag;
		/* its pure ACKs share a sequence number */
		off = pkt->l3 + sizeof(struct ipv6hdr) + offsetof(struct tcphdr, ack_seq);
		if (!ctx_load(ctx, off, start, sizeof(start[0])))
			return pkt->l4_tag;
	} else if (payload >= sizeof(start)) {
		if (!ctx_load(ctx, off, start, sizeof(start)))
			return pkt->l4_tag;
	} else if (payload >= sizeof(start[0])) {
		if (!ctx_load(ctx, off, start, sizeof(start[0])))
			return pkt->l4_tag;
	}
	return pkt->l4_tag ^ start[0] * 0x9e3779b1 ^ start[1] * 0x85ebca77 ^ start[2] * 0xc2b2ae3d ^
	       start[3] * 0x27d4eb2f;
}

/* Nothing but its length to tell it by: another one could be taken for it. */
static __always_inline bool sample_is_blank(const struct packet *pkt)
{
	return pkt->proto != IPPROTO_TCP && !pkt->ip_id && sample_payload(pkt) < sizeof(__u32);
}

/* How long the one that follows `old` (or NULL) is held; 0: `old` stays. */
static __always_inline __u32 sample_hold(const struct ftctl_sample *old, __u64 now)
{
	__s64 age;

	if (!old)
		return SAMPLE_HOLD_NS;
	age = (__s64)(now - old->ts_ns);
	if (age < (__s64)old->hold_ns)
		return 0;
	if (age > (__s64)SAMPLE_MAX_AGE_NS || !old->hold_ns)
		return SAMPLE_HOLD_NS;
	return old->hold_ns < SAMPLE_HOLD_MAX_NS ? 2 * old->hold_ns : SAMPLE_HOLD_MAX_NS;
}

static __always_inline void sample_put(struct context *ctx, const struct packet *pkt,
				       const struct ftctl_flow *flow, struct ftctl_config *cfg, __u64 now)
{
	struct ftctl_sample_key key = sample_key(flow);
	struct ftctl_sample *old = bpf_map_lookup_elem(&samples, &key);
	struct ftctl_sample sample = {
		.ts_ns = now,
		.l4_tag = sample_tag(ctx, pkt),
		.ip_id = pkt->ip_id,
		.len = pkt->seglen,
		.ttl = pkt->ttl,
		.tos = pkt->new_tos,
		.frag_off = pkt->frag_off,
		.label = pkt->label,
		.hold_ns = sample_hold(old, now),
	};

	if (cfg->watch_until_ns < now + SAMPLE_WATCH_NS / 2)
		cfg->watch_until_ns = now + SAMPLE_WATCH_NS;
	if (sample_is_blank(pkt) || !sample.hold_ns)
		return;
	bpf_map_update_elem(&samples, &key, &sample, BPF_ANY);
}

#endif
