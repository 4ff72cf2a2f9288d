/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parser: Ethernet, IPv4, an optional IPIP outer header, TCP or UDP. Returns 0, or the
 * reason why the packet goes to the stack. It writes nothing to the packet.
 *
 * What is asked of a packet here is what ip_rcv_core(), ip_forward(), tcp_error() and
 * udp_error() of the kernel ask of it, except for the L4 checksum.
 *
 * Needs the context layer (ctx_xdp.h or ctx_tc.h) to be included first.
 */
#ifndef FTCTL_LIB_PARSE_H
#define FTCTL_LIB_PARSE_H

#include "csum.h"
#include "maps.h"
#include "packet.h"

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_PSH 0x08
#define TCP_ACK 0x10
#define TCP_URG 0x20
#define TCP_ECE 0x40
#define TCP_CWR 0x80

/* The IPv4 header at `off`; `avail`: bytes from there to the end of the frame or outer packet. */
static __always_inline __u32 parse_ipv4(struct context *ctx, __u32 off, __u32 avail, struct iphdr *out)
{
	struct iphdr *ip;

	if (!ctx_pull(ctx, off + sizeof(*ip)))
		return FTCTL_R_BAD_LENGTH;
	ip = ctx_data(ctx) + off;
	if ((void *)(ip + 1) > ctx_data_end(ctx))
		return FTCTL_R_BAD_LENGTH;
	if (unlikely(ip->version != 4 || ip->ihl < 5))
		return FTCTL_R_BAD_LENGTH;
	if (unlikely(ip->ihl != 5))
		return FTCTL_R_IP_OPTIONS;
	if (unlikely(ip->frag_off & bpf_htons(IP_MF | IP_OFFSET)))
		return FTCTL_R_FRAGMENT;
	if (unlikely(csum_iphdr(ip) != 0xffff))
		return FTCTL_R_BAD_CHECKSUM;
	if (unlikely(bpf_ntohs(ip->tot_len) < sizeof(*ip) || bpf_ntohs(ip->tot_len) > avail))
		return FTCTL_R_BAD_LENGTH;
	*out = *ip;
	return 0;
}

/* The L4 header at `off`, `len` bytes long with its payload. */
static __always_inline __u32 parse_l4(struct context *ctx, __u32 off, __u32 len, struct packet *pkt)
{
	if (pkt->proto == IPPROTO_TCP) {
		struct tcphdr *tcp;
		__u32 doff;

		if (len < sizeof(*tcp) || !ctx_pull(ctx, off + sizeof(*tcp)))
			return FTCTL_R_BAD_LENGTH;
		tcp = ctx_data(ctx) + off;
		if ((void *)(tcp + 1) > ctx_data_end(ctx))
			return FTCTL_R_BAD_LENGTH;
		doff = tcp->doff * 4U;
		if (unlikely(doff < sizeof(*tcp) || doff > len))
			return FTCTL_R_BAD_LENGTH;
		pkt->key.in.sport = tcp->source;
		pkt->key.in.dport = tcp->dest;
		pkt->l4_tag = tcp->seq;
		pkt->l4_check = tcp->check;
		pkt->tcp_flags = ((__u8 *)tcp)[13];
		pkt->hdrlen = IP_HLEN + doff;
		return 0;
	}
	if (pkt->proto == IPPROTO_UDP) {
		struct udphdr *udp;

		if (len < sizeof(*udp) || !ctx_pull(ctx, off + sizeof(*udp)))
			return FTCTL_R_BAD_LENGTH;
		udp = ctx_data(ctx) + off;
		if ((void *)(udp + 1) > ctx_data_end(ctx))
			return FTCTL_R_BAD_LENGTH;
		/*
		 * Too long or too short is malformed. Data behind the UDP length is not, but conntrack sums
		 * it (nf_ip_checksum() takes the whole payload) and may call the packet INVALID for it.
		 */
		if (unlikely(bpf_ntohs(udp->len) != len))
			return FTCTL_R_BAD_LENGTH;
		pkt->key.in.sport = udp->source;
		pkt->key.in.dport = udp->dest;
		pkt->l4_tag = udp->len;
		pkt->l4_check = udp->check;
		pkt->hdrlen = IP_HLEN + sizeof(*udp);
		return 0;
	}
	return FTCTL_R_PROTOCOL;
}

