// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes of flows on the daemon's behalf. A map update from user space would replace the whole
 * entry and lose what was counted meanwhile; a program changes it in place. And the clock, which user space
 * cannot read.
 */
#include "lib/flow.h"

#define ENOENT 2

SEC("syscall")
int flow_edit(struct ftctl_flow_edit *edit)
{
	struct ftctl_tuple tuple = edit->key;
	struct ftctl_flow *flow;
	struct flow_ref ref;

	if (!flow_find(&tuple, ftctl_bloom_hash(&tuple), &ref))
		return -ENOENT;
	flow = ref.flow;
	if (edit->what & FTCTL_EDIT_PATH)
		flow->path = edit->path;
	if (edit->what & FTCTL_EDIT_ID)
		flow->id = edit->id;
	if (edit->what & FTCTL_EDIT_TRICKLE)
		flow->trickle_s = (__u8)edit->trickle_s;
	if (edit->what & FTCTL_EDIT_STATE)
		flow->state = edit->state;
	return 0;
}

/*
 * Says how far apart jiffies and CLOCK_MONOTONIC are; tick_ns must be set. The coarse clock is read, which is
 * as late as jiffies are when ticks come late; it is set somewhere within a tick, so one less is taken:
 * clock_now() is not ahead. What is off by no more stays, so that time does not jump.
 *
 * A program for packets, since others may not read that clock; run with any packet.
 */
SEC("tc")
int clock_set(struct __sk_buff *unused)
{
	__u64 apart = bpf_ktime_get_coarse_ns() - (bpf_jiffies64() + 1) * config.tick_ns;
	__u64 off = apart - config.clock_ns;

	if (off + config.tick_ns > 2 * (__u64)config.tick_ns)
		config.clock_ns = apart;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
