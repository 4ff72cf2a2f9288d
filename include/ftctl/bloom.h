/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which flows there may be: a Bloom filter with one hash. Most packets that the stack gets are of no flow,
 * and the bucket in which a flow map would look for one is in nobody's cache.
 *
 * Map flow_bloom (array, memory-mapped by the daemon): 64 bits in each entry. The 2^L bits of level L stand
 * from bit 2^L on, and config.bloom_level says which level is in use, so that few flows take few pages. A
 * level's number of a flow is how its hash begins: the daemon, which counts the flows of each bit of the
 * longest level, makes any other one of those counts, fills it and then goes over to it.
 *
 * A bit too many costs time. One too few would send a flow's packets to the stack: it is set before
 * the flow is there, and goes after it.
 */
#ifndef FTCTL_BLOOM_H
#define FTCTL_BLOOM_H

#include "abi.h"

#define FTCTL_BLOOM_FIRST 15U /* level: 4 KiB */
#define FTCTL_BLOOM_LAST  29U

/* An address as one number; of IPv6 the words that tell most: subnet and interface. */
static inline ftctl_u64 ftctl_bloom_addr(const struct ftctl_tuple *t, unsigned int first)
{
	ftctl_u64 addr = ftctl_tuple_word(t, first);

	if (t->family == 6)
		addr ^= (ftctl_u64)ftctl_tuple_word(t, first + 1) << 32 ^ ftctl_tuple_word(t, first + 3);
	return addr;
}

/*
 * Of addresses and ports; two flows that differ elsewhere share a bit. A polynomial in a number without
 * pattern: its upper bits are the good ones.
 */
static inline ftctl_u64 ftctl_bloom_hash(const struct ftctl_tuple *t)
{
	const ftctl_u64 factor = 0x9e3779b97f4a7c15ULL;
	ftctl_u64 hash = ftctl_tuple_word(t, FTCTL_WORD_PORTS);

	hash = hash * factor + ftctl_bloom_addr(t, FTCTL_WORD_SRC);
	hash = hash * factor + ftctl_bloom_addr(t, FTCTL_WORD_SRC + 4);
	return hash * factor;
}

/* The bit of that hash at a level from 1 to 31. */
static inline ftctl_u32 ftctl_bloom_bit(ftctl_u64 hash, ftctl_u32 level)
{
	return (ftctl_u32)(hash >> ((64 - level) & 63)) | 1U << (level & 31);
}

/* The last level for a flow map of that many entries: at least a bit for each; a map that is full is rare. */
static inline ftctl_u32 ftctl_bloom_last(ftctl_u32 entries)
{
	ftctl_u32 level = FTCTL_BLOOM_FIRST;

	while (level < FTCTL_BLOOM_LAST && 1ULL << level < entries)
		level++;
	return level;
}

#endif
