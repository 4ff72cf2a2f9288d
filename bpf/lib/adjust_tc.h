/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TC: the buffer gets its new headers by the helpers that keep its offsets, its protocol and its
 * segments right. Same verbs as adjust_xdp.h.
 */
#ifndef FTCTL_LIB_ADJUST_H
#define FTCTL_LIB_ADJUST_H

#include "parse_l2.h"
#include "write.h"

#define ADJ_ROOM_DECAP_L3_IPV4 (1ULL << 7)
#define ADJ_ROOM_DECAP_L3_IPV6 (1ULL << 8)

static __always_inline bool tc_changes_family(const struct packet *pkt)
{
	return pkt->key.tunnel && pkt->key.tunnel != pkt->key.family;
}

/* Can the packet be brought into the shape that the path wants, at this hook? 0 or the reason. */
static __always_inline __u32 ctx_adjust_check(struct __sk_buff *skb, const struct ftctl_path_body *path,
					      const struct packet *pkt)
{
	/* Aggregates of PPPoE do not exist on the slow path: ppp devices have no segmentation. */
	if ((pkt->key.pppoe || path->pppoe) && skb->gso_size)
		return FTCTL_R_GSO;
	/* A ppp device finishes checksums; what is below it may leave that to the next machine. */
	if (path->pppoe && tc_csum_unfinished(skb, pkt))
		return FTCTL_R_CSUM_UNKNOWN;
	if (tc_changes_family(pkt) && !KERNEL_SINCE(6, 3))
		return FTCTL_R_HEADROOM;
	return 0;
}

/*
 * After a change of the EtherType in the frame: skb->protocol is what the next device goes by, and
 * only the VLAN helpers read it from the frame (skb_vlan_pop).
 */
static __always_inline bool tc_reread_protocol(struct __sk_buff *skb)
{
	const __be16 tag = bpf_htons(ETH_P_8021Q);

	return bpf_skb_vlan_push(skb, tag, 1) == 0 && bpf_skb_vlan_push(skb, tag, 1) == 0 &&
	       bpf_skb_vlan_pop(skb) == 0 && bpf_skb_vlan_pop(skb) == 0;
}

/*
 * No helper takes a PPPoE header away, but its 8 bytes between the addresses and the PPP protocol
 * have the size of two tags: made to look like them, they are popped.
 */
static __always_inline bool tc_pop_pppoe(struct __sk_buff *skb, bool v6)
{
	__u16 as_tags[5] = {bpf_htons(ETH_P_8021Q), 0, bpf_htons(ETH_P_8021Q), 0,
			    v6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP)};
	void *eth = ctx_data(skb);

	if (eth + 2 * ETH_ALEN + sizeof(as_tags) > ctx_data_end(skb))
		return false;
	__builtin_memcpy(eth + 2 * ETH_ALEN, as_tags, sizeof(as_tags));
	/* the first two pops end what tc_reread_protocol() began: the next tag goes into the metadata */
	return tc_reread_protocol(skb) && bpf_skb_vlan_pop(skb) == 0 && bpf_skb_vlan_pop(skb) == 0;
}

/* FIXED_GSO: the segments of an aggregate keep their size, as they do on the slow path. */
static __always_inline bool tc_room(struct __sk_buff *skb, int bytes, __u32 mode, __u64 flags)
{
	return !bytes || bpf_skb_adjust_room(skb, bytes, mode, flags | BPF_F_ADJ_ROOM_FIXED_GSO) == 0;
}

/*
 * Decap takes the inner IP header out of the buffer instead of the outer one, and writes it anew, where the
 * bytes behind the outer header are all of the inner one: then the helper moves both, which overlap. Taking
 * the outer one it would move the 14 bytes of Ethernet by 20 or 40, which is slow on x86: memmove() does that
 * by `rep movsb`, of which Intel's processors are three times as slow when the copy begins within 64 bytes
 * behind the original. Not where skb->csum is to be kept: the helper keeps it for the bytes that it takes.
 */
static __always_inline bool tc_takes_inner(struct __sk_buff *skb, const struct ftctl_path_body *path,
					   const struct packet *pkt)
{
	return pkt->key.tunnel && pkt->key.tunnel != path->tunnel && pkt->outer_len <= packet_ip_len(pkt) &&
	       !tc_csum_by_helper(skb);
}

/* Takes the outer headers off, and makes room for those of the path. Whether that fails half-way is told. */
static __always_inline enum adjusted tc_outer_room(struct __sk_buff *skb, const struct ftctl_path_body *path,
						   const struct packet *pkt)
{
	int old = pkt->outer_len, new = (int)path_outer_len(path), pppoe = path->pppoe ? PPPOE_HLEN : 0;
	__u64 flags = 0;
	enum adjusted failed = ADJUST_UNTOUCHED;

	if (pkt->key.tunnel == path->tunnel)
		return tc_room(skb, new - old + pppoe, BPF_ADJ_ROOM_MAC, 0) ? ADJUSTED : failed;
	if (old) {
		if (tc_changes_family(pkt))
			flags = packet_v6(pkt) ? ADJ_ROOM_DECAP_L3_IPV6 : ADJ_ROOM_DECAP_L3_IPV4;
		if (!tc_room(skb, -old, tc_takes_inner(skb, path, pkt) ? BPF_ADJ_ROOM_NET : BPF_ADJ_ROOM_MAC,
			     flags))
			return failed;
		failed = ADJUST_BROKEN;
	}
	flags = 0;
	if (path->tunnel == FTCTL_TUNNEL_IPV4)
		flags = BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	else if (path->tunnel == FTCTL_TUNNEL_IPV6)
		flags = BPF_F_ADJ_ROOM_ENCAP_L3_IPV6;
	return tc_room(skb, new + pppoe, BPF_ADJ_ROOM_MAC, flags) ? ADJUSTED : failed;
}

