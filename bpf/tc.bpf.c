// SPDX-License-Identifier: GPL-2.0-only
/* Entry points at TC. */
#include "lib/ctx_tc.h"

#include "lib/adjust_tc.h"
#include "lib/forward.h"
#include "lib/witness.h"

SEC("tc")
int tc_ingress(struct __sk_buff *skb)
{
	return forward(skb);
}

/* The witness. It only looks: the packet goes on whatever it finds. */
SEC("tc")
int tc_egress(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct ftctl_config *cfg = bpf_map_lookup_elem(&config, &zero);
	struct tc_scratch *sc;
	__u64 now;

	if (unlikely(!cfg))
		return TC_ACT_UNSPEC;
	now = clock_now(cfg);
	if (likely(!witness_awake(cfg, now)))
		return TC_ACT_UNSPEC;
	sc = scratch_get();
	if (sc && sc->redirected)
		sc->redirected = 0; /* our own, not the stack's */
	else
		witness_see(skb, cfg, now);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
