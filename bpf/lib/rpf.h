/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The reverse path filter: what `fib saddr . iif oif missing drop` (strict) or `fib saddr oif missing drop`
 * (loose) of nft in prerouting says, nft_fib4_eval() and nft_fib6_eval(), asked of the same tables by
 * bpf_fib_lookup(). Where that cannot say the same the packet is the stack's.
 *
 * Needs the context layer (ctx_xdp.h or ctx_tc.h) to be included first.
 */
#ifndef FTCTL_LIB_RPF_H
#define FTCTL_LIB_RPF_H

#include <ftctl/fib_can_skip.h>

#include "flow.h"
#include "headers.h"
#include "kernel.h"

#ifndef AF_INET
#define AF_INET	 2
#define AF_INET6 10
#endif
#define LOOPBACK_IFINDEX 1

#define RPF_LOOKUP_SKIP_NEIGH (1U << 3)

/* Relocated when loaded (CO-RE). */
struct sock {
	int sk_rx_dst_ifindex;
} __attribute__((preserve_access_index));

struct inet_sock {
	struct sock sk;
} __attribute__((preserve_access_index));

struct inet_connection_sock {
	struct inet_sock icsk_inet;
} __attribute__((preserve_access_index));

struct tcp_sock {
	struct inet_connection_sock inet_conn;
} __attribute__((preserve_access_index));

/* Broadcast addresses of devices; the daemon keeps them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, FTCTL_MAX_BROADCASTS);
	__type(key, struct ftctl_broadcast);
	__type(value, __u32);
} broadcasts SEC(".maps");

/*
 * Answers of late, by what they were asked with, as long as the kernel says that routes are the same
 * (kernel_route_gen()). Per CPU, and used in softirq: nobody else writes to an entry.
 */
struct rpf_recent {
	struct ftctl_addr src; /* of the packet */
	struct ftctl_addr dst;
	__u32 ifindex; /* 0: never used */
	__u8 mode;
	__u8 proto;
	__u8 tos;
	__u8 family;
	__u32 gen;
	__u32 last;  /* ticks */
	__u32 found; /* 1: a route back; 0: none, but a socket took such packets */
	__u32 pad[3];
};
_Static_assert(sizeof(struct rpf_recent) == 64, "one cache line");

#define RPF_RECENT_SHIFT 10
#define RPF_RECENT_TICKS (FTCTL_NSEC_PER_SEC >> FTCTL_TICK_SHIFT)

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1 << RPF_RECENT_SHIFT);
	__type(key, __u32);
	__type(value, struct rpf_recent);
} rpf_recent SEC(".maps");

/* What the route back is asked with: of a packet as the parser has it, or as headers_find() has it. */
struct rpf_asked {
	const struct ftctl_addr *src;
	const struct ftctl_addr *dst;
	__u32 mode;
	__u8 proto;
	__u8 tos;
	bool v6;
};

static __always_inline struct rpf_recent *rpf_recent_get(const struct rpf_asked *asked)
{
	__u32 s = asked->src->w[0], d = asked->dst->w[0], index;

	if (asked->v6) {
		s ^= asked->src->w[1] ^ (asked->src->w[2] << 8) ^ asked->src->w[3];
		d ^= asked->dst->w[1] ^ (asked->dst->w[2] << 8) ^ asked->dst->w[3];
	}
	index = ((s ^ (d << 16 | d >> 16)) * 0x9e3779b1U) >> (32 - RPF_RECENT_SHIFT);
	return bpf_map_lookup_elem(&rpf_recent, &index);
}

/* Can answers be kept? With several next hops the same packet may have two. */
static __always_inline bool rpf_keeps(const struct ftctl_config *cfg, bool v6)
{
	return KERNEL_HAS_CTX && !cfg_dry && !(cfg->multipath & (v6 ? FTCTL_MULTIPATH_6 : FTCTL_MULTIPATH_4));
}

