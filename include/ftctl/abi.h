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

#define FTCTL_ABI 1

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

/* A device's ifindex shares a word with the L4 protocol in the flow key. */
#define FTCTL_MAX_IFINDEX ((1U << 24) - 1)

#define FTCTL_MAX_PATHS	       65536
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

/* One direction of one IPv4 connection, as its packets arrive. Map: flow4. */
struct ftctl_key4 {
	ftctl_u32 src;	     /* be */
	ftctl_u32 dst;	     /* be */
	ftctl_u16 sport;     /* be */
	ftctl_u16 dport;     /* be */
	ftctl_u32 iif_proto; /* physical ingress ifindex | IPPROTO_* << 24 */
};
FTCTL_ASSERT(sizeof(struct ftctl_key4) == 16, "flow4 key");

static inline ftctl_u32 ftctl_iif_proto(ftctl_u32 ifindex, ftctl_u8 proto)
{
	return (ifindex & FTCTL_MAX_IFINDEX) | ((ftctl_u32)proto << 24);
}

static inline ftctl_u32 ftctl_key4_iif(const struct ftctl_key4 *key)
{
	return key->iif_proto & FTCTL_MAX_IFINDEX;
}

static inline ftctl_u8 ftctl_key4_proto(const struct ftctl_key4 *key)
{
	return (ftctl_u8)(key->iif_proto >> 24);
}

/* The same inside an IPIP packet, with the full outer tuple. Map: flow4t. */
struct ftctl_key4t {
	struct ftctl_key4 in;
	ftctl_u32 outer_src; /* be; zero in both: no tunnel (samples use this key for flow4, too) */
	ftctl_u32 outer_dst; /* be */
};
FTCTL_ASSERT(sizeof(struct ftctl_key4t) == 24, "flow4t key");

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

/*
 * Action of one direction. Maps: flow4, flow4t. Created by the daemon; from then on
 * only BPF programs write to it (the packet path, the witness, flow_edit), so that no
 * counter is lost and no reader sees half an update.
 */
struct ftctl_flow {
	ftctl_u32 gen;	     /* config.gen this direction was last witnessed under */
	ftctl_u32 state;     /* enum ftctl_flow_state */
	ftctl_u32 path;	     /* index into paths */
	ftctl_u32 new_src;   /* be; as the packet leaves, also without NAT */
	ftctl_u32 new_dst;   /* be */
	ftctl_u16 new_sport; /* be */
	ftctl_u16 new_dport; /* be */
	/* one's-complement sums of (~old + new), folded to 16 bits, as stored in the packet */
	ftctl_u16 addr_delta;	/* addresses: IPv4 header and pseudo header */
	ftctl_u16 port_delta;	/* ports */
	ftctl_u8 flags;		/* FTCTL_F_* */
	ftctl_u8 trickle_s;	/* seconds between two packets sent to the stack; 0: never */
	ftctl_u8 reason;	/* with DIFFERS: enum ftctl_reason */
	ftctl_u8 detail;	/* with DIFFERS: enum ftctl_detail */
	ftctl_u32 last_seen;	/* ticks; last packet carried */
	ftctl_u32 last_trickle; /* ticks; last packet of a live flow given to the stack */
	ftctl_u32 id;		/* connection, as the daemon numbers them; both directions share it */
	ftctl_u64 packets;	/* carried; aggregates count as their segments */
	ftctl_u64 bytes;	/* carried; L3 bytes without tags and outer headers */
};
FTCTL_ASSERT(sizeof(struct ftctl_flow) == 64, "flow");

/* -------------------------------------------------------------------- paths */

/* ftctl_path_body.flags */
#define FTCTL_P_VALID	    0x01 /* unset: neighbour unresolved, device down, ... */
#define FTCTL_P_XDP	    0x02 /* the device takes frames by XDP redirect */
#define FTCTL_P_IPIP	    0x04 /* push an IPv4 header, protocol 4 */
#define FTCTL_P_TOS_INHERIT 0x08 /* outer TOS from the inner packet, else .tun_tos */
#define FTCTL_P_DF	    0x10 /* outer DF always set; unset: as the inner packet has it */

/* The way out that many flows share. */
struct ftctl_path_body {
	ftctl_u8 dmac[6];
	ftctl_u8 smac[6];
	ftctl_u16 ethertype; /* be */
	ftctl_u16 mtu;	     /* largest L3 length of the inner packet, bytes */
	ftctl_u32 oif;	     /* physical egress ifindex */
	ftctl_u32 flags;     /* FTCTL_P_* */
	ftctl_u32 tun_src;   /* be; outer header as sent */
	ftctl_u32 tun_dst;   /* be */
	ftctl_u8 tun_ttl;    /* 0: inner TTL after the decrement */
	ftctl_u8 tun_tos;
	ftctl_u16 reason; /* with !VALID: enum ftctl_reason */
	ftctl_u8 reserved[20];
};
FTCTL_ASSERT(sizeof(struct ftctl_path_body) == 56, "path body");

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
FTCTL_ASSERT(sizeof(struct ftctl_path) == 128, "path");