/* Segments of an aggregated packet (skb_gso_network_seglen), or the packet itself. */
static __always_inline __u32 parse_segments(struct context *ctx, struct packet *pkt)
{
	__u32 size = ctx_gso_size(ctx);
	__u32 payload = pkt->len - pkt->hdrlen;

	pkt->segs = 1;
	pkt->seglen = pkt->len;
	if (!size || payload <= size)
		return 0;
	if (pkt->hdrlen + size > 0xffff)
		return FTCTL_R_GSO;
	pkt->seglen = pkt->hdrlen + size;
	pkt->segs = (payload + size - 1) / size;
	return 0;
}

static __always_inline __u32 parse_packet(struct context *ctx, const struct ftctl_config *cfg,
					  const struct ftctl_slot *slot, struct packet *pkt)
{
	__u32 avail = ctx_len(ctx);
	__u32 off = sizeof(struct ethhdr);
	struct ethhdr *eth;
	struct iphdr ip;
	__u32 reason;
	__u64 mac = 0;

	if (ctx_vlan_present(ctx))
		return FTCTL_R_VLAN;
	eth = ctx_data(ctx);
	if ((void *)(eth + 1) > ctx_data_end(ctx))
		return FTCTL_R_BAD_LENGTH;
	if (eth->h_proto != bpf_htons(ETH_P_IP)) {
		if (eth->h_proto == bpf_htons(ETH_P_8021Q) || eth->h_proto == bpf_htons(ETH_P_8021AD))
			return FTCTL_R_VLAN;
		return FTCTL_R_NOT_IP;
	}
	__builtin_memcpy(&mac, eth->h_dest, ETH_ALEN);
	if (unlikely(mac != slot->mac))
		return eth->h_dest[0] & 1 ? FTCTL_R_GROUP : FTCTL_R_OTHER_HOST;

	avail -= off;
	reason = parse_ipv4(ctx, off, avail, &ip);
	if (reason)
		return reason;
	/* ip_rcv_core() trims what the link layer added */
	pkt->pad = avail - bpf_ntohs(ip.tot_len);

	if (ip.protocol == IPPROTO_IPIP && cfg->tunnels) {
		__u8 outer_tos = ip.tos;

		pkt->tunneled = 1;
		pkt->key.outer_src = ip.saddr;
		pkt->key.outer_dst = ip.daddr;
		off += IP_HLEN;
		avail = bpf_ntohs(ip.tot_len) - IP_HLEN;
		reason = parse_ipv4(ctx, off, avail, &ip);
		if (reason)
			return reason;
		if (bpf_ntohs(ip.tot_len) != avail)
			return FTCTL_R_BAD_LENGTH;
		if (ftctl_ecn_decap_drops(outer_tos, ip.tos))
			return FTCTL_R_ECN;
		pkt->new_tos = ftctl_ecn_decap(outer_tos, ip.tos);
	} else {
		pkt->new_tos = ip.tos;
	}
	if (unlikely(ip.ttl <= 1))
		return FTCTL_R_TTL;

	pkt->l3 = off;
	pkt->len = bpf_ntohs(ip.tot_len);
	pkt->frag_off = ip.frag_off;
	pkt->ip_id = ip.id;
	pkt->ip_check = ip.check;
	pkt->proto = ip.protocol;
	pkt->ttl = ip.ttl;
	pkt->tos = ip.tos;
	pkt->key.in.src = ip.saddr;
	pkt->key.in.dst = ip.daddr;
	pkt->key.in.iif_proto = ftctl_iif_proto(cfg_ifindex, ip.protocol);

	reason = parse_l4(ctx, off + IP_HLEN, pkt->len - IP_HLEN, pkt);
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