/* This was answered less than a second ago, and routes are the same (`gen`: as they are now). */
static __always_inline bool rpf_answered(const struct rpf_recent *recent, const struct rpf_asked *asked,
					 __u64 now, __u32 gen)
{
	return addr_equal(&recent->src, asked->src) && addr_equal(&recent->dst, asked->dst) &&
	       recent->ifindex == cfg_ifindex && recent->mode == asked->mode &&
	       recent->proto == asked->proto && recent->tos == asked->tos &&
	       recent->family == (asked->v6 ? 6 : 4) && ticks(now) - recent->last < RPF_RECENT_TICKS &&
	       recent->gen == gen;
}

/* The route back of this packet, which no flow knows, was found less than a second ago? */
static __always_inline bool rpf_found_lately(struct context *ctx, const struct packet *pkt,
					     const struct ftctl_config *cfg, const struct ftctl_slot *slot,
					     __u64 now)
{
	const struct rpf_asked asked = {
		.src = &pkt->key.src,
		.dst = &pkt->key.dst,
		.mode = slot->rpf,
		.proto = pkt->proto,
		.tos = pkt->tos,
		.v6 = packet_v6(pkt),
	};
	const struct rpf_recent *recent;
	__u32 gen;

	if (!rpf_keeps(cfg, asked.v6) || (asked.mode & FTCTL_RPF_UNSURE) || pkt->key.tunnel ||
	    pkt->key.vlan[0].proto || pkt->key.pppoe)
		return false;
	recent = rpf_recent_get(&asked);
	return recent && recent->found && ctx_route_gen(ctx, asked.v6, &gen) &&
	       rpf_answered(recent, &asked, now, gen);
}

/* `gen`: from before the route was asked for. */
static __always_inline void rpf_keep(struct rpf_recent *recent, const struct rpf_asked *asked, bool found,
				     __u64 now, __u32 gen)
{
	/* field by field: of a whole one clang makes a copy on the stack first */
	recent->src = *asked->src;
	recent->dst = *asked->dst;
	recent->ifindex = cfg_ifindex;
	recent->mode = (__u8)asked->mode;
	recent->proto = asked->proto;
	recent->tos = asked->tos;
	recent->family = asked->v6 ? 6 : 4;
	recent->gen = gen;
	recent->last = ticks(now);
	recent->found = found;
}

enum rpf_answer {
	RPF_FOUND,
	RPF_MISSING,
	RPF_CANNOT_TELL,
};

/* ipv4_is_zeronet(): since 5.3 only this one of 0.0.0.0/8 */
static __always_inline bool rpf_is_zeronet(__u32 addr)
{
	return !addr;
}

static __always_inline bool rpf_is_multicast4(__u32 addr)
{
	return (addr & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000);
}

