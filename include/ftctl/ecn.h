/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ECN across tunnels, as include/net/inet_ecn.h does it (RFC 6040 with RFC 3168's
 * full-functionality rule for CE on encapsulation). One copy for the datapath and for
 * the user-space tunnel driver.
 */
#ifndef FTCTL_ECN_H
#define FTCTL_ECN_H

#include "abi.h"

#define FTCTL_ECN_MASK	  3
#define FTCTL_ECN_NOT_ECT 0
#define FTCTL_ECN_ECT1	  1
#define FTCTL_ECN_ECT0	  2
#define FTCTL_ECN_CE	  3

/* INET_ECN_encapsulate: DSCP of `outer`, ECN of `inner`, but CE becomes ECT(0). */
static inline ftctl_u8 ftctl_ecn_encap(ftctl_u8 outer, ftctl_u8 inner)
{
	ftctl_u8 ecn = inner & FTCTL_ECN_MASK;

	if (ecn == FTCTL_ECN_CE)
		ecn = FTCTL_ECN_ECT0;
	return (ftctl_u8)((outer & ~FTCTL_ECN_MASK) | ecn);
}

/* Nonzero: the packet must be dropped (inner Not-ECT under outer CE). */
static inline int ftctl_ecn_decap_drops(ftctl_u8 outer, ftctl_u8 inner)
{
	return (inner & FTCTL_ECN_MASK) == FTCTL_ECN_NOT_ECT && (outer & FTCTL_ECN_MASK) == FTCTL_ECN_CE;
}

/*
 * The inner TOS after decapsulation (__INET_ECN_decapsulate plus IP_ECN_set_ce and
 * IP_ECN_set_ect1): CE is taken over, ECT(1) on an ECT(0) packet as well.
 */
static inline ftctl_u8 ftctl_ecn_decap(ftctl_u8 outer, ftctl_u8 inner)
{
	ftctl_u8 o = outer & FTCTL_ECN_MASK;
	ftctl_u8 i = inner & FTCTL_ECN_MASK;

	if (i == FTCTL_ECN_NOT_ECT || i == FTCTL_ECN_CE)
		return inner;
	if (o == FTCTL_ECN_CE)
		return (ftctl_u8)(inner | FTCTL_ECN_CE);
	if (o == FTCTL_ECN_ECT1 && i == FTCTL_ECN_ECT0)
		return (ftctl_u8)((inner & ~FTCTL_ECN_MASK) | FTCTL_ECN_ECT1);
	return inner;
}

#endif /* FTCTL_ECN_H */
