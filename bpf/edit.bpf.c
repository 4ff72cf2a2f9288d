// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes of flows on the daemon's behalf. A map update from user space would replace the whole
 * entry and lose what was counted meanwhile; a program changes it in place.
 */
#include "lib/flow.h"

#define ENOENT 2

SEC("syscall")
int flow_edit(struct ftctl_flow_edit *edit)
{
	struct ftctl_tuple tuple = edit->key;
	struct ftctl_flow *flow;
	struct flow_ref ref;

	if (!flow_find(&tuple, &ref))
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

char LICENSE[] SEC("license") = "GPL";