/* fe80::/10 */
static __always_inline bool rpf_is_link_local(const struct ftctl_addr *addr)
{
	return (addr->w[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

static __always_inline bool rpf_is_multicast6(const struct ftctl_addr *addr)
{
	return (addr->w[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000);
}

/* DHCP and IGMP, nft_fib4_eval(); duplicate address detection, nft_fib_v6_skip_icmpv6(). */
static __always_inline bool rpf_needs_no_route(const struct headers *h)
{
	const struct ftctl_addr *s = &h->src;

	if (h->family == 4)
		return rpf_is_zeronet(s->w[0]) &&
		       (h->dst.w[0] == 0xffffffff ||
			(h->dst.w[0] & bpf_htonl(0xffffff00)) == bpf_htonl(0xe0000000));
	return h->proto == IPPROTO_ICMPV6 && !(s->w[0] | s->w[1] | s->w[2] | s->w[3]) &&
	       (rpf_is_link_local(&h->dst) ||
		(rpf_is_multicast6(&h->dst) &&
		 (h->dst.w[0] & bpf_htonl(0x000f0000)) == bpf_htonl(0x00020000)));
}

/*
 * nft_fib_can_skip(): an established socket takes this packet, which it has received from by this device.
 * The kernel keeps that device for TCP only (sk_rx_dst_ifindex stays 0 for UDP): a UDP socket never skips.
 */
static __always_inline bool rpf_socket_skips(struct context *ctx, struct headers_room *room)
{
	const struct headers *h = &room->ip;
	struct bpf_sock_tuple *tuple = &room->tuple;
	__u32 len = sizeof(tuple->ipv4), rx = 0;
	bool established = false;
	struct bpf_sock *sk;

	if (h->proto != IPPROTO_TCP || !h->ports)
		return false;
	if (h->family == 4) {
		tuple->ipv4.saddr = h->src.w[0];
		tuple->ipv4.daddr = h->dst.w[0];
		tuple->ipv4.sport = h->sport;
		tuple->ipv4.dport = h->dport;
	} else {
		__builtin_memcpy(tuple->ipv6.saddr, &h->src, sizeof(h->src));
		__builtin_memcpy(tuple->ipv6.daddr, &h->dst, sizeof(h->dst));
		tuple->ipv6.sport = h->sport;
		tuple->ipv6.dport = h->dport;
		len = sizeof(tuple->ipv6);
	}
	sk = bpf_sk_lookup_tcp(ctx, tuple, len, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return false;
	if (sk->state != BPF_TCP_LISTEN) {
		struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);

		if (tcp) {
			established = true;
			rx = (__u32)tcp->inet_conn.icsk_inet.sk.sk_rx_dst_ifindex;
		}
	}
	bpf_sk_release(sk);
	return ftctl_fib_can_skip(established, rx, cfg_ifindex, false);
}

/*
 * The route back. As nft asks: by loopback, since no packet has come in on the way there, and with a source
 * address only where it can be one. `ifindex` and `flags`: of bpf_fib_lookup().
 */
static __always_inline enum rpf_answer rpf_route(struct context *ctx, struct headers_room *room,
						 __u32 ifindex, __u32 flags)
{
	struct bpf_fib_lookup *fib = &room->fib;
	const struct headers *h = &room->ip;

	__builtin_memset(fib, 0, sizeof(*fib));
	fib->l4_protocol = h->proto;
	fib->ifindex = ifindex;
	if (h->family == 4) {
		fib->family = AF_INET;
		fib->tos = h->tos;
		fib->ipv4_dst = h->src.w[0];
		if (!rpf_is_zeronet(h->dst.w[0]) && !rpf_is_multicast4(h->dst.w[0]) &&
		    h->dst.w[0] != 0xffffffff)
			fib->ipv4_src = h->dst.w[0];
	} else {
		fib->family = AF_INET6;
		fib->flowinfo = bpf_htonl((__u32)h->tos << 20);
		__builtin_memcpy(fib->ipv6_dst, &h->src, sizeof(h->src));
		/* the helper answers for no other */
		if (!rpf_is_multicast6(&h->dst) && !rpf_is_link_local(&h->dst))
			__builtin_memcpy(fib->ipv6_src, &h->dst, sizeof(h->dst));
	}
	if (KERNEL_SINCE(6, 3))
		flags |= RPF_LOOKUP_SKIP_NEIGH;
	switch (bpf_fib_lookup(ctx, fib, sizeof(*fib), flags)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
	case BPF_FIB_LKUP_RET_NO_NEIGH:
	case BPF_FIB_LKUP_RET_FRAG_NEEDED:
		return RPF_FOUND;
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
	case BPF_FIB_LKUP_RET_NOT_FWDED:
		return RPF_MISSING;
	default: /* forwarding is off, or an encapsulation that hides the device */
		return RPF_CANNOT_TELL;
	}
}

static __always_inline enum rpf_answer rpf_ask(struct context *ctx, struct headers_room *room,
					       const struct ftctl_config *cfg, __u32 mode)
{
	const struct headers *h = &room->ip;
	enum rpf_answer answer;

	/* the helper does not look up link-local addresses */
	if (h->family == 6 && rpf_is_link_local(&h->src))
		return RPF_CANNOT_TELL;
	answer = rpf_route(ctx, room, LOOPBACK_IFINDEX, 0);
	if (answer != RPF_FOUND || !(mode & FTCTL_RPF_STRICT) || room->fib.ifindex == cfg_ifindex)
		return answer;
	/* One of several next hops came out; could this device be another one? */
	if ((cfg->multipath & (h->family == 6 ? FTCTL_MULTIPATH_6 : FTCTL_MULTIPATH_4)) &&
	    rpf_route(ctx, room, cfg_ifindex, BPF_FIB_LOOKUP_OUTPUT) != RPF_MISSING)
		return RPF_CANNOT_TELL;
	return RPF_MISSING;
}

/*
 * Of a packet whose headers were found: the reason why it is dropped or could not be judged, else `reason`,
 * for which it goes to the stack. A function of its own as headers_find() is.
 */
__attribute__((noinline)) int rpf_judge(struct context *ctx, __u32 reason)
{
	__u32 zero = 0, slot_index = cfg_slot, bit, mode;
	struct headers_room *room = bpf_map_lookup_elem(&headers_room, &zero);
	struct ftctl_config *cfg = &config;
	struct ftctl_slot *slot = bpf_map_lookup_elem(&slots, &slot_index);
	struct rpf_recent *recent = NULL;
	struct rpf_asked asked;
	enum rpf_answer answer;
	bool local, skips;
	__u32 gen = 0;

	/* what the stack throws away before it looks at the source is its own */
	if (!room || !slot || reason == FTCTL_R_OTHER_HOST || reason == FTCTL_R_BAD_CHECKSUM)
		return reason;
	mode = slot->rpf;
	if (!mode || rpf_needs_no_route(&room->ip))
		return reason;
	/* a tag means that the packet is received by another device than this one */
	if ((mode & FTCTL_RPF_UNSURE) || room->pkt.key.vlan[0].proto || room->pkt.key.pppoe)
		return FTCTL_R_RPF_UNSURE;
	bit = ftctl_local_bit(&room->ip.dst);
	local = cfg->local[bit / 32 & (FTCTL_LOCAL_BITS / 32 - 1)] >> (bit & 31) & 1;
	skips = local && rpf_socket_skips(ctx, room);
	asked = (struct rpf_asked){&room->ip.src,  &room->ip.dst, mode,
				   room->ip.proto, room->ip.tos,  room->ip.family == 6};
	if (rpf_keeps(cfg, asked.v6) && ctx_route_gen(ctx, asked.v6, &gen))
		recent = rpf_recent_get(&asked);
	/* A socket needs no route. That there is one is asked all the same, once: to look for one is cheaper.
	 */
	if (skips && (!recent || rpf_answered(recent, &asked, clock_now(cfg), gen)))
		return reason;
	answer = rpf_ask(ctx, room, cfg, mode);
	if (recent && (skips || answer == RPF_FOUND))
		rpf_keep(recent, &asked, answer == RPF_FOUND, clock_now(cfg), gen);
	if (skips || answer == RPF_FOUND)
		return reason;
	if (answer == RPF_CANNOT_TELL)
		return FTCTL_R_RPF_UNSURE;
	/*
	 * nft takes a route of type broadcast for one back when it is this device's own; the helper tells it
	 * from no route as little as from one to this machine.
	 */
	if (room->ip.family == 4) {
		struct ftctl_broadcast key = {cfg_ifindex, room->ip.src.w[0]};

		if (bpf_map_lookup_elem(&broadcasts, &key))
			return reason;
	}
	/* a socket may have an address that is not this machine's (IP_TRANSPARENT) */
	if (!local && rpf_socket_skips(ctx, room))
		return reason;
	return mode & FTCTL_RPF_LOG ? FTCTL_R_RPF_LOG : FTCTL_R_RPF;
}

#endif
