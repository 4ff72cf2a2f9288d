/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the datapath (BPF, C) and the control plane (C++20) share: map keys, map
 * values, counters, configuration.
 *
 * Conventions
 *  - Fixed-width types only; every struct has its size asserted below.
 *  - Addresses and ports are in network byte order, everything else in host order.
 *  - Padding is explicit and must be zero: keys are compared as bytes.
 *  - Times are CLOCK_MONOTONIC. "ticks" are nanoseconds >> FTCTL_TICK_SHIFT (about
 *    1 ms, wraps after 49 days; always compare with a signed difference).
 *
 * A change of any layout here must raise FTCTL_ABI: pins carry the number, and a
 * daemon never reads maps of another ABI.
 */
#ifndef FTCTL_ABI_H
#define FTCTL_ABI_H

#ifdef __cplusplus
#include <cstddef>
#include <cstdint>
#define FTCTL_ASSERT(cond, what) static_assert(cond, what)
using ftctl_u8 = std::uint8_t;
using ftctl_u16 = std::uint16_t;
using ftctl_u32 = std::uint32_t;
using ftctl_u64 = std::uint64_t;
#else
#include <linux/types.h>
#define FTCTL_ASSERT(cond, what) _Static_assert(cond, what)
typedef __u8 ftctl_u8;
typedef __u16 ftctl_u16;
typedef __u32 ftctl_u32;
typedef __u64 ftctl_u64;
#endif

#define FTCTL_ABI 9

#define FTCTL_TICK_SHIFT   20
#define FTCTL_NSEC_PER_SEC 1000000000ULL

/* No beat of the daemon for this long: every packet goes to the stack. */
#define FTCTL_HEARTBEAT_NS (5ULL * FTCTL_NSEC_PER_SEC)

/*
 * A slot is one attachment: one device at one hook. Each has its own program
 * instance (slot and ifindex are read-only data there) and its own counters.
 * Slot 0 is what `explain` and tests run with; it belongs to no device.
 */
#define FTCTL_MAX_SLOTS	   256
#define FTCTL_SLOT_SCRATCH 0
#define FTCTL_NO_MAC	   (~0ULL)

/* A device's ifindex shares a word with the L4 protocol in the flow key. */
#define FTCTL_MAX_IFINDEX ((1U << 24) - 1)

#define FTCTL_MAX_PATHS	       32768
#define FTCTL_MAX_SAMPLES      16384
#define FTCTL_EVENT_RING_BYTES (1U << 20)

/* ------------------------------------------------------------------ reasons */

enum ftctl_reason {
#define FTCTL_REASON(id, sym, name, help) FTCTL_R_##sym = (id),
#include "reasons.def"
#undef FTCTL_REASON
};
/* What a MANGLED or PATH refusal found different: "mangled:ttl". */
enum ftctl_detail {
#define FTCTL_DETAIL(id, sym, name) FTCTL_D_##sym = (id),
#include "details.def"
#undef FTCTL_DETAIL
};

/* Per-slot counters are indexed by reason id; ids of packet reasons stay below this. */
#define FTCTL_PACKET_REASONS 48

/* --------------------------------------------------------------------- keys */

/* An IPv6 address, or an IPv4 address in w[0] with the rest zero. */
struct ftctl_addr {
	ftctl_u32 w[4]; /* be */
};
FTCTL_ASSERT(sizeof(struct ftctl_addr) == 16, "addr");

/* An 802.1Q or 802.1ad tag, without PCP and DEI. */
struct ftctl_vlan {
	ftctl_u16 proto; /* be; EtherType of the tag, 0: none */
	ftctl_u16 vid;	 /* be */
};

/* ftctl_tuple.tunnel */
enum ftctl_tunnel {
	FTCTL_TUNNEL_NONE = 0,
	FTCTL_TUNNEL_IPV4 = 4, /* outer IPv4 header */
	FTCTL_TUNNEL_IPV6 = 6, /* outer IPv6 header */
};

/*
 * One direction of one connection, as its packets arrive: everything that tells its packets from
 * others, and how the control plane names any flow.
 */
