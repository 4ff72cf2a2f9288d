// SPDX-License-Identifier: GPL-2.0-only
/* Entry points at XDP. */
#include "lib/ctx_xdp.h"

#include "lib/adjust_xdp.h"
#include "lib/forward.h"

#include <bpf/bpf_tracing.h>

SEC("xdp.frags")
int xdp_ingress(struct xdp_md *ctx)
{
	return forward(ctx);
}

/* Frames that did not leave, at the egress device's own slot. Tracepoints see every namespace. */
static __always_inline void count_tx_failed(const struct net_device *in_netns, __u32 ifindex, __u64 frames)
{
	if (config.netns_cookie && in_netns->nd_net.net->net_cookie != config.netns_cookie)
		return;
	for (__u32 i = 1; i < FTCTL_MAX_SLOTS; i++) {
		__u32 index = i;
		struct ftctl_slot *slot = bpf_map_lookup_elem(&slots, &index);
		struct ftctl_stats *st;

		if (!slot || slot->ifindex != ifindex)
			continue;
		st = stats_get(index);
		if (st)
			st->tx_failed += frames;
		break;
	}
}

/* What the egress device did not take is freed by the devmap; only this tells. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(on_devmap_xmit, const struct net_device *from, const struct net_device *to, int sent, int drops,
	     int err)
{
	if (drops > 0)
		count_tx_failed(to, (__u32)to->ifindex, (__u32)drops);
	return 0;
}

/*
 * A device without NETDEV_XDP_ACT_NDO_XMIT (a veth whose peer runs no NAPI) is refused before its
 * queue (__xdp_enqueue). `index` is the devmap's key, an ifindex.
 */
SEC("tp_btf/xdp_redirect_err")
int BPF_PROG(on_redirect_err, const struct net_device *dev, const void *prog, const void *tgt, int err,
	     __u32 map_type, __u32 map_id, __u32 index)
{
	if (map_type == BPF_MAP_TYPE_DEVMAP_HASH)
		count_tx_failed(dev, index, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
