/* SPDX-License-Identifier: GPL-2.0-only */
/* XDP: the frame gets its new headers in one move of its head. Same verbs as adjust_tc.h. */
#ifndef FTCTL_LIB_ADJUST_H
#define FTCTL_LIB_ADJUST_H

#include "write.h"

#define L2_PPPOE_LEN 4 /* offset of the length field, from the end of the link-layer header */

/* Can the packet be brought into the shape that the path wants, at this hook? 0 or the reason. */
static __always_inline __u32 ctx_adjust_check(struct xdp_md *ctx, const struct ftctl_path_body *path,
					      const struct packet *pkt)
{
	return 0;
}

static __always_inline enum adjusted ctx_adjust(struct xdp_md *ctx, const struct ftctl_path_body *path,
						const struct packet *pkt)
{
	int room = (int)(path->l2_len + path_outer_len(path)) - (int)pkt->l3;

	return !room || bpf_xdp_adjust_head(ctx, -room) == 0 ? ADJUSTED : ADJUST_UNTOUCHED;
}

static __always_inline bool ctx_write(struct xdp_md *ctx, const struct ftctl_path_body *path,
				      const struct flow_ref *ref, const struct packet *pkt)
{
	__u32 l2_len = path->l2_len, outer_len = path_outer_len(path);
	void *to;

	if (l2_len > FTCTL_L2_MAX || !write_inner(ctx, l2_len + outer_len, ref, pkt, false))
		return false;
	to = ctx_data(ctx);
	if (to + FTCTL_L2_MAX > ctx_data_end(ctx))
		return false;
	copy_words(to, path->l2, ETH_HLEN);
	if (unlikely(l2_len > ETH_HLEN)) {
#pragma unroll
		for (__u32 i = ETH_HLEN; i + 4 <= FTCTL_L2_MAX; i += 4)
			if (i < l2_len)
				copy_words(to + i, path->l2 + i, 4);
		if (path->vlans) {
			__u16 tci = path_tci(path, 0, pkt->new_tos);

			__builtin_memcpy(to + ETH_HLEN, &tci, sizeof(tci));
			tci = path_tci(path, 1, pkt->new_tos);
			if (path->vlans > 1)
				__builtin_memcpy(to + ETH_HLEN + 4, &tci, sizeof(tci));
		}
		if (path->pppoe) {
			__u16 len = bpf_htons((__u16)(pkt->len + outer_len + 2)); /* with the PPP protocol */
			__u32 at = l2_len - L2_PPPOE_LEN;

			if (l2_len < ETH_HLEN + L2_PPPOE_LEN)
				return false;
			/* said of this very number, as the verifier of 6.1 knows it only then */
			asm volatile("" : "+r"(at));
			if (at > FTCTL_L2_MAX)
				return false;
			to += at;
			if (to + sizeof(len) > ctx_data_end(ctx))
				return false;
			__builtin_memcpy(to, &len, sizeof(len));
		}
	}
	return write_outer(ctx, l2_len, path, pkt);
}

#endif