struct ftctl_tuple {
	struct ftctl_addr src;
	struct ftctl_addr dst;
	struct ftctl_addr outer_src; /* zero without tunnel */
	struct ftctl_addr outer_dst;
	ftctl_u16 sport;	   /* be */
	ftctl_u16 dport;	   /* be */
	ftctl_u32 iif_proto;	   /* physical ingress ifindex | IPPROTO_* << 24 */
	struct ftctl_vlan vlan[2]; /* outermost first */
	ftctl_u8 peer[6];	   /* with PPPoE: source MAC, as pppoe_rcv() looks its sessions up */
	ftctl_u16 pppoe;	   /* be; session, 0: none */
	ftctl_u8 family;	   /* 4 or 6: of the inner, or only, packet */
	ftctl_u8 tunnel;	   /* enum ftctl_tunnel */
	ftctl_u16 pad;
};
FTCTL_ASSERT(sizeof(struct ftctl_tuple) == 92, "tuple");

/*
 * Most flows need only part of that. One map per key shape, so that a plain flow does not pay, in
 * memory and in hashing, for the size of a tunnel's key.
 */
enum ftctl_shape {
	FTCTL_SHAPE_4 = 0,  /* flow4: IPv4; flowx: what finds no room there (flow4.h) */
	FTCTL_SHAPE_4T = 1, /* flow4t: IPv4 in IPv4; as above */
	FTCTL_SHAPE_6 = 2,  /* flow6: IPv6 */
	FTCTL_SHAPE_X = 3,  /* flowx: everything else */
	FTCTL_SHAPES = 4,
};

/* In map flow4. */
struct ftctl_key4 {
	ftctl_u32 src;	     /* be */
	ftctl_u32 dst;	     /* be */
	ftctl_u16 sport;     /* be */
	ftctl_u16 dport;     /* be */
	ftctl_u32 iif_proto; /* as in ftctl_tuple */
};
FTCTL_ASSERT(sizeof(struct ftctl_key4) == 16, "flow4 key");

/* In map flow4t. */
struct ftctl_key4t {
	struct ftctl_key4 in;
	ftctl_u32 outer_src; /* be */
	ftctl_u32 outer_dst; /* be */
};
FTCTL_ASSERT(sizeof(struct ftctl_key4t) == 24, "flow4t key");

/* Map: flow6, in outer_flow6. */
struct ftctl_key6 {
	struct ftctl_addr src;
	struct ftctl_addr dst;
	ftctl_u16 sport;     /* be */
	ftctl_u16 dport;     /* be */
	ftctl_u32 iif_proto; /* as in ftctl_tuple */
};
FTCTL_ASSERT(sizeof(struct ftctl_key6) == 40, "flow6 key");

/*
 * Map: flowx, in outer_flowx. A number for the tuple, which stands in the value: the kernel's hash of its 92
 * bytes would take as long as half of the program. Two tuples with the same number: the second one has no
 * flow.
 */
struct ftctl_keyx {
	ftctl_u64 digest;
};
FTCTL_ASSERT(sizeof(struct ftctl_keyx) == 8, "flowx key");

static inline ftctl_u32 ftctl_tuple_word(const struct ftctl_tuple *t, unsigned int index)
{
#ifdef __cplusplus
	ftctl_u32 word;

	__builtin_memcpy(&word, (const char *)t + 4 * index, sizeof(word));
	return word;
#else /* one after the other: clang would load all of them first, and has no registers for that */
	return ((const volatile ftctl_u32 *)t)[index];
#endif
}

/* Four polynomials side by side, since a multiplication waits for the one before. */
static inline ftctl_u64 ftctl_tuple_digest(const struct ftctl_tuple *t)
{
	const ftctl_u64 factor = 0x9e3779b97f4a7c15ULL; /* odd, bits without pattern */
	ftctl_u64 a = 0, b = 0, c = 0, d = 0;
	unsigned int i;

	for (i = 0; i + 4 <= sizeof(*t) / 4; i += 4) {
		a = a * factor + ftctl_tuple_word(t, i);
		b = b * factor + ftctl_tuple_word(t, i + 1);
		c = c * factor + ftctl_tuple_word(t, i + 2);
		d = d * factor + ftctl_tuple_word(t, i + 3);
	}
	a = a * factor + ftctl_tuple_word(t, i);
	b = b * factor + ftctl_tuple_word(t, i + 1);
	c = c * factor + ftctl_tuple_word(t, i + 2);
	/* turned against each other, so that no two words count the same */
	return a ^ (b << 16 | b >> 48) ^ (c << 32 | c >> 32) ^ (d << 48 | d >> 16);
}

