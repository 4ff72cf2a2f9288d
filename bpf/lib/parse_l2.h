/* SPDX-License-Identifier: GPL-2.0-only */
/* Link layer: Ethernet, up to two tags, PPPoE. Part of parse.h. */
#ifndef FTCTL_LIB_PARSE_L2_H
#define FTCTL_LIB_PARSE_L2_H

#include "maps.h"
#include "packet.h"

#define PPPOE_HLEN     8      /* with the PPP protocol (RFC 2516 section 4) */
#define PPPOE_HEAD     0x1100 /* version 1, type 1, code 0: session data */
#define PPP_PROTO_IP   0x0021
#define PPP_PROTO_IPV6 0x0057

struct vlan_header {
	__u16 tci;   /* be */
	__u16 proto; /* be; of what follows */
};

struct pppoe_header {
	__u16 head;  /* be */
	__u16 sid;   /* be */
	__u16 len;   /* be; of what follows this field */
	__u16 proto; /* be */
};

static __always_inline bool l2_is_tag(__u16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD);
}

/* is_valid_ether_addr(), which br_handle_frame() asks of the source. */
static __always_inline bool l2_is_station(struct context *ctx)
{
	__u8 mac[ETH_ALEN];

	if (!ctx_read(ctx, offsetof(struct ethhdr, h_source), mac, sizeof(mac)))
		return false;
	return !(mac[0] & 1) && (mac[0] | mac[1] | mac[2] | mac[3] | mac[4] | mac[5]);
}

/* The next tag, outermost first. False: there are two already. */
static __always_inline bool l2_tag(struct packet *pkt, struct packet_outside *out, __u16 proto, __u16 tci)
{
	const struct ftctl_vlan vlan = {proto, tci & bpf_htons(TCI_VID)};

	const __u8 bits = (__u8)(bpf_ntohs(tci) >> 12);

	if (!pkt->key.vlan[0].proto) {
		pkt->key.vlan[0] = vlan;
		if (out)
			out->tag_bits[0] = bits;
	} else if (!pkt->key.vlan[1].proto) {
		pkt->key.vlan[1] = vlan;
		if (out)
			out->tag_bits[1] = bits;
	} else {
		return false;
	}
	return true;
}

/* pppoe_rcv() and ppp_receive_nonmp_frame(): session data of an uncompressed protocol, or the stack's. */
static __always_inline __u32 parse_pppoe(struct context *ctx, struct packet *pkt, __u16 *proto, __u32 *off,
					 __u32 *avail)
{
	struct pppoe_header ppp;
	__u32 len;

	if (!ctx_read(ctx, *off, &ppp, sizeof(ppp)))
		return because(FTCTL_R_BAD_LENGTH);
	if (ppp.head != bpf_htons(PPPOE_HEAD) || !ppp.sid)
		return because(FTCTL_R_NOT_IP);
	len = bpf_ntohs(ppp.len);
	*avail -= PPPOE_HLEN - sizeof(ppp.proto);
	if (len < sizeof(ppp.proto) || len > *avail)
		return because(FTCTL_R_BAD_LENGTH);
	pkt->pad = *avail - len;
	if (ppp.proto == bpf_htons(PPP_PROTO_IP))
		*proto = bpf_htons(ETH_P_IP);
	else if (ppp.proto == bpf_htons(PPP_PROTO_IPV6))
		*proto = bpf_htons(ETH_P_IPV6);
	else
		return because(FTCTL_R_NOT_IP);
	pkt->key.pppoe = ppp.sid;
	if (!ctx_read(ctx, offsetof(struct ethhdr, h_source), pkt->key.peer, ETH_ALEN))
		return because(FTCTL_R_BAD_LENGTH);
	*off += PPPOE_HLEN;
	*avail = len - sizeof(ppp.proto);
	return 0;
}

/* Up to the IP header (whoever needs the source reads it: most packets do not): its EtherType, its offset and
 * the bytes from there on; pkt->pad is what of the frame is not of them. */
static __always_inline __u32 parse_l2(struct context *ctx, const struct ftctl_slot *slot, struct packet *pkt,
				      struct packet_outside *out, __u16 *proto, __u32 *off, __u32 *avail)
{
	struct ethhdr eth;
	__u64 mac = 0;

	if (!ctx_read(ctx, 0, &eth, sizeof(eth)))
		return because(FTCTL_R_BAD_LENGTH);
	*off = sizeof(eth);
	*proto = eth.h_proto;
	if (ctx_vlan_present(ctx))
		l2_tag(pkt, out, ctx_vlan_proto(ctx), ctx_vlan_tci(ctx));
	for (int i = 0; i < 2; i++) {
		struct vlan_header vlan;

		if (likely(!l2_is_tag(*proto)))
			break;
		if (!ctx_read(ctx, *off, &vlan, sizeof(vlan)))
			return because(FTCTL_R_BAD_LENGTH);
		if (!l2_tag(pkt, out, *proto, vlan.tci))
			return because(FTCTL_R_VLAN);
		*proto = vlan.proto;
		*off += sizeof(vlan);
	}
	*avail = ctx_len(ctx) - *off;
	if (unlikely(*proto == bpf_htons(ETH_P_PPP_SES))) {
		__u32 reason = parse_pppoe(ctx, pkt, proto, off, avail);

		if (reason)
			return reason;
	}
	if (*proto != bpf_htons(ETH_P_IP) && *proto != bpf_htons(ETH_P_IPV6))
		return l2_is_tag(*proto) ? FTCTL_R_VLAN : FTCTL_R_NOT_IP;
	if (out) {
		__builtin_memcpy(out->macs, &eth, sizeof(out->macs));
		return 0;
	}
	if (unlikely(slot->flags & FTCTL_S_PORT) && !l2_is_station(ctx))
		return because(FTCTL_R_GROUP);
	__builtin_memcpy(&mac, eth.h_dest, ETH_ALEN);
	if (likely(mac == slot->mac))
		return 0;
	if (mac != slot->upper || slot->mac == FTCTL_NO_MAC)
		return eth.h_dest[0] & 1 ? FTCTL_R_GROUP : FTCTL_R_OTHER_HOST;
	pkt->upper = FTCTL_F_UPPER;
	return 0;
}

#endif
