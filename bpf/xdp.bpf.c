// SPDX-License-Identifier: GPL-2.0-only
/* Entry points at XDP. */
#include "lib/ctx_xdp.h"
#include "lib/forward.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

SEC("xdp.frags")
int xdp_ingress(struct xdp_md *ctx)
{
	return forward(ctx);
}

/* The little of the kernel's types that the tracepoint needs; relocated when loaded (CO-RE). */
struct net_device {
	int ifindex;
} __attribute__((preserve_access_index));

/*
 * Frames that an egress device did not take are freed by the devmap without a trace; this is the
 * only place that tells (semantics 7.2). They are counted at the egress device's own slot.
 */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(on_devmap_xmit, const struct net_device *from, const struct net_device *to, int sent, int drops,
	     int err)
{
	__u32 key = (__u32)to->ifindex;

	if (drops <= 0)
		return 0;
	for (__u32 i = 1; i < FTCTL_MAX_SLOTS; i++) {
		__u32 index = i;
		struct ftctl_slot *slot = bpf_map_lookup_elem(&slots, &index);
		struct ftctl_stats *st;

		if (!slot || slot->ifindex != key)
			continue;
		st = stats_get(index);
		if (st)
			st->tx_failed += (__u32)drops;
		break;
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
