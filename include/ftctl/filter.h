/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The early filter's rules as the datapath reads them. Part of abi.h's contract (FTCTL_ABI).
 *
 * The rules in use are one set of inner maps; ftctl_config.filter says which of two. The daemon makes the
 * other set, then changes that word: no packet sees half of anything. A rule's rank is its place in the
 * order of ids; the lowest rank that matches wins.
 *
 * Two kinds of rules:
 *  - prefix rules have one address prefix and nothing else: any number, found by one lookup in a trie of
 *    all prefixes, where each node knows the lowest rank of those that cover it. The walk takes a step for
 *    each bit that tells prefixes apart; two bits of the set say beforehand whether it can find anything;
 *  - general rules: at most FTCTL_FILTER_GENERAL. Each is one bit of a bitmap. Each field of a packet
 *    chooses the bitmap of the rules that do not mind its value; what is in all of them matches.
 */
#ifndef FTCTL_FILTER_H
#define FTCTL_FILTER_H

#include "abi.h"

#define FTCTL_FILTER_GENERAL  1024
#define FTCTL_FILTER_PREFIXES (1U << 20)
#define FTCTL_FILTER_WORDS    (FTCTL_FILTER_GENERAL / 64)
#define FTCTL_FILTER_MASKS    8192 /* bitmaps; a power of two, more than so many rules can need */
#define FTCTL_FILTER_STRIPES  16   /* copies of the counters, at most: CPUs share one by number */
#define FTCTL_FILTER_NAME     16
#define FTCTL_FILTER_COMMENT  64

/* Map: filter_prefixes (inner: LPM trie). */
struct ftctl_filter_key {
	ftctl_u32 prefixlen; /* 32 for .kind, and the prefix's own */
	ftctl_u32 kind;	     /* be; ftctl_filter_kind() */
	struct ftctl_addr addr;
};
FTCTL_ASSERT(sizeof(struct ftctl_filter_key) == 24, "filter key");

#define FTCTL_FILTER_KINDS 4
static inline ftctl_u32 ftctl_filter_kind(ftctl_u8 family, int dst)
{
	return (family == 6 ? 2U : 0U) + (dst ? 1U : 0U);
}

/* A rank with its rule's action, so that the lowest is the first; none matches: FTCTL_FILTER_NONE. */
#define FTCTL_FILTER_NONE 0xffffffffU
static inline ftctl_u32 ftctl_filter_verdict(ftctl_u32 rank, int drop)
{
	return rank << 1 | (drop ? 1U : 0U);
}

struct ftctl_filter_hit {
	ftctl_u32 first; /* verdict of the first prefix rule that covers this prefix */
	ftctl_u32 mask;	 /* the general rules whose prefix covers it, or that have none */
};
FTCTL_ASSERT(sizeof(struct ftctl_filter_hit) == 8, "filter hit");

/*
 * Could a prefix cover an address? Only if one of two bits is set: that of its first byte, for the few
 * prefixes that are wide, or that of its leading bits (24 of IPv4, 32 of IPv6), hashed.
 */
#define FTCTL_FILTER_LEADS (1U << 24) /* bits, at most: a set uses 1 << (32 - .lead_shift) of them */
static inline ftctl_u32 ftctl_filter_lead_len(ftctl_u32 kind)
{
	return kind < 2 ? 24 : 32;
}

/* Bit of an address that begins with `first` (host order). */
static inline ftctl_u32 ftctl_filter_lead(ftctl_u32 kind, ftctl_u32 first, ftctl_u32 shift)
{
	ftctl_u32 lead = first >> (32 - ftctl_filter_lead_len(kind));

	return ((lead ^ kind << 30) * 0x9e3779b1U) >> shift & (FTCTL_FILTER_LEADS - 1);
}

struct ftctl_filter_mask {
	ftctl_u64 summary; /* bit n: .word[n] is not zero */
	ftctl_u64 word[FTCTL_FILTER_WORDS];
};
FTCTL_ASSERT(sizeof(struct ftctl_filter_mask) == 8 + FTCTL_FILTER_GENERAL / 8, "filter mask");

