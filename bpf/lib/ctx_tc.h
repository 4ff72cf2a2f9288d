/* SPDX-License-Identifier: GPL-2.0-only */
/* Context layer for TC: socket buffers, aggregated ones included. Same verbs as ctx_xdp.h. */
#ifndef FTCTL_LIB_CTX_H
#define FTCTL_LIB_CTX_H

#include <linux/pkt_cls.h>

#include "csum.h"
#include "kernel.h"
#include "maps.h"
#include "packet.h"

#define context __sk_buff

#define CTX_PASS TC_ACT_UNSPEC /* let other programs and filters see it */
#define CTX_DROP TC_ACT_SHOT

/* Per CPU: the packet now on its way to the egress hook is one that TC ingress redirected. */
struct tc_scratch {
	__u32 redirected;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tc_scratch);
} scratch SEC(".maps");

static __always_inline struct tc_scratch *scratch_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

static __always_inline void *ctx_data(const struct __sk_buff *skb)
{
	return CTX_POINTER(skb, data);
}

static __always_inline void *ctx_data_end(const struct __sk_buff *skb)
{
	return CTX_POINTER(skb, data_end);
}

static __always_inline __u32 ctx_len(struct __sk_buff *skb)
{
	return skb->len;
}

/* Where KERNEL_HAS_CTX. */
static __always_inline bool ctx_route_gen(struct __sk_buff *skb, bool v6, __u32 *gen)
{
	struct sk_buff *buffer = bpf_cast_to_kern_ctx(skb);

	return kernel_route_gen(buffer->dev, v6, gen);
}

/* Makes the first `len` bytes linear. Only what is needed: payload stays in its pages. */
static __always_inline bool ctx_pull(struct __sk_buff *skb, __u32 len)
{
	if (likely(ctx_data(skb) + len <= ctx_data_end(skb)))
		return true;
	return skb->len >= len && bpf_skb_pull_data(skb, len) == 0;
}

/* Copies a header out of the buffer, wherever it lies. */
static __always_inline bool ctx_read(struct __sk_buff *skb, __u32 off, void *to, __u32 len)
{
	const void *from = ctx_data(skb) + off;

	if (likely(from + len <= ctx_data_end(skb))) {
		copy_words(to, from, len);
		return true;
	}
	return bpf_skb_load_bytes(skb, off, to, len) == 0;
}

static __always_inline bool ctx_load(struct __sk_buff *skb, __u32 off, void *to, __u32 len)
{
	return bpf_skb_load_bytes(skb, off, to, len) == 0;
}

static __always_inline bool ctx_vlan_present(const struct __sk_buff *skb)
{
	return skb->vlan_present;
}

static __always_inline __u16 ctx_vlan_proto(const struct __sk_buff *skb)
{
	return (__u16)skb->vlan_proto;
}

static __always_inline __u16 ctx_vlan_tci(const struct __sk_buff *skb)
{
	return bpf_htons((__u16)skb->vlan_tci);
}

static __always_inline __u32 ctx_gso_size(const struct __sk_buff *skb)
{
	return skb->gso_size;
}

static __always_inline bool ctx_egress_ok(const struct ftctl_path_body *path)
{
	return true;
}

/* CHECKSUM_* of the buffer. */
static __always_inline __u32 tc_summed(struct __sk_buff *skb)
{
	if (KERNEL_HAS_CTX) {
		struct sk_buff *buffer = bpf_cast_to_kern_ctx(skb);

		return BPF_CORE_READ_BITFIELD(buffer, ip_summed);
	}
	return CHECKSUM_UNKNOWN;
}

/* Is skb->csum to be kept, or may it be? Only helpers can. */
static __always_inline bool tc_csum_by_helper(struct __sk_buff *skb)
{
	__u32 summed = tc_summed(skb);

	return summed == CHECKSUM_UNKNOWN || summed == CHECKSUM_COMPLETE;
}

/* Of the packet as it arrived. */
static __always_inline __u16 tc_pseudo_sum(const struct packet *pkt)
{
	const __u16 *src = (const __u16 *)&pkt->key.src, *dst = (const __u16 *)&pkt->key.dst;
	__u32 sum = bpf_htons(pkt->proto) + bpf_htons((__u16)(pkt->len - packet_ip_len(pkt)));

#pragma unroll
	for (int i = 0; i < 8; i++) /* of IPv4 all but the first two words are zero */
		sum += (__u32)src[i] + dst[i];
	return csum_fold(sum);
}