static inline enum ftctl_shape ftctl_shape_of(const struct ftctl_tuple *t)
{
	if (t->vlan[0].proto || t->pppoe)
		return FTCTL_SHAPE_X;
	if (t->family == 4 && t->tunnel == FTCTL_TUNNEL_NONE)
		return FTCTL_SHAPE_4;
	if (t->family == 4 && t->tunnel == FTCTL_TUNNEL_IPV4)
		return FTCTL_SHAPE_4T;
	if (t->family == 6 && t->tunnel == FTCTL_TUNNEL_NONE)
		return FTCTL_SHAPE_6;
	return FTCTL_SHAPE_X;
}

/*
 * Part of a tuple into a key or elsewhere, in the words that the parser wrote: where clang would read two of
 * them at once, the processor waits until both have left its store buffer.
 */
static inline void ftctl_key_words(void *to, const struct ftctl_tuple *t, unsigned int first,
				   unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		const ftctl_u32 word = ftctl_tuple_word(t, first + i);

		__builtin_memcpy((char *)to + 4 * i, &word, sizeof(word));
	}
}
#define FTCTL_WORD_SRC	 0  /* and behind it dst */
#define FTCTL_WORD_OUTER 8  /* outer_src, and behind it outer_dst */
#define FTCTL_WORD_PORTS 16 /* and behind them iif_proto */

static inline void ftctl_key4_of(const struct ftctl_tuple *t, struct ftctl_key4 *key)
{
	key->src = t->src.w[0];
	key->dst = t->dst.w[0];
	ftctl_key_words(&key->sport, t, FTCTL_WORD_PORTS, 2);
}

static inline void ftctl_key4t_of(const struct ftctl_tuple *t, struct ftctl_key4t *key)
{
	ftctl_key4_of(t, &key->in);
	key->outer_src = t->outer_src.w[0];
	key->outer_dst = t->outer_dst.w[0];
}

static inline void ftctl_key6_of(const struct ftctl_tuple *t, struct ftctl_key6 *key)
{
	ftctl_key_words(&key->src, t, FTCTL_WORD_SRC, 8);
	ftctl_key_words(&key->sport, t, FTCTL_WORD_PORTS, 2);
}

static inline ftctl_u32 ftctl_iif_proto(ftctl_u32 ifindex, ftctl_u8 proto)
{
	return (ifindex & FTCTL_MAX_IFINDEX) | ((ftctl_u32)proto << 24);
}

static inline ftctl_u32 ftctl_iif(const struct ftctl_tuple *t)
{
	return t->iif_proto & FTCTL_MAX_IFINDEX;
}

static inline ftctl_u8 ftctl_proto(const struct ftctl_tuple *t)
{
	return (ftctl_u8)(t->iif_proto >> 24);
}

/* -------------------------------------------------------------------- flows */

/* ftctl_flow.state; transitions are compare-and-swap, never out of CLOSING or DIFFERS. */
enum ftctl_flow_state {
	FTCTL_FLOW_PENDING = 0, /* not yet witnessed */
	FTCTL_FLOW_LIVE = 1,	/* carries packets while .gen is current */
	FTCTL_FLOW_CLOSING = 2, /* FIN, RST or a new SYN seen */
	FTCTL_FLOW_DIFFERS = 3, /* witness saw another packet than predicted: .reason */
};

/* ftctl_flow.flags */
#define FTCTL_F_NAT   0x01 /* addresses or ports change; the checksum deltas count */
#define FTCTL_F_REPLY 0x02 /* reply direction of the connection */
#define FTCTL_F_UPPER 0x04 /* its frames are for ftctl_slot.upper, not for the device itself */

