/* SPDX-License-Identifier: GPL-2.0-only */
/* Context layer for XDP: frames, before the stack has seen them. Same verbs as ctx_tc.h. */
#ifndef FTCTL_LIB_CTX_H
#define FTCTL_LIB_CTX_H

#include "csum.h"
#include "kernel.h"
#include "maps.h"
#include "packet.h"

#define context xdp_md

#define CTX_PASS XDP_PASS
#define CTX_DROP XDP_DROP

/* Egress devices: key and value are the ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, FTCTL_MAX_SLOTS);
	__type(key, __u32);
	__type(value, __u32);
} egress SEC(".maps");

static __always_inline void *ctx_data(const struct xdp_md *ctx)
{
	return CTX_POINTER(ctx, data);
}

static __always_inline void *ctx_data_end(const struct xdp_md *ctx)
{
	return CTX_POINTER(ctx, data_end);
}

/* Length of the frame with all its fragments. */
static __always_inline __u32 ctx_len(struct xdp_md *ctx)
{
	if (KERNEL_HAS_CTX) {
		struct xdp_buff *xdp = bpf_cast_to_kern_ctx(ctx);

		if (likely(!(xdp->flags & XDP_BUFF_FRAGS)))
			return (__u32)(ctx_data_end(ctx) - ctx_data(ctx));
	}
	return (__u32)bpf_xdp_get_buff_len(ctx);
}

/* Where KERNEL_HAS_CTX. */
static __always_inline bool ctx_route_gen(struct xdp_md *ctx, bool v6, __u32 *gen)
{
	struct xdp_buff *xdp = bpf_cast_to_kern_ctx(ctx);

	return kernel_route_gen(xdp->rxq->dev, v6, gen);
}

/* Headers are in the linear part or the packet is not ours. */
static __always_inline bool ctx_pull(struct xdp_md *ctx, __u32 len)
{
	return true;
}

/* Copies a header out of the frame. */
static __always_inline bool ctx_read(const struct xdp_md *ctx, __u32 off, void *to, __u32 len)
{
	const void *from = ctx_data(ctx) + off;

	if (from + len > ctx_data_end(ctx))
		return false;
	copy_words(to, from, len);
	return true;
}

/* The same wherever it lies, at the price of a call. */
static __always_inline bool ctx_load(struct xdp_md *ctx, __u32 off, void *to, __u32 len)
{
	return bpf_xdp_load_bytes(ctx, off, to, len) == 0;
}

/* Tags in metadata are invisible here: devices that strip them are refused at attach. */
static __always_inline bool ctx_vlan_present(const struct xdp_md *ctx)
{
	return false;
}

static __always_inline __u16 ctx_vlan_proto(const struct xdp_md *ctx)
{
	return 0;
}

static __always_inline __u16 ctx_vlan_tci(const struct xdp_md *ctx)
{
	return 0;
}

static __always_inline __u32 ctx_gso_size(const struct xdp_md *ctx)
{
	return 0;
}

/*
 * The redirect is prepared here, while the packet can still be passed: it takes effect only with
 * the verdict XDP_REDIRECT, and a device that has left the devmap is noticed before the first
 * byte is written.
 */
static __always_inline bool ctx_egress_ok(const struct ftctl_path_body *path)
{
	return (path->flags & FTCTL_P_XDP) && bpf_redirect_map(&egress, path->oif, XDP_PASS) == XDP_REDIRECT;
}

static __always_inline bool ctx_csum_known(struct xdp_md *ctx, const struct packet *pkt)
{
	return true;
}

/* A frame carries no sum of itself. */
static __always_inline void ctx_csum_changed(struct xdp_md *ctx, __s64 diff)
{
}

static __always_inline bool ctx_trim(struct xdp_md *ctx, __u32 bytes)
{
	return bpf_xdp_adjust_tail(ctx, -(int)bytes) == 0;
}

/* The L4 checksum at `l4`, for NAT. */
static __always_inline bool ctx_l4_csum(struct xdp_md *ctx, __u32 l4, const struct ftctl_flow *flow,
					const struct packet *pkt)
{
	return l4_csum_finished(ctx_data(ctx) + l4, ctx_data_end(ctx), flow, pkt);
}

static __always_inline int ctx_transmit(struct xdp_md *ctx, __u32 ifindex, const struct packet *pkt)
{
	/* as ctx_egress_ok() prepared it: queued per device, flushed in bulk at the end of the NAPI poll */
	return XDP_REDIRECT;
}

#endif
