/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Writing the packet that leaves. Everything has been checked and the buffer has its new shape;
 * false means that it could not be reached, which the checks should have made impossible.
 *
 * Needs the context layer (ctx_xdp.h or ctx_tc.h) to be included first.
 */
#ifndef FTCTL_LIB_WRITE_H
#define FTCTL_LIB_WRITE_H

#include "flow.h"
#include "packet.h"
#include "parse_ip.h"

/* Bytes of the outer header that the path pushes. */
static __always_inline __u32 path_outer_len(const struct ftctl_path_body *path)
{
	if (path->tunnel == FTCTL_TUNNEL_NONE)
		return 0;
	if (path->tunnel == FTCTL_TUNNEL_IPV4)
		return IP_HLEN;
	return sizeof(struct ipv6hdr) + (path->flags & FTCTL_P_LIMIT ? FTCTL_LIMIT_LEN : 0);
}

/* The header that ip_tunnel_xmit() and iptunnel_xmit(), or ipip6_tunnel_xmit() of sit, would push. */
static __always_inline void write_outer4(void *to, const struct ftctl_path_body *path,
					 const struct packet *pkt)
{
	const struct iphdr *like = (const void *)path->outer;
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
		.protocol = like->protocol,
		.saddr = like->saddr,
		.daddr = like->daddr,
	};

	outer.check = (__u16)~csum_iphdr(&outer);
	copy_words(to, &outer, sizeof(outer));
}

/* The first word of an IPv6 header. */
static __always_inline __u32 ipv6_word(__u8 tclass, __u32 label)
{
	return bpf_htonl(6U << 28 | (__u32)tclass << 20) | (label & bpf_htonl(IPV6_LABEL));
}

/* A label of the flow's own, as stable as the kernel's hash of the packet is (ip6_make_flowlabel). */
static __always_inline __u32 own_label(const struct ftctl_tuple *key)
{
	__u32 hash = key->src.w[0] ^ key->src.w[3] ^ key->dst.w[0] ^ key->dst.w[3];

	hash = (hash ^ ((__u32)key->sport << 16 | key->dport)) * 0x9e3779b1;
	return bpf_htonl((hash >> 12) | 1); /* 20 bits, never 0 */
}

static __always_inline __u32 outer6_word(const struct ftctl_path_body *path, __u8 inner_tos,
					 __u32 inner_label)
{
	__u8 tclass = path->flags & FTCTL_P_TOS_INHERIT ? inner_tos : path->tun_tos;
	__u32 label;

	__builtin_memcpy(&label, path->outer, sizeof(label));
	if (path->flags & FTCTL_P_LABEL)
		label = inner_label;
	return ipv6_word(ftctl_ecn_encap(tclass, inner_tos), label);
}

/* The header that ip6_tnl_xmit() would push, with the encapsulation limit where the tunnel has one. */
static __always_inline void write_outer6(void *to, const struct ftctl_path_body *path,
					 const struct packet *pkt)
{
	__u32 limit = path->flags & FTCTL_P_LIMIT ? FTCTL_LIMIT_LEN : 0;
	struct ipv6hdr *ip6 = to;
	__u32 word = outer6_word(path, pkt->new_tos, pkt->label);

	if ((path->flags & FTCTL_P_DRAWN) && !(word & bpf_htonl(IPV6_LABEL)))
		word |= own_label(&pkt->key);
	copy_words(to, path->outer, sizeof(*ip6));
	__builtin_memcpy(to, &word, sizeof(word));
	ip6->payload_len = bpf_htons((__u16)(pkt->len + limit));
	ip6->hop_limit = path->tun_ttl ? path->tun_ttl : pkt->ttl - 1;
	if (limit)
		copy_words(to + sizeof(*ip6), path->outer + sizeof(*ip6), FTCTL_LIMIT_LEN);
}

/* The inner header as it arrived, where it is no longer in the buffer: the parser keeps all of it. */
static __always_inline void write_arrived4(void *to, const struct packet *pkt)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tos = pkt->tos,
		.tot_len = bpf_htons(pkt->len),
		.id = pkt->ip_id,
		.frag_off = pkt->frag_off,
		.protocol = pkt->proto,
		.saddr = pkt->key.src.w[0],
		.daddr = pkt->key.dst.w[0],
	};

	copy_words(to, &ip, sizeof(ip));
}

static __always_inline void write_arrived6(struct ipv6hdr *ip6, const struct packet *pkt)
{
	__u32 word = ipv6_word(pkt->tos, pkt->label);

	__builtin_memcpy(ip6, &word, sizeof(word));
	ip6->payload_len = bpf_htons((__u16)(pkt->len - sizeof(*ip6)));
	ip6->nexthdr = pkt->proto;
	copy_words(&ip6->saddr, &pkt->key.src, sizeof(ip6->saddr));
	copy_words(&ip6->daddr, &pkt->key.dst, sizeof(ip6->daddr));
}

