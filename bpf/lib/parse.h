/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parser: link layer, an optional outer header, IPv4 or IPv6, TCP, UDP or GRE. Returns 0, or
 * the reason why the packet goes to the stack. It writes nothing to the packet.
 *
 * What is asked of a packet here is what ip_rcv_core(), ip6_rcv_core(), ip_forward(),
 * ip6_forward(), tcp_error() and udp_error() of the kernel ask of it, except for the L4 checksum.
 *
 * `out` is given by the witness, which looks at what the stack has made: the same headers, but
 * nothing to check, and what is outside of the key is kept.
 *
 * Needs the context layer (ctx_xdp.h or ctx_tc.h) to be included first.
 */
#ifndef FTCTL_LIB_PARSE_H
#define FTCTL_LIB_PARSE_H

#include "parse_ip.h"
#include "parse_l2.h"

/* One outer header: from here on `pkt` describes the inside. */
static __always_inline __u32 parse_tunnel(struct context *ctx, __u32 *off, struct ip_extent *ip,
					  struct packet *pkt, struct packet_outside *out)
{
	__u32 avail = ip->total - ip->hlen, reason;
	__u16 inner = pkt->proto == IPPROTO_IPIP ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	__u8 tos = pkt->tos;

	pkt->key.tunnel = packet_v6(pkt) ? FTCTL_TUNNEL_IPV6 : FTCTL_TUNNEL_IPV4;
	ftctl_key_words(&pkt->key.outer_src, &pkt->key, FTCTL_WORD_SRC, 8);
	pkt->outer_len = ip->hlen;
	if (out) {
		out->tos = tos;
		out->ttl = pkt->ttl;
		out->frag_off = pkt->frag_off;
		out->label = pkt->label;
		out->limit = pkt->limit;
		out->has_limit = pkt->has_limit;
	}
	pkt->key.src = pkt->key.dst = (struct ftctl_addr){};
	pkt->ip_words = 0;
	pkt->label = 0;
	pkt->has_limit = 0;
	*off += ip->hlen;
	reason = parse_ip(ctx, inner, *off, avail, pkt, ip, out);
	if (reason)
		return reason;
	if (out) {
		pkt->new_tos = pkt->tos;
		return 0;
	}
	if (ip->total != avail)
		return because(FTCTL_R_BAD_LENGTH);
	if (pkt->has_limit) /* RFC 2473: an inner packet with a limit of its own is for the stack */
		return because(FTCTL_R_IP_OPTIONS);
	if (ftctl_ecn_decap_drops(tos, pkt->tos))
		return because(FTCTL_R_ECN);
	pkt->new_tos = ftctl_ecn_decap(tos, pkt->tos);
	return 0;
}

static __always_inline bool parse_is_tunnel(__u8 proto)
{
	return proto == IPPROTO_IPIP || proto == IPPROTO_IPV6;
}

static __always_inline __u32 parse_packet(struct context *ctx, const struct ftctl_config *cfg,
					  const struct ftctl_slot *slot, struct packet *pkt,
					  struct packet_outside *out)
{
	struct ip_extent ip = {};
	__u32 off = 0, avail = 0, reason;
	__u16 proto = 0;

	reason = parse_l2(ctx, slot, pkt, out, &proto, &off, &avail);
	if (reason)
		return reason;
	reason = parse_ip(ctx, proto, off, avail, pkt, &ip, out);
	if (reason)
		return reason;
	/* ip_rcv_core() and ip6_rcv_core() trim what the link layer added */
	pkt->pad += avail - ip.total;
	if (parse_is_tunnel(pkt->proto) && cfg->tunnels)
		reason = parse_tunnel(ctx, &off, &ip, pkt, out);
	else if (unlikely(pkt->has_limit))
		reason = FTCTL_R_IP_OPTIONS;
	else
		pkt->new_tos = pkt->tos;
	if (reason)
		return reason;
	if (!out && unlikely(pkt->ttl <= 1))
		return because(FTCTL_R_TTL);

	pkt->l3 = off;
	pkt->len = (__u16)ip.total;
	pkt->key.iif_proto = ftctl_iif_proto(cfg_ifindex, pkt->proto);

	reason = parse_l4(ctx, off + ip.hlen, ip.total - ip.hlen, ip.hlen, pkt, out);
	if (reason)
		return reason;
	return parse_segments(ctx, pkt);
}

/* What may be taken; SYN, FIN, RST and what tcp_error() calls invalid may not. */
static __always_inline bool parse_tcp_plain(__u8 flags)
{
	flags &= ~(TCP_PSH | TCP_ECE | TCP_CWR);
	return flags == TCP_ACK || flags == (TCP_ACK | TCP_URG);
}

#endif
