/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The headers of any IP packet, for the early filter and the reverse path filter. parse.h refuses what the
 * fast path must not take; these two have to judge fragments, options and other protocols as well.
 *
 * Needs the context layer (ctx_xdp.h or ctx_tc.h) to be included first.
 */
#ifndef FTCTL_LIB_HEADERS_H
#define FTCTL_LIB_HEADERS_H

#include <ftctl/filter.h>

#include "parse_ip.h"
#include "parse_l2.h"

#define HEADERS_EXTENSIONS 6 /* so many extension headers are skipped */
#define HEADERS_MAX_OFF	   0x7ff

#ifndef IPPROTO_UDPLITE
#define IPPROTO_UDPLITE 136
#endif

struct headers {
	struct ftctl_addr src;
	struct ftctl_addr dst;
	__u32 off;   /* of the IP header */
	__u32 next;  /* of what follows it and its extensions */
	__u32 total; /* L3 length, as the header says */
	__u16 sport; /* be; both 0 unless .ports */
	__u16 dport;
	__u8 family;
	__u8 proto; /* behind extension headers */
	__u8 tos;
	__u8 ports;    /* they are in this packet: TCP, UDP and the like, and not a later fragment */
	__u8 fragment; /* not the first one of its packet */
};

/* What it takes to find them, and to look for them; too much for a BPF stack. */
struct headers_room {
	struct packet pkt;
	struct packet_outside out;
	struct headers ip;
	struct headers inner;
	union {
		struct iphdr ip4;
		struct ipv6hdr ip6;
		struct ftctl_filter_key key;
		struct bpf_sock_tuple tuple;
		struct bpf_fib_lookup fib;
	};
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct headers_room);
} headers_room SEC(".maps");

static __always_inline bool headers_ipv4(struct context *ctx, struct headers_room *room, struct headers *h)
{
	const struct iphdr *ip = &room->ip4;

	if (!ctx_read(ctx, h->off, &room->ip4, sizeof(*ip)) || ip->version != 4 || ip->ihl < 5)
		return false;
	h->src = (struct ftctl_addr){{ip->saddr}};
	h->dst = (struct ftctl_addr){{ip->daddr}};
	h->family = 4;
	h->proto = ip->protocol;
	h->tos = ip->tos;
	h->total = bpf_ntohs(ip->tot_len);
	h->fragment = !!(ip->frag_off & bpf_htons(IP_OFFSET));
	h->next = h->off + ip->ihl * 4U;
	return true;
}

/* Skips the extension header `h->proto` at `h->next`; false: it is none, or it cannot be read. */
static __always_inline bool headers_extension(struct context *ctx, struct headers *h)
{
	struct {
		__u8 next;
		__u8 len;
		__u16 offset; /* be; of fragment headers */
	} ext;

	switch (h->proto) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
	case IPPROTO_FRAGMENT:
	case IPPROTO_AH:
		break;
	default:
		return false;
	}
	if (h->fragment || !ctx_load(ctx, h->next, &ext, sizeof(ext)))
		return false;
	if (h->proto == IPPROTO_FRAGMENT) {
		h->fragment = !!(ext.offset & bpf_htons(0xfff8));
		h->next += 8;
	} else if (h->proto == IPPROTO_AH) {
		h->next += (ext.len + 2) * 4;
	} else {
		h->next += (ext.len + 1) * 8;
	}
	h->proto = ext.next;
	return true;
}