/*
 * Packets and bytes in one atomic addition. .low has the packets above the bytes. Whoever brings its
 * uppermost bit from 0 to 1 carries: adds 1 to the packets of .high and what exceeds 32 bits of the bytes to
 * its bytes, then takes both out of .low. What is read in between, also by the daemon when it carries a count
 * over to the flow that takes this one's place, is that many too many.
 */
struct ftctl_count {
	ftctl_u64 low;	/* packets, 22 bits; bytes, 42 bits */
	ftctl_u64 high; /* packets in units of 2^21, 32 bits; bytes in units of 2^32, 32 bits */
};
#define FTCTL_COUNT_BYTES   42 /* bits of .low */
#define FTCTL_COUNT_PACKETS 21 /* bits before a carry */
FTCTL_ASSERT(FTCTL_COUNT_BYTES + FTCTL_COUNT_PACKETS == 63, "a carry shows in the uppermost bit");

static inline ftctl_u64 ftctl_count_packets(const struct ftctl_count *c)
{
	return (c->low >> FTCTL_COUNT_BYTES) + ((c->high >> 32) << FTCTL_COUNT_PACKETS);
}

static inline ftctl_u64 ftctl_count_bytes(const struct ftctl_count *c)
{
	return (c->low & ((1ULL << FTCTL_COUNT_BYTES) - 1)) + (c->high << 32);
}

/*
 * Action of one direction, within ftctl_flow4, ftctl_flow4t, ftctl_flow6 or ftctl_flowx. Created by the
 * daemon; from then on only BPF programs write to it (the packet path, the witness, flow_edit), so that no
 * count is lost.
 */
struct ftctl_flow {
	ftctl_u32 gen;	     /* config.gen this direction was last witnessed under */
	ftctl_u32 state;     /* enum ftctl_flow_state */
	ftctl_u32 path;	     /* index into paths */
	ftctl_u32 new_src;   /* be; IPv4: as the packet leaves, also without NAT */
	ftctl_u32 new_dst;   /* be */
	ftctl_u16 new_sport; /* be */
	ftctl_u16 new_dport; /* be */
	/* one's-complement sums of (~old + new), folded to 16 bits, as stored in the packet */
	ftctl_u16 addr_delta;	/* addresses: IPv4 header, pseudo header */
	ftctl_u16 port_delta;	/* ports */
	ftctl_u8 flags;		/* FTCTL_F_* */
	ftctl_u8 trickle_s;	/* seconds between two packets sent to the stack; 0: never */
	ftctl_u8 reason;	/* with DIFFERS: enum ftctl_reason */
	ftctl_u8 detail;	/* with DIFFERS: enum ftctl_detail */
	ftctl_u32 last_seen;	/* ticks; last packet carried */
	ftctl_u32 last_trickle; /* ticks; last packet of a live flow given to the stack */
	ftctl_u32 id;		/* connection, as the daemon numbers them; both directions share it */
	ftctl_u32 pad;
	/* carried: aggregates count as their segments; L3 bytes without tags and outer headers */
	struct ftctl_count carried;
};
FTCTL_ASSERT(sizeof(struct ftctl_flow) == 64, "flow");

/* Map: flow4 (flow4.h). */
struct ftctl_flow4 {
	struct ftctl_key4 key;
	struct ftctl_flow flow;
};
FTCTL_ASSERT(sizeof(struct ftctl_flow4) == 80, "flow4");

/* Map: flow4t, in outer_flow4t (flow4.h). */
struct ftctl_flow4t {
	struct ftctl_key4t key;
	struct ftctl_flow flow;
};
FTCTL_ASSERT(sizeof(struct ftctl_flow4t) == 88, "flow4t");

/* Map: flow6; within ftctl_flowx: flowx. */
struct ftctl_flow6 {
	struct ftctl_flow flow;
	struct ftctl_addr new_src; /* IPv6: as the packet leaves, also without NAT; IPv4: zero */
	struct ftctl_addr new_dst;
};
FTCTL_ASSERT(sizeof(struct ftctl_flow6) == 96, "flow6");

