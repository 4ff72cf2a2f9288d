/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Internet checksums. All updates are incremental (RFC 1624, equation 3), so that a wrong
 * checksum stays wrong by the same amount, as on the slow path.
 */
#ifndef FTCTL_LIB_CSUM_H
#define FTCTL_LIB_CSUM_H

#include "packet.h"

static __always_inline __u16 csum_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

/* `check` after words changed by `delta`, the sum of (~old + new) over them. */
static __always_inline __u16 csum_update(__u16 check, __u32 delta)
{
	return (__u16)~csum_fold((__u16)~check + delta);
}

/* The change of one 16-bit word. */
static __always_inline __u32 csum_delta16(__u16 from, __u16 to)
{
	return (__u16)~from + (__u32)to;
}

/* Sum over the words of a 20-byte IPv4 header. */
static __always_inline __u64 csum_iphdr_words(const struct iphdr *ip)
{
	const __u32 *word = (const __u32 *)ip;
	__u64 sum = 0;

#pragma unroll
	for (int i = 0; i < IP_HLEN / 4; i++)
		sum += word[i];
	return sum;
}

/* ... in 16 bits. */
static __always_inline __u16 csum_iphdr(const struct iphdr *ip)
{
	__u64 sum = csum_iphdr_words(ip);

	sum = (sum & 0xffffffff) + (sum >> 32); /* at most 33 bits: csum_fold() wants a carry less */
	return csum_fold((__u32)(sum & 0xffff) + (__u32)(sum >> 16));
}

/*
 * Its checksum is right (ip_fast_csum)? Then the sum, which is not zero, is a multiple of 0xffff. A number is
 * a multiple of an odd one if, times that one's inverse modulo 2^64, it becomes the quotient; others become
 * more than any quotient.
 */
static __always_inline bool csum_iphdr_right(const struct iphdr *ip)
{
	const __u64 quotient = 0x0001000100010001ULL; /* the greatest: (2^64 - 1) / 0xffff */

	return csum_iphdr_words(ip) * -quotient <= quotient; /* 0xffff * -quotient is 1 */
}

/* The field of the header at `l4`; NULL: it is behind the end. */
static __always_inline __u16 *l4_csum_field(void *l4, const void *end, const struct packet *pkt)
{
	__u32 at =
		pkt->proto == IPPROTO_TCP ? offsetof(struct tcphdr, check) : offsetof(struct udphdr, check);
	void *field;

	asm volatile("" : "+r"(at)); /* one pointer, checked as it is used */
	field = l4 + at;
	return field + sizeof(__u16) > end ? NULL : field;
}

/* NAT of a checksum over the packet, as udp_manip_pkt() and tcp_manip_pkt() change it. */
static __always_inline bool l4_csum_finished(void *l4, const void *end, const struct ftctl_flow *flow,
					     const struct packet *pkt)
{
	__u16 *field = l4_csum_field(l4, end, pkt);
	bool udp = pkt->proto == IPPROTO_UDP;
	__u16 check;

	if (!field)
		return false;
	if (udp && !pkt->l4_check)
		return true; /* no checksum: stays so (RFC 768) */
	check = csum_update(pkt->l4_check, (__u32)flow->addr_delta + flow->port_delta);
	*field = udp && !check ? 0xffff : check;
	return true;
}

/* ... of the pseudo header's sum, which has no ports (inet_proto_csum_replace4() with CHECKSUM_PARTIAL). */
static __always_inline bool l4_csum_partial(void *l4, const void *end, const struct ftctl_flow *flow,
					    const struct packet *pkt)
{
	__u16 *field = l4_csum_field(l4, end, pkt);
	__u16 sum = csum_fold((__u32)pkt->l4_check + flow->addr_delta);

	if (!field)
		return false;
	*field = pkt->proto == IPPROTO_UDP && !sum ? 0xffff : sum;
	return true;
}

#endif
