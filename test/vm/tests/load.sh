#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Does everything load, attach and forward here? The byte tests, then traffic at both hooks, then what `doctor` says.
set -uo pipefail

failed=0
# Without one that computes for most of its time: emulated it takes minutes (for longer than a heartbeat counts), and
# it asks the kernel nothing that others do not ask. What only measures is left out by name: to leave out one takes in
# all others, hidden ones as well.
"$FTCTL_BIN_DIR/test/bpf_tests" "~every IPv4 ID*" "~[bench]" || failed=1
echo "after $SECONDS s: traffic"
python3 test/vm/smoke.py || failed=1
echo "after $SECONDS s: doctor"
# Last: by now the traffic has loaded conntrack.
answer=$("$FTCTL_BIN_DIR/ftctl" doctor -j) || failed=1
[ -z "${FTCTL_VM_RESULTS:-}" ] || echo "$answer" >"$FTCTL_VM_RESULTS/$(uname -r).doctor.json"
python3 test/vm/doctor.py <<<"$answer" || failed=1
exit $failed
