/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parser found, and what the rest of the datapath works with. */
#ifndef FTCTL_LIB_PACKET_H
#define FTCTL_LIB_PACKET_H

#include "common.h"

struct packet {
	struct ftctl_key4t key;
	__u32 l3;	/* offset of the inner, or only, IPv4 header */
	__u32 pad;	/* bytes of the frame beyond the L3 packet */
	__u32 segs;	/* packets on the wire: 1, or the segments of an aggregate */
	__u16 len;	/* L3 length of the inner packet */
	__u16 seglen;	/* ... of its largest segment */
	__u16 hdrlen;	/* ... of its IP and L4 headers */
	__u16 frag_off; /* be */
	__u16 ip_id;	/* be */
	__u16 ip_check;
	__u32 l4_tag; /* see struct ftctl_sample */
	__u8 tunneled;
	__u8 proto;
	__u8 ttl;
	__u8 tos;     /* of the inner packet, as it arrived */
	__u8 new_tos; /* ... after ECN decapsulation */
	__u8 tcp_flags;
	__u16 l4_check;
};

#endif
