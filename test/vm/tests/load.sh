#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Does everything load, attach and forward here? The byte tests, then traffic at both hooks.
set -uo pipefail

failed=0
"$FTCTL_BIN_DIR/test/bpf_tests" || failed=1
python3 test/vm/smoke.py || failed=1
# Last: by now the traffic has loaded conntrack.
"$FTCTL_BIN_DIR/ftctl" doctor -j | python3 test/vm/doctor.py || failed=1
exit $failed