/*
 * A UDP checksum field of zero is either "none" or, in a buffer whose checksum the device is to
 * finish (CHECKSUM_PARTIAL), a pseudo-header sum that happens to be zero; udp_manip_pkt()
 * tells them apart by ip_summed, which a program on an old kernel cannot see. Only the one value of the
 * length that makes the pseudo-header sum zero is ambiguous there; that packet goes to the stack.
 */
static __always_inline bool ctx_csum_known(struct __sk_buff *skb, const struct packet *pkt)
{
	if (tc_summed(skb) != CHECKSUM_UNKNOWN || pkt->proto != IPPROTO_UDP || pkt->l4_check)
		return true;
	return tc_pseudo_sum(pkt) != 0xffff;
}

/*
 * A checksum for the device to finish: its field is the sum of the pseudo-header then. Where the kernel does
 * not tell, one finished checksum in 65536 is taken for one.
 */
static __always_inline bool tc_csum_unfinished(struct __sk_buff *skb, const struct packet *pkt)
{
	__u32 summed = tc_summed(skb);

	if (summed != CHECKSUM_UNKNOWN)
		return summed == CHECKSUM_PARTIAL;
	if (pkt->proto == IPPROTO_GRE)
		return false;
	return pkt->l4_check == tc_pseudo_sum(pkt) || (!pkt->l4_check && tc_pseudo_sum(pkt) == 0xffff);
}

/* skb->csum, where the device has summed the packet; elsewhere the helper would do nothing. */
static __always_inline void ctx_csum_changed(struct __sk_buff *skb, __s64 diff)
{
	if (diff >= 0 && tc_csum_by_helper(skb))
		bpf_csum_update(skb, (__u32)diff);
}

static __always_inline bool ctx_trim(struct __sk_buff *skb, __u32 bytes)
{
	if (skb->gso_size)
		return false;
	return bpf_skb_change_tail(skb, skb->len - bytes, 0) == 0;
}

/*
 * The L4 checksum at `l4`, for NAT, by helper: it knows what kind of checksum the buffer has
 * (finished, to be finished by the device, or summed by the device).
 */
static __always_inline bool tc_l4_csum_helper(struct __sk_buff *skb, __u32 l4, const struct ftctl_flow *flow,
					      const struct packet *pkt)
{
	__u32 at = l4 + offsetof(struct tcphdr, check);
	__u64 flags = 0;

	if (pkt->proto == IPPROTO_UDP) {
		at = l4 + offsetof(struct udphdr, check);
		flags = BPF_F_MARK_MANGLED_0; /* zero stays zero; a sum of zero is sent as 0xffff */
	}
	if (bpf_l4_csum_replace(skb, at, 0, flow->addr_delta, flags | BPF_F_PSEUDO_HDR))
		return false;
	/*
	 * The helper takes the addresses for IPv4's, whose change the header checksum makes up for;
	 * here the sum of the whole packet stays the same without (BPF_F_IPV6 of newer kernels).
	 */
	if (packet_v6(pkt))
		bpf_csum_update(skb, flow->addr_delta);
	return bpf_l4_csum_replace(skb, at, 0, flow->port_delta, flags) == 0;
}

static __always_inline bool ctx_l4_csum(struct __sk_buff *skb, __u32 l4, const struct ftctl_flow *flow,
					const struct packet *pkt)
{
	if (tc_csum_by_helper(skb))
		return tc_l4_csum_helper(skb, l4, flow, pkt);
	if (tc_summed(skb) == CHECKSUM_PARTIAL)
		return l4_csum_partial(ctx_data(skb) + l4, ctx_data_end(skb), flow, pkt);
	return l4_csum_finished(ctx_data(skb) + l4, ctx_data_end(skb), flow, pkt);
}

static __always_inline int ctx_transmit(struct __sk_buff *skb, __u32 ifindex, const struct packet *pkt)
{
	struct tc_scratch *sc = scratch_get();

	if (sc)
		sc->redirected = 1;
	if (!packet_v6(pkt)) /* ip6_forward() leaves it */
		skb->priority = tos_priority(pkt->new_tos);
	skb->tstamp = 0; /* skb_clear_tstamp(): a receive time must not become a departure time */
	return (int)bpf_redirect(ifindex, 0);
}

#endif