/* Map: flowx. */
struct ftctl_flowx {
	struct ftctl_flow6 flow;
	struct ftctl_tuple tuple; /* whose it is */
	ftctl_u32 pad;
};
FTCTL_ASSERT(sizeof(struct ftctl_flowx) == 192, "flowx");

/* -------------------------------------------------------------------- paths */

/* ftctl_path_body.flags */
#define FTCTL_P_VALID	    0x01 /* unset: neighbour unresolved, device down, ... */
#define FTCTL_P_XDP	    0x02 /* the device takes frames by XDP redirect */
#define FTCTL_P_TOS_INHERIT 0x04 /* outer TOS or traffic class from the inner packet */
#define FTCTL_P_DF	    0x08 /* outer IPv4: DF always set; unset: as the inner IPv4 packet has it */
#define FTCTL_P_LABEL	    0x10 /* outer IPv6: flow label from the inner IPv6 packet */
#define FTCTL_P_DRAWN	    0x40 /* outer IPv6: a flow label of 0 becomes one of the flow's own */
#define FTCTL_P_LIMIT	    0x20 /* outer IPv6: a destination options header with the encapsulation limit */

#define FTCTL_L2_MAX	32 /* Ethernet, two tags, PPPoE: 14 + 2 * 4 + 8 = 30 */
#define FTCTL_OUTER_MAX 48 /* IPv6 and the 8 bytes of the encapsulation limit */
#define FTCTL_LIMIT_LEN 8  /* RFC 2473 section 4.1.1, padded to 8 bytes */

/*
 * The way out that many flows share. The headers before the inner packet stand here as they leave;
 * what depends on the packet (lengths, ID, checksum, and what is inherited) is filled in.
 */
struct ftctl_path_body {
	ftctl_u32 oif;	  /* physical egress ifindex */
	ftctl_u16 mtu;	  /* largest L3 length of the inner packet, bytes */
	ftctl_u8 flags;	  /* FTCTL_P_* */
	ftctl_u8 reason;  /* with !VALID: enum ftctl_reason */
	ftctl_u8 l2_len;  /* Ethernet, tags and PPPoE header: bytes of .l2 */
	ftctl_u8 tunnel;  /* enum ftctl_tunnel: pushed */
	ftctl_u8 tun_ttl; /* TTL or hop limit; 0: the inner one after the decrement */
	ftctl_u8 tun_tos; /* TOS or traffic class, unless inherited; ECN bits zero */
	ftctl_u8 family;  /* 4 or 6: of the inner packet; .outer's protocol and .l2's EtherType are for it */
	ftctl_u8 vlans;	  /* tags in .l2 */
	ftctl_u16 pppoe;  /* be; session in .l2, 0: none */
	ftctl_u8 l2[FTCTL_L2_MAX]; /* dmac, smac, ... ; the last EtherType or PPP protocol is the packet's */
	ftctl_u8 outer[FTCTL_OUTER_MAX]; /* outer header */
	/* PCP of each tag in .l2, by the priority that ip_forward() gives the packet: four bits each, 0
	 * lowest */
	ftctl_u32 pcp[2];
	ftctl_u8 reserved[16];
};
FTCTL_ASSERT(sizeof(struct ftctl_path_body) == 120, "path body");

/*
 * Map: paths (array, memory-mapped by the daemon). Readers use body[active]; the daemon
 * fills the other one and then flips .active, so that a reader never sees a MAC of which
 * half is new. It does not touch the same path twice within a grace period.
 */
struct ftctl_path {
	ftctl_u32 active; /* 0 or 1 */
	ftctl_u32 pad0;
	struct ftctl_path_body body[2];
	ftctl_u64 pad1;
};
FTCTL_ASSERT(sizeof(struct ftctl_path) == 256, "path");

/* --------------------------------------------------------------- attachments */

/* ftctl_slot.flags */
#define FTCTL_S_PORT 0x01 /* port of a bridge, or below one: what a bridge drops goes to the stack */