static __always_inline bool headers_ipv6(struct context *ctx, struct headers_room *room, struct headers *h)
{
	const struct ipv6hdr *ip6 = &room->ip6;

	if (!ctx_read(ctx, h->off, &room->ip6, sizeof(*ip6)) || ip6->version != 6)
		return false;
	__builtin_memcpy(&h->src, &ip6->saddr, sizeof(h->src));
	__builtin_memcpy(&h->dst, &ip6->daddr, sizeof(h->dst));
	h->family = 6;
	h->proto = ip6->nexthdr;
	h->tos = (__u8)(ip6->priority << 4 | ip6->flow_lbl[0] >> 4);
	h->total = bpf_ntohs(ip6->payload_len) + sizeof(*ip6);
	h->fragment = 0;
	h->next = h->off + sizeof(*ip6);
	for (int i = 0; i < HEADERS_EXTENSIONS; i++)
		if (!headers_extension(ctx, h))
			break;
	return true;
}

/* The IP header at `h->off`, by its EtherType. */
static __always_inline bool headers_ip(struct context *ctx, struct headers_room *room, __u16 proto,
				       struct headers *h)
{
	__u16 ports[2];

	h->off &= HEADERS_MAX_OFF;
	if (!(proto == bpf_htons(ETH_P_IP) ? headers_ipv4(ctx, room, h) : headers_ipv6(ctx, room, h)))
		return false;
	h->ports = 0;
	h->sport = h->dport = 0;
	if (h->fragment)
		return true;
	switch (h->proto) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
	case IPPROTO_UDPLITE:
		if (!ctx_load(ctx, h->next, ports, sizeof(ports)))
			return true;
		h->ports = 1;
		h->sport = ports[0];
		h->dport = ports[1];
	}
	return true;
}

/*
 * Fills in room.ip, the outer or only header of a frame, and room.inner, what is inside of a tunnel packet
 * (.family is 0 when nothing is). 0: this is no IP packet, or one that cannot be read. A function of its own,
 * as few packets of most machines come here, and for its stack.
 */
__attribute__((noinline)) int headers_find(struct context *ctx)
{
	__u32 off = 0, avail = 0, zero = 0;
	struct headers_room *room = bpf_map_lookup_elem(&headers_room, &zero);
	__u16 proto = 0;

	if (!room)
		return 0;
	__builtin_memset(&room->pkt, 0, sizeof(room->pkt));
	room->inner.family = 0;
	/* as for the witness: whose MAC address it is does not matter */
	if (parse_l2(ctx, NULL, &room->pkt, &room->out, &proto, &off, &avail))
		return 0;
	room->ip.off = off;
	if (!headers_ip(ctx, room, proto, &room->ip))
		return 0;
	if (room->ip.fragment || (room->ip.proto != IPPROTO_IPIP && room->ip.proto != IPPROTO_IPV6))
		return 1;
	room->inner.off = room->ip.next;
	proto = room->ip.proto == IPPROTO_IPIP ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	if (!headers_ip(ctx, room, proto, &room->inner))
		room->inner.family = 0;
	return 1;
}

/* The same from what parse.h found: a packet without tunnel. */
static __attribute__((noinline)) int headers_take(const struct packet *pkt)
{
	__u32 zero = 0;
	struct headers_room *room = bpf_map_lookup_elem(&headers_room, &zero);

	if (!room)
		return 0;
	room->ip.src = pkt->key.src;
	room->ip.dst = pkt->key.dst;
	room->ip.family = pkt->key.family;
	room->ip.proto = pkt->proto;
	room->ip.tos = pkt->tos;
	room->ip.sport = pkt->key.sport;
	room->ip.dport = pkt->key.dport;
	room->ip.ports = pkt->proto != IPPROTO_GRE;
	room->ip.fragment = 0;
	room->ip.total = pkt->len;
	room->inner.family = 0;
	room->pkt.key.vlan[0] = pkt->key.vlan[0];
	room->pkt.key.pppoe = pkt->key.pppoe;
	return 1;
}

/* room.ip and room.inner of this packet; `parsed`: pkt is complete. 0: as headers_find(). */
static __always_inline int headers_known(struct context *ctx, const struct packet *pkt, bool parsed)
{
	return parsed && !pkt->key.tunnel ? headers_take(pkt) : headers_find(ctx);
}

#endif
