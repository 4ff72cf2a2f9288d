/* SPDX-License-Identifier: GPL-2.0-only */
/* IPv4 and IPv6 headers in one form, and what they carry. Part of parse.h. */
#ifndef FTCTL_LIB_PARSE_IP_H
#define FTCTL_LIB_PARSE_IP_H

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

#define IPV6_LABEL 0x000fffff

/* RFC 2473 section 4.1.1, in the layout of the kernel's init_tel_txopt(): the only extension header known. */
struct limit_header {
	__u8 next;
	__u8 len;
	__u8 option;
	__u8 option_len;
	__u8 limit;
	__u8 padn;
	__u8 padn_len;
	__u8 zero;
};
#define LIMIT_OPTION 4
#define LIMIT_PADN   1

/* What of an IP header is not kept in the packet. */
struct ip_extent {
	__u32 total; /* length of the packet, with this header */
	__u32 hlen;  /* with the encapsulation limit */
};

static __always_inline __u32 parse_ipv4(struct context *ctx, __u32 off, __u32 avail, struct packet *pkt,
					struct ip_extent *ip, const struct packet_outside *out)
{
	struct iphdr hdr;

	if (!ctx_read(ctx, off, &hdr, sizeof(hdr)))
		return because(FTCTL_R_BAD_LENGTH);
	if (unlikely(hdr.version != 4 || hdr.ihl < 5))
		return because(FTCTL_R_BAD_LENGTH);
	if (unlikely(hdr.ihl != 5))
		return because(FTCTL_R_IP_OPTIONS);
	if (unlikely(hdr.frag_off & bpf_htons(IP_MF | IP_OFFSET)))
		return because(FTCTL_R_FRAGMENT);
	if (!out && unlikely(!csum_iphdr_right(&hdr)))
		return because(FTCTL_R_BAD_CHECKSUM);
	ip->total = bpf_ntohs(hdr.tot_len);
	ip->hlen = IP_HLEN;
	if (!out && unlikely(ip->total < sizeof(hdr) || ip->total > avail))
		return because(FTCTL_R_BAD_LENGTH);
	pkt->key.family = 4;
	pkt->key.src.w[0] = hdr.saddr; /* the rest is zero */
	pkt->key.dst.w[0] = hdr.daddr;
	copy_words(&pkt->ip_words, &hdr.id, sizeof(pkt->ip_words));
	pkt->tos = hdr.tos;
	return 0;
}

static __always_inline __u32 parse_limit(struct context *ctx, __u32 off, struct packet *pkt,
					 struct ip_extent *ip)
{
	struct limit_header hdr;

	if (!ctx_read(ctx, off, &hdr, sizeof(hdr)))
		return because(FTCTL_R_BAD_LENGTH);
	if (hdr.len || hdr.option != LIMIT_OPTION || hdr.option_len != 1 || hdr.padn != LIMIT_PADN ||
	    hdr.padn_len != 1 || hdr.zero)
		return because(FTCTL_R_IP_OPTIONS);
	ip->hlen += sizeof(hdr);
	pkt->proto = hdr.next;
	pkt->limit = hdr.limit;
	pkt->has_limit = 1;
	return 0;
}

static __always_inline __u32 parse_ipv6(struct context *ctx, __u32 off, __u32 avail, struct packet *pkt,
					struct ip_extent *ip, const struct packet_outside *out)
{
	struct ipv6hdr hdr;
	__u32 word;

	if (!ctx_read(ctx, off, &hdr, sizeof(hdr)))
		return because(FTCTL_R_BAD_LENGTH);
	if (unlikely(hdr.version != 6))
		return because(FTCTL_R_BAD_LENGTH);
	ip->total = bpf_ntohs(hdr.payload_len) + sizeof(hdr);
	ip->hlen = sizeof(hdr);
	/* a length of zero is that of a jumbogram, or of an aggregate that is larger than one */
	if (!out && unlikely(!hdr.payload_len || ip->total > avail))
		return because(FTCTL_R_BAD_LENGTH);
	__builtin_memcpy(&word, &hdr, sizeof(word));
	pkt->key.family = 6;
	__builtin_memcpy(&pkt->key.src, &hdr.saddr, sizeof(pkt->key.src));
	__builtin_memcpy(&pkt->key.dst, &hdr.daddr, sizeof(pkt->key.dst));
	pkt->proto = hdr.nexthdr;
	pkt->ttl = hdr.hop_limit;
	pkt->tos = (__u8)(bpf_ntohl(word) >> 20);
	pkt->label = word & bpf_htonl(IPV6_LABEL);
	switch (hdr.nexthdr) {
	case IPPROTO_DSTOPTS:
		return parse_limit(ctx, off + sizeof(hdr), pkt, ip);
	case IPPROTO_FRAGMENT:
		return because(FTCTL_R_FRAGMENT);
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_AH:
	case IPPROTO_MH:
		return because(FTCTL_R_IP_OPTIONS);
	default:
		return 0;
	}
}