/* Map: slots (array, memory-mapped). One per attachment. */
struct ftctl_slot {
	/* MAC addresses that frames for this machine have, byte 0 lowest, in the low 48 bits; ~0: none */
	ftctl_u64 mac;	   /* the device's; ~0 here: take nothing */
	ftctl_u64 upper;   /* of the device above it that has one of its own: a bridge, a VLAN; ~0: none */
	ftctl_u32 ifindex; /* 0: free */
	ftctl_u16 hook;	   /* enum ftctl_hook */
	ftctl_u16 flags;   /* FTCTL_S_* */
	ftctl_u32 rpf;	   /* FTCTL_RPF_*; 0: off */
	ftctl_u32 pad;
};
FTCTL_ASSERT(sizeof(struct ftctl_slot) == 32, "slot");

/* ftctl_slot.rpf: one of the first two, or neither */
#define FTCTL_RPF_LOOSE	 0x01 /* some route leads back to the source */
#define FTCTL_RPF_STRICT 0x02 /* ... by this device */
#define FTCTL_RPF_LOG	 0x04 /* only count */
#define FTCTL_RPF_UNSURE 0x08 /* the kernel's answer would be another one on this device: never drop */

enum ftctl_hook {
	FTCTL_HOOK_NONE = 0,
	FTCTL_HOOK_XDP = 1,
	FTCTL_HOOK_TC = 2,
};

/* Map: stats (per-CPU array, index = slot). rx_packets = fast_packets + sum(reasons). */
struct ftctl_stats {
	ftctl_u64 rx_packets;	/* packets the program saw; an aggregate counts once */
	ftctl_u64 fast_packets; /* ... and took; an aggregate counts once */
	ftctl_u64 fast_bytes;	/* L3 bytes as in ftctl_flow.carried */
	ftctl_u64 tx_failed;	/* frames the egress device did not take (counted at its own slot) */
	ftctl_u64 reasons[FTCTL_PACKET_REASONS];
};
FTCTL_ASSERT(sizeof(struct ftctl_stats) == 32 + 8 * FTCTL_PACKET_REASONS, "stats");

/* ------------------------------------------------------------- configuration */

#define FTCTL_LOCAL_SHIFT 11
#define FTCTL_LOCAL_BITS  (1U << FTCTL_LOCAL_SHIFT)

/* Section of a map that programs know as a variable; the map's name follows. */
#define FTCTL_VARIABLE ".data."

/* ftctl_config.multipath */
#define FTCTL_MULTIPATH_4 0x01
#define FTCTL_MULTIPATH_6 0x02

/* Key of map broadcasts (hash, any value): `addr` is an IPv4 broadcast address of the device. */
struct ftctl_broadcast {
	ftctl_u32 ifindex;
	ftctl_u32 addr; /* be */
};
FTCTL_ASSERT(sizeof(struct ftctl_broadcast) == 8, "broadcast");
#define FTCTL_MAX_BROADCASTS 16384

/* Map: config (array of one, memory-mapped). What every packet needs is in the first 64 bytes. */
struct ftctl_config {
	ftctl_u32 abi;		  /* FTCTL_ABI */
	ftctl_u32 gen;		  /* flows of another generation go back to the witness */
	ftctl_u64 heartbeat_ns;	  /* CLOCK_MONOTONIC of the last beat */
	ftctl_u64 watch_until_ns; /* the witness looks at packets until then */
	ftctl_u64 clock_ns;	  /* CLOCK_MONOTONIC is jiffies * tick_ns + clock_ns, to a tick or two */
	ftctl_u32 tick_ns;	  /* length of a jiffy */
	ftctl_u32 tunnels;	  /* number of tunnels known; 0: IP in IP is just another protocol */
	ftctl_u32 disabled;	  /* 1: everything to the stack (resync after lost events) */
	ftctl_u32 filter;	  /* rules of the early filter in use: 0: none, else 1 + index (filter.h) */
	ftctl_u32 multipath;	  /* FTCTL_MULTIPATH_*: families of which some route has several next hops */
	ftctl_u32 rpf;		  /* attachments with a reverse path filter */
	ftctl_u32 options;	  /* set by programs: a packet with options or extension headers came by */
	ftctl_u32 bloom_level;	  /* of flow_bloom in use (bloom.h) */
	ftctl_u64 instance;	  /* random, made when the maps were; tells whether pins belong together */
	ftctl_u64 netns_cookie;	  /* SO_NETNS_COOKIE of the namespace the pins work in; 0: unknown */
	/* local addresses, as a set of ftctl_local_bit(): a set bit may stand for others as well */
	ftctl_u32 local[FTCTL_LOCAL_BITS / 32];
};
FTCTL_ASSERT(sizeof(struct ftctl_config) == 80 + FTCTL_LOCAL_BITS / 8, "config");
FTCTL_ASSERT(offsetof(struct ftctl_config, instance) == 64, "config: hot part");

