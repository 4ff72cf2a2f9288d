/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parser found, and what the rest of the datapath works with. */
#ifndef FTCTL_LIB_PACKET_H
#define FTCTL_LIB_PACKET_H

#include "common.h"

struct packet {
	struct ftctl_tuple key;
	__u32 l3; /* offset of the inner, or only, IP header in the buffer */
	union {
		struct {		/* bytes 4 to 11 of an IPv4 header */
			__u16 ip_id;	/* be; IPv4 */
			__u16 frag_off; /* be; IPv4 */
			__u8 ttl;	/* or hop limit */
			__u8 proto;	/* of what follows */
			__u16 ip_check; /* IPv4 */
		};
		__u64 ip_words;
	};
	__u32 pad;    /* bytes of the frame beyond the L3 packet */
	__u32 segs;   /* packets on the wire: 1, or the segments of an aggregate */
	__u32 l4_tag; /* see struct ftctl_sample */
	__u32 label;  /* be; IPv6 flow label */
	__u16 len;    /* L3 length of the inner packet */
	__u16 seglen; /* ... of its largest segment */
	__u16 hdrlen; /* ... of its IP and L4 headers */
	__u16 l4_check;
	__u8 outer_len; /* outer headers in the buffer */
	__u8 tos;	/* or traffic class; of the inner packet, as it arrived */
	__u8 new_tos;	/* ... after ECN decapsulation */
	__u8 tcp_flags;
	__u8 upper;	/* FTCTL_F_UPPER: the frame is for ftctl_slot.upper */
	__u8 has_limit; /* an encapsulation limit follows the IPv6 header */
	__u8 limit;
};

/* Of the outer header and the link layer: what the witness compares beyond the key. */
struct packet_outside {
	__u8 macs[2 * ETH_ALEN];
	__u8 tos;
	__u8 ttl;
	__u16 frag_off; /* be; IPv4 */
	__u32 label;	/* be; IPv6 */
	__u8 limit;	/* encapsulation limit, when there is one */
	__u8 has_limit;
	__u8 tag_bits[2]; /* PCP and DEI of each tag */
};

/* What came of bringing the buffer into its new shape. */
enum adjusted {
	ADJUSTED,
	ADJUST_UNTOUCHED, /* nothing has been changed: the stack can have the packet */
	ADJUST_BROKEN,	  /* the memory for a few bytes was not there half-way */
};

static __always_inline bool packet_v6(const struct packet *pkt)
{
	return pkt->key.family == 6;
}

static __always_inline __u32 packet_ip_len(const struct packet *pkt)
{
	return packet_v6(pkt) ? sizeof(struct ipv6hdr) : IP_HLEN;
}

/* rt_tos2priority(): what ip_forward() sets for qdiscs and VLAN priorities. */
static __always_inline __u32 tos_priority(__u8 tos)
{
	/* ip_tos2prio[16], four bits each, index 0 lowest */
	const __u64 table = 0x4444666622220000ULL;

	return (table >> (((tos & 0x1e) >> 1) * 4)) & 0xf;
}

/* The TCI of a tag that the path pushes (0: the outermost) on a packet of this TOS. be */
static __always_inline __u16 path_tci(const struct ftctl_path_body *path, __u32 tag, __u8 tos)
{
	const __u16 *word = (const __u16 *)path->l2;
	__u32 pcp = (path->pcp[tag] >> (tos_priority(tos) * 4)) & 7;

	return word[7 + 2 * tag] | bpf_htons((__u16)(pcp << TCI_PCP_SHIFT));
}

#endif