/*
 * What the outer IPv6 header of `len` bytes (40, or 48 with an encapsulation limit) at `off` adds to
 * skb->csum, or with `gone` takes from it. Negative: it could not be reached.
 */
static __always_inline __s64 tc_outer6_diff(struct __sk_buff *skb, __u32 off, __u32 len, bool gone)
{
	void *outer = ctx_data(skb) + off;

	if (len > FTCTL_OUTER_MAX || outer + FTCTL_OUTER_MAX > ctx_data_end(skb))
		return -1;
	return gone ? bpf_csum_diff(outer, len, NULL, 0, 0) : bpf_csum_diff(NULL, 0, outer, len, 0);
}

/*
 * A frame with tags or PPPoE is changed in several steps, of which the first makes the buffer private
 * (skb_ensure_writable); a later one fails only where there is no memory for a few bytes.
 */
static __always_inline enum adjusted ctx_adjust(struct __sk_buff *skb, const struct ftctl_path_body *path,
						const struct packet *pkt)
{
	enum adjusted failed = ADJUST_UNTOUCHED, done;
	__s64 gone = 0;

	if (unlikely(pkt->key.vlan[0].proto)) {
		if (bpf_skb_vlan_pop(skb))
			return ADJUST_UNTOUCHED;
		if (pkt->key.vlan[1].proto && bpf_skb_vlan_pop(skb))
			return ADJUST_BROKEN;
		failed = ADJUST_BROKEN;
	}
	if (unlikely(pkt->key.pppoe)) {
		if (!tc_pop_pppoe(skb,
				  pkt->key.tunnel ? pkt->key.tunnel == FTCTL_TUNNEL_IPV6 : packet_v6(pkt)))
			return ADJUST_BROKEN;
		failed = ADJUST_BROKEN;
	}
	/* One outer header is written over another; of one that is taken out the helper tells skb->csum. */
	if (pkt->key.tunnel == FTCTL_TUNNEL_IPV6 && path->tunnel == FTCTL_TUNNEL_IPV6 &&
	    tc_csum_by_helper(skb)) {
		gone = tc_outer6_diff(skb, ETH_HLEN, pkt->outer_len, true);
		if (gone < 0)
			return failed;
	}
	done = tc_outer_room(skb, path, pkt);
	if (done != ADJUSTED)
		return failed == ADJUST_BROKEN ? failed : done;
	if (gone)
		bpf_csum_update(skb, (__u32)gone);
	return ADJUSTED;
}

/* The tags of the path, innermost first: the outermost stays beside the frame, as a VLAN device leaves it. */
static __always_inline bool tc_push_tags(struct __sk_buff *skb, const struct ftctl_path_body *path, __u8 tos)
{
	const __u16 *word = (const __u16 *)path->l2;

	if (path->vlans > 1 && bpf_skb_vlan_push(skb, word[8], bpf_ntohs(path_tci(path, 1, tos))))
		return false;
	return !path->vlans || bpf_skb_vlan_push(skb, word[6], bpf_ntohs(path_tci(path, 0, tos))) == 0;
}

/* Ethernet and PPPoE, without the tags. */
static __always_inline bool tc_write_l2(struct __sk_buff *skb, const struct ftctl_path_body *path,
					__u32 l3_len)
{
	__u32 at = 2 * ETH_ALEN + (path->vlans & 3) * 4;
	void *to = ctx_data(skb);

	if (to + ETH_HLEN + PPPOE_HLEN > ctx_data_end(skb))
		return false;
	copy_words(to, path->l2, 2 * ETH_ALEN);
	copy_words(to + 2 * ETH_ALEN, path->l2 + at, 2);
	if (path->pppoe) {
		__u16 len = bpf_htons((__u16)(l3_len + 2)); /* with the PPP protocol */

		copy_words(to + ETH_HLEN, path->l2 + at + 2, PPPOE_HLEN);
		__builtin_memcpy(to + ETH_HLEN + 4, &len, sizeof(len));
	}
	return true;
}

static __always_inline bool ctx_write(struct __sk_buff *skb, const struct ftctl_path_body *path,
				      const struct flow_ref *ref, const struct packet *pkt)
{
	__u32 outer_len = path_outer_len(path);
	__u32 l2_len = ETH_HLEN + (path->pppoe ? PPPOE_HLEN : 0);

	if (!write_inner(skb, l2_len + outer_len, ref, pkt, tc_takes_inner(skb, path, pkt)) ||
	    !tc_write_l2(skb, path, pkt->len + outer_len) || !write_outer(skb, l2_len, path, pkt))
		return false;
	if (path->tunnel == FTCTL_TUNNEL_IPV6 && tc_csum_by_helper(skb)) {
		__s64 came = tc_outer6_diff(skb, l2_len, outer_len, false);

		if (came < 0)
			return false;
		bpf_csum_update(skb, (__u32)came);
	}
	if (path->pppoe && !tc_reread_protocol(skb))
		return false;
	return tc_push_tags(skb, path, pkt->new_tos);
}

#endif