/*
 * The header at `off`, into `pkt`, where everything of an IP header must be zero; `avail`: bytes from there
 * to the end of the frame or outer packet.
 */
static __always_inline __u32 parse_ip(struct context *ctx, __u16 proto, __u32 off, __u32 avail,
				      struct packet *pkt, struct ip_extent *ip,
				      const struct packet_outside *out)
{
	if (proto == bpf_htons(ETH_P_IP))
		return parse_ipv4(ctx, off, avail, pkt, ip, out);
	return parse_ipv6(ctx, off, avail, pkt, ip, out);
}

static __always_inline __u32 parse_tcp(struct context *ctx, __u32 off, __u32 len, __u32 ip_len,
				       struct packet *pkt, const struct packet_outside *out)
{
	struct tcphdr tcp;
	__u32 doff;

	if (len < sizeof(tcp) || !ctx_read(ctx, off, &tcp, sizeof(tcp)))
		return because(FTCTL_R_BAD_LENGTH);
	doff = tcp.doff * 4U;
	if (!out && unlikely(doff < sizeof(tcp) || doff > len))
		return because(FTCTL_R_BAD_LENGTH);
	copy_words(&pkt->key.sport, &tcp, 2 * sizeof(tcp.source)); /* both ports: see ftctl_key_words() */
	pkt->l4_tag = tcp.seq;
	pkt->l4_check = tcp.check;
	pkt->tcp_flags = ((__u8 *)&tcp)[13];
	pkt->hdrlen = (__u16)(ip_len + doff);
	return 0;
}

static __always_inline __u32 parse_udp(struct context *ctx, __u32 off, __u32 len, __u32 ip_len,
				       struct packet *pkt, const struct packet_outside *out)
{
	struct udphdr udp;

	if (len < sizeof(udp) || !ctx_read(ctx, off, &udp, sizeof(udp)))
		return because(FTCTL_R_BAD_LENGTH);
	/*
	 * Too long or too short is malformed. Data behind the UDP length is not, but conntrack sums
	 * it (nf_checksum() takes the whole payload) and may call the packet INVALID for it.
	 */
	if (!out && unlikely(bpf_ntohs(udp.len) != len))
		return because(FTCTL_R_BAD_LENGTH);
	copy_words(&pkt->key.sport, &udp, 2 * sizeof(udp.source));
	pkt->l4_tag = udp.len;
	pkt->l4_check = udp.check;
	pkt->hdrlen = (__u16)(ip_len + sizeof(udp));
	return 0;
}

/* Version 0 without checksum, key or sequence number, as nf_flow_table takes it. */
static __always_inline __u32 parse_gre(struct context *ctx, __u32 off, __u32 len, __u32 ip_len,
				       struct packet *pkt)
{
	struct {
		__u16 flags;
		__u16 proto;
	} gre;

	if (len < sizeof(gre) || !ctx_read(ctx, off, &gre, sizeof(gre)))
		return because(FTCTL_R_BAD_LENGTH);
	if (gre.flags)
		return because(FTCTL_R_PROTOCOL);
	pkt->l4_tag = gre.proto;
	pkt->hdrlen = (__u16)(ip_len + sizeof(gre));
	return 0;
}

/* The L4 header at `off`, `len` bytes long with its payload. */
static __always_inline __u32 parse_l4(struct context *ctx, __u32 off, __u32 len, __u32 ip_len,
				      struct packet *pkt, const struct packet_outside *out)
{
	if (pkt->proto == IPPROTO_TCP)
		return parse_tcp(ctx, off, len, ip_len, pkt, out);
	if (pkt->proto == IPPROTO_UDP)
		return parse_udp(ctx, off, len, ip_len, pkt, out);
	if (pkt->proto == IPPROTO_GRE)
		return parse_gre(ctx, off, len, ip_len, pkt);
	return because(FTCTL_R_PROTOCOL);
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
		return because(FTCTL_R_GSO);
	pkt->seglen = (__u16)(pkt->hdrlen + size);
	pkt->segs = (payload + size - 1) / size;
	return 0;
}

#endif
