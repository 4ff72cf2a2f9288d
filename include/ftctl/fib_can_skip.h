/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When a fib lookup is not needed (nft_fib_can_skip, "fib: avoid lookup if socket is
 * available"): the packet already has a full socket that received by this device, or
 * there is no socket and the device is loopback. A socket with another input device
 * does not skip, and the loopback test does not follow then.
 */
#ifndef FTCTL_FIB_CAN_SKIP_H
#define FTCTL_FIB_CAN_SKIP_H

#include "abi.h"

/*
 * has_sk: an established socket takes the packet; sk_rx_ifindex: the device it last
 * received by (sk_rx_dst_ifindex); ifindex: the packet's input device.
 * Returns nonzero when the lookup is to be skipped, i.e. taken as successful.
 */
static inline int ftctl_fib_can_skip(int has_sk, ftctl_u32 sk_rx_ifindex, ftctl_u32 ifindex, int is_loopback)
{
	if (has_sk)
		return sk_rx_ifindex == ifindex;
	return is_loopback;
}

#endif /* FTCTL_FIB_CAN_SKIP_H */
