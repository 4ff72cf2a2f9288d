#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# The benchmark's scenarios that need devices which the machine below may not have: do they work? Every frame arrives,
# by the path that its row names. What an emulated processor takes for it says nothing.
set -uo pipefail

out=$(test/bench/run.sh --smoke vlan pppoe)
status=$?
echo "$out"
[ "$status" -eq 0 ] || exit "$status"
if grep -q "left out" <<<"$out"; then
  echo "bench: a scenario was left out"
  exit 1
fi