/* A device that rules name; others have .other_slot. */
struct ftctl_filter_device {
	char name[FTCTL_FILTER_NAME];
	ftctl_u16 mask;
};
#define FTCTL_FILTER_DEVICES 255

/* Map: filter_sets (inner: array of one, memory-mapped). Masks are given by their index in .masks. */
struct ftctl_filter_set {
	ftctl_u32 general; /* general rules: bits in use */
	ftctl_u32 rules;   /* all rules */
	ftctl_u32 kinds;   /* bit n: there is a prefix of kind n */
	ftctl_u32 stripes; /* of the counters */
	ftctl_u32 inner;   /* 1: some rule looks at what is inside tunnels */
	ftctl_u32 devices; /* in .device */
	ftctl_u32 used_masks;
	ftctl_u16 any_addr[2]; /* mask of source and destination that are in no prefix */
	ftctl_u16 no_port[2];  /* ... of packets without ports */
	ftctl_u16 other_slot;
	ftctl_u16 pad;
	ftctl_u16 proto[2][256]; /* [1]: of the inner header */
	ftctl_u16 slot[FTCTL_MAX_SLOTS];
	ftctl_u16 port[2][65536];	      /* by source and destination port, host order */
	ftctl_u32 rule[FTCTL_FILTER_GENERAL]; /* verdict of each bit's rule; ascending */
	struct ftctl_filter_device device[FTCTL_FILTER_DEVICES + 1];
	ftctl_u32 lead_shift;
	ftctl_u32 wide[FTCTL_FILTER_KINDS][8]; /* by first byte of the address */
	struct ftctl_filter_mask masks[FTCTL_FILTER_MASKS];
	ftctl_u32 leads[FTCTL_FILTER_LEADS / 32];
};
FTCTL_ASSERT(offsetof(struct ftctl_filter_set, masks) % 8 == 0, "filter set");

/* `first`: as in ftctl_filter_lead(). 0: the trie has no prefix that covers such an address. */
static inline int ftctl_filter_may_cover(const struct ftctl_filter_set *set, ftctl_u32 kind, ftctl_u32 first)
{
	ftctl_u32 bit = ftctl_filter_lead(kind, first, set->lead_shift);

	return (set->wide[kind & 3][first >> 29] >> (first >> 24 & 31) | set->leads[bit >> 5] >> (bit & 31)) &
	       1;
}

/* Map: filter_counts (inner: array, memory-mapped): rule `rank` of stripe s is s * .rules + rank. */
struct ftctl_filter_count {
	ftctl_u64 packets;
	ftctl_u64 bytes; /* L3, with outer headers */
};
FTCTL_ASSERT(sizeof(struct ftctl_filter_count) == 16, "filter count");

/* ftctl_filter_rule.flags */
#define FTCTL_FILTER_F_DROP  0x01
#define FTCTL_FILTER_F_INNER 0x02
#define FTCTL_FILTER_F_PROTO 0x04
#define FTCTL_FILTER_F_SRC   0x08
#define FTCTL_FILTER_F_DST   0x10
#define FTCTL_FILTER_F_SPORT 0x20
#define FTCTL_FILTER_F_DPORT 0x40

/* Map: filter_rules (inner: array, memory-mapped), by rank. The datapath does not read it: it is what `filter
 * list` shows, and what a daemon that comes back goes on with. */
struct ftctl_filter_rule {
	ftctl_u32 id;
	ftctl_u8 flags;
	ftctl_u8 family; /* of the prefixes; 0: no prefix */
	ftctl_u8 proto;
	ftctl_u8 src_len;
	ftctl_u8 dst_len;
	ftctl_u8 pad[3];
	ftctl_u16 sport[2]; /* first and last, host order */
	ftctl_u16 dport[2];
	ftctl_u32 pad2;
	struct ftctl_addr src;
	struct ftctl_addr dst;
	ftctl_u64 packets; /* counted before this set was made */
	ftctl_u64 bytes;
	char dev[FTCTL_FILTER_NAME];
	char comment[FTCTL_FILTER_COMMENT];
};
FTCTL_ASSERT(sizeof(struct ftctl_filter_rule) == 152, "filter rule");

#endif /* FTCTL_FILTER_H */
