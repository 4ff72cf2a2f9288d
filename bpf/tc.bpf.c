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
	struct tc_scratch *sc = scratch_get();
	__u64 now;

	if (sc && sc->redirected) { /* our own, not the stack's */
		sc->redirected = 0;
		return TC_ACT_UNSPEC;
	}
	now = clock_now(&config);
	if (unlikely(config.watch_until_ns > now))
		witness_see(skb, &config, now);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "GPL";
