/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a flow of IPv4, plain or in IPv4, stands. Most flows are such, and the kernel's hash map has to wait
 * for memory twice before it has found one: for the bucket, and for the entry that the bucket names. In maps
 * flow4 and flow4t (arrays, memory-mapped by the daemon) the hash says where the entry itself is.
 *
 * A flow stands in its home or in one of the FTCTL_FLOW4_PROBES - 1 entries behind it: linear probing. It
 * never moves. One that finds no room there stands in map flowx, and its home is not free as long as it does.
 *
 * key.iif_proto says what an entry is. The daemon alone writes keys, and iif_proto last of all, so that
 * nobody finds half a flow. An entry whose flow was removed is *gone*: those behind it are still found. It
 * gets another flow only when no program can be at work with the old one any more.
 */
#ifndef FTCTL_FLOW4_H
#define FTCTL_FLOW4_H

#include "abi.h"

#define FTCTL_FLOW4_PROBES 8U

/* key.iif_proto of entries without a flow */
#define FTCTL_FLOW4_FREE 0U	     /* no flow of a home before it stands behind it */
#define FTCTL_FLOW4_GONE 0xffffffffU /* of no flow: protocol 255 */

/* Number of the home, of so many. `hash`: ftctl_bloom_hash(); its upper bits are the good ones. */
static inline ftctl_u32 ftctl_flow4_home(ftctl_u64 hash, ftctl_u32 homes)
{
	return (ftctl_u32)((hash >> 32) * homes >> 32);
}

#endif