/* --------------------------------------------------------------- attachments */

/* Map: slots (array, memory-mapped). One per attachment. */
struct ftctl_slot {
	ftctl_u64 mac;	   /* device MAC in the low 48 bits, byte 0 of the MAC lowest; ~0: take nothing */
	ftctl_u32 ifindex; /* 0: free */
	ftctl_u32 hook;	   /* enum ftctl_hook */
};
FTCTL_ASSERT(sizeof(struct ftctl_slot) == 16, "slot");

enum ftctl_hook {
	FTCTL_HOOK_NONE = 0,
	FTCTL_HOOK_XDP = 1,
	FTCTL_HOOK_TC = 2,
};

/* Map: stats (per-CPU array, index = slot). rx_packets = fast_packets + sum(reasons). */
struct ftctl_stats {
	ftctl_u64 rx_packets;	/* packets the program saw; an aggregate counts once */
	ftctl_u64 fast_packets; /* ... and took; an aggregate counts once */
	ftctl_u64 fast_bytes;	/* L3 bytes as in ftctl_flow.bytes */
	ftctl_u64 tx_failed;	/* frames the egress device did not take (counted at its own slot) */
	ftctl_u64 reasons[FTCTL_PACKET_REASONS];
};
FTCTL_ASSERT(sizeof(struct ftctl_stats) == 32 + 8 * FTCTL_PACKET_REASONS, "stats");

/* ------------------------------------------------------------- configuration */

/* Map: config (array of one, memory-mapped). */
struct ftctl_config {
	ftctl_u32 abi;		  /* FTCTL_ABI */
	ftctl_u32 gen;		  /* flows of another generation go back to the witness */
	ftctl_u64 heartbeat_ns;	  /* CLOCK_MONOTONIC of the last beat */
	ftctl_u64 watch_until_ns; /* the witness looks at packets until then */
	ftctl_u32 tunnels;	  /* number of tunnels known; 0: IPIP is just another protocol */
	ftctl_u32 disabled;	  /* 1: everything to the stack (resync after lost events) */
	ftctl_u64 instance;	  /* random, made when the maps were; tells whether pins belong together */
	ftctl_u64 netns_cookie;	  /* SO_NETNS_COOKIE of the namespace the pins work in; 0: unknown */
	ftctl_u64 pad[2];
};
FTCTL_ASSERT(sizeof(struct ftctl_config) == 64, "config");

/* ------------------------------------------------------------------- witness */

/* Map: samples (LRU hash, key ftctl_key4t): the packet a flow last gave to the stack. */
struct ftctl_sample {
	ftctl_u64 ts_ns;
	ftctl_u32 l4_tag; /* TCP: sequence number (be); UDP: length and zero (be) */
	ftctl_u16 ip_id;  /* be */
	ftctl_u16 len;	  /* L3 length of the inner packet; of one segment for aggregates */
	ftctl_u8 ttl;
	ftctl_u8 tos;	    /* after ECN decapsulation */
	ftctl_u16 frag_off; /* be */
	ftctl_u32 pad;
};
FTCTL_ASSERT(sizeof(struct ftctl_sample) == 24, "sample");

enum ftctl_event_type {
	FTCTL_EV_LIVE = 1,    /* a direction was witnessed and now carries packets */
	FTCTL_EV_DIFFERS = 2, /* ... was refused by the witness; .reason */
	FTCTL_EV_CLOSING = 3, /* FIN, RST or SYN; .tcp_flags */
};

/* Map: events (ring buffer). Advice only: all of it can be read from the flow as well. */
struct ftctl_event {
	ftctl_u32 type;
	ftctl_u32 id;
	struct ftctl_key4t key;
	ftctl_u8 tunneled;   /* key is of flow4t */
	ftctl_u8 flow_flags; /* FTCTL_F_* */
	ftctl_u8 reason;
	ftctl_u8 tcp_flags;
	ftctl_u8 detail; /* enum ftctl_detail */
	ftctl_u8 pad[3];
};
FTCTL_ASSERT(sizeof(struct ftctl_event) == 40, "event");

/* -------------------------------------------------------------- flow_edit(8) */

/* ftctl_flow_edit.what */
#define FTCTL_EDIT_STATE   0x01 /* state := .state (also out of CLOSING and DIFFERS) */
#define FTCTL_EDIT_PATH	   0x02 /* path := .path */
#define FTCTL_EDIT_ID	   0x04 /* id := .id */
#define FTCTL_EDIT_TRICKLE 0x08 /* trickle_s := .trickle_s */

/* Context of the flow_edit program (BPF_PROG_TYPE_SYSCALL): changes a flow in place. */
struct ftctl_flow_edit {
	struct ftctl_key4t key;
	ftctl_u32 tunneled;
	ftctl_u32 what;
	ftctl_u32 state;
	ftctl_u32 path;
	ftctl_u32 id;
	ftctl_u32 trickle_s;
};
FTCTL_ASSERT(sizeof(struct ftctl_flow_edit) == 48, "flow_edit");

#endif /* FTCTL_ABI_H */