static __always_inline void write_inner4(struct iphdr *ip, const struct ftctl_flow *flow,
					 const struct packet *pkt)
{
	__u32 delta = csum_delta16(bpf_htons(0x0100), 0); /* TTL, one less */

	if (flow->flags & FTCTL_F_NAT) {
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
}

static __always_inline void write_inner6(struct ipv6hdr *ip6, const struct flow_ref *ref,
					 const struct packet *pkt)
{
	if ((ref->flow->flags & FTCTL_F_NAT) && ref->v6) {
		copy_words(&ip6->saddr, &ref->v6->new_src, sizeof(ip6->saddr));
		copy_words(&ip6->daddr, &ref->v6->new_dst, sizeof(ip6->daddr));
	}
	if (pkt->new_tos != pkt->tos) {
		__u32 word = ipv6_word(pkt->new_tos, pkt->label);

		__builtin_memcpy(ip6, &word, sizeof(word));
	}
	ip6->hop_limit = pkt->ttl - 1;
}

static __always_inline void write_ports(__u16 *ports, const struct ftctl_flow *flow, const struct packet *pkt)
{
	if (!(flow->flags & FTCTL_F_NAT) || pkt->proto == IPPROTO_GRE)
		return;
	ports[0] = flow->new_sport; /* TCP and UDP have them at the same place */
	ports[1] = flow->new_dport;
}

/* The inner headers, with their IP header at `l3`; `whole`: nothing of that header is there. */
static __always_inline bool write_inner(struct context *ctx, __u32 l3, const struct flow_ref *ref,
					const struct packet *pkt, bool whole)
{
	const struct ftctl_flow *flow = ref->flow;
	void *ip;

	if ((flow->flags & FTCTL_F_NAT) && pkt->proto != IPPROTO_GRE &&
	    !ctx_l4_csum(ctx, l3 + packet_ip_len(pkt), flow, pkt))
		return false;
	ip = ctx_data(ctx) + l3;
	if (packet_v6(pkt)) {
		if (ip + sizeof(struct ipv6hdr) + sizeof(__u32) > ctx_data_end(ctx))
			return false;
		write_ports(ip + sizeof(struct ipv6hdr), flow, pkt);
		if (whole)
			write_arrived6(ip, pkt);
		write_inner6(ip, ref, pkt);
		/* the hop limit and the class; an IPv4 header always sums to zero */
		ctx_csum_changed(
			ctx, csum_delta16(bpf_htons(0x0001), 0) +
				     csum_delta16(bpf_htons(pkt->tos << 4), bpf_htons(pkt->new_tos << 4)));
	} else {
		if (ip + IP_HLEN + sizeof(__u32) > ctx_data_end(ctx))
			return false;
		write_ports(ip + IP_HLEN, flow, pkt);
		if (whole)
			write_arrived4(ip, pkt);
		write_inner4(ip, flow, pkt);
	}
	return true;
}

/* Nothing but Ethernet before the IP header, neither on the way in nor on the way out: most packets. */
static __always_inline bool write_is_plain(const struct ftctl_path_body *path, const struct packet *pkt)
{
	return pkt->l3 == ETH_HLEN && !pkt->key.vlan[0].proto && path->l2_len == ETH_HLEN && !path->tunnel;
}

static __always_inline bool write_plain(struct context *ctx, const struct ftctl_path_body *path,
					const struct flow_ref *ref, const struct packet *pkt)
{
	void *eth;

	if (!write_inner(ctx, ETH_HLEN, ref, pkt, false))
		return false;
	eth = ctx_data(ctx);
	if (eth + ETH_HLEN > ctx_data_end(ctx))
		return false;
	copy_words(eth, path->l2, ETH_HLEN);
	return true;
}

static __always_inline bool write_outer(struct context *ctx, __u32 off, const struct ftctl_path_body *path,
					const struct packet *pkt)
{
	void *to = ctx_data(ctx) + off;

	if (path->tunnel == FTCTL_TUNNEL_IPV4) {
		if (to + IP_HLEN > ctx_data_end(ctx))
			return false;
		write_outer4(to, path, pkt);
	} else if (path->tunnel == FTCTL_TUNNEL_IPV6) {
		/* what follows is longer than the limit's 8 bytes */
		if (to + FTCTL_OUTER_MAX > ctx_data_end(ctx))
			return false;
		write_outer6(to, path, pkt);
	}
	return true;
}

#endif