static inline ftctl_u32 ftctl_local_bit(const struct ftctl_addr *addr)
{
	ftctl_u32 mix = addr->w[0] ^ addr->w[1] ^ addr->w[2] ^ addr->w[3];

	return (mix * 0x9e3779b1U) >> (32 - FTCTL_LOCAL_SHIFT);
}

/* ------------------------------------------------------------------- witness */

/* Key of map samples. Ids are never used twice while a flow lives. */
struct ftctl_sample_key {
	ftctl_u32 id;
	ftctl_u32 reply; /* 0 or 1 */
};
FTCTL_ASSERT(sizeof(struct ftctl_sample_key) == 8, "sample key");

/* Map: samples (LRU hash): the packet a flow last gave to the stack. */
struct ftctl_sample {
	ftctl_u64 ts_ns;
	ftctl_u32 l4_tag;   /* TCP: sequence number (be); else of length and payload */
	ftctl_u32 label;    /* be; IPv6: flow label */
	ftctl_u16 ip_id;    /* be; IPv6: zero */
	ftctl_u16 len;	    /* L3 length of the inner packet; of one segment for aggregates */
	ftctl_u8 ttl;	    /* or hop limit */
	ftctl_u8 tos;	    /* or traffic class; after ECN decapsulation */
	ftctl_u16 frag_off; /* be; IPv6: zero */
	ftctl_u32 hold_ns;  /* so long it is not replaced */
	ftctl_u32 pad;
};
FTCTL_ASSERT(sizeof(struct ftctl_sample) == 32, "sample");

enum ftctl_event_type {
	FTCTL_EV_LIVE = 1,    /* a direction was witnessed and now carries packets */
	FTCTL_EV_DIFFERS = 2, /* ... was refused by the witness; .reason */
	FTCTL_EV_CLOSING = 3, /* FIN, RST or SYN; .tcp_flags */
};

/* Map: events (ring buffer). Advice only: all of it can be read from the flow as well. */
struct ftctl_event {
	ftctl_u32 type;
	ftctl_u32 id;
	ftctl_u8 flow_flags; /* FTCTL_F_* */
	ftctl_u8 reason;
	ftctl_u8 tcp_flags;
	ftctl_u8 detail; /* enum ftctl_detail */
};
FTCTL_ASSERT(sizeof(struct ftctl_event) == 12, "event");

/* -------------------------------------------------------------- flow_edit(8) */

/* ftctl_flow_edit.what */
#define FTCTL_EDIT_STATE   0x01 /* state := .state (also out of CLOSING and DIFFERS) */
#define FTCTL_EDIT_PATH	   0x02 /* path := .path */
#define FTCTL_EDIT_ID	   0x04 /* id := .id */
#define FTCTL_EDIT_TRICKLE 0x08 /* trickle_s := .trickle_s */

/* Context of the flow_edit program (BPF_PROG_TYPE_SYSCALL): changes a flow in place. */
struct ftctl_flow_edit {
	struct ftctl_tuple key;
	ftctl_u32 what;
	ftctl_u32 state;
	ftctl_u32 path;
	ftctl_u32 id;
	ftctl_u32 trickle_s;
};
FTCTL_ASSERT(sizeof(struct ftctl_flow_edit) == 112, "flow_edit");

#endif /* FTCTL_ABI_H */
