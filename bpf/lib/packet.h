/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parser found, and what the rest of the datapath works with. */
#ifndef FTCTL_LIB_PACKET_H
#define FTCTL_LIB_PACKET_H

#include "common.h"

struct packet {
	struct ftctl_tuple key;
	__u32 l3;	/* offset of the inner, or only, IP header in the buffer */
	__u32 pad;	/* bytes of the frame beyond the L3 packet */
	__u32 segs;	/* packets on the wire: 1, or the segments of an aggregate */
	__u32 l4_tag;	/* see struct ftctl_sample */
	__u32 label;	/* be; IPv6 flow label */
	__u16 len;	/* L3 length of the inner packet */
	__u16 seglen;	/* ... of its largest segment */
	__u16 hdrlen;	/* ... of its IP and L4 headers */
	__u16 frag_off; /* be; IPv4 */
	__u16 ip_id;	/* be; IPv4 */
	__u16 ip_check; /* IPv4 */
	__u16 l4_check;
	__u8 l2_len;	/* link-layer headers in the buffer */
	__u8 outer_len; /* outer headers in the buffer */
	__u8 proto;
	__u8 ttl;     /* or hop limit */
	__u8 tos;     /* or traffic class; of the inner packet, as it arrived */
	__u8 new_tos; /* ... after ECN decapsulation */
	__u8 tcp_flags;
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
	__u8 tag_bits; /* PCP and DEI of either tag, or'ed */
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

#endif
