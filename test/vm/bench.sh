#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Measures ftctl against the kernel's flowtable in a virtual machine. See --help.
set -uo pipefail

here=$(dirname "$(readlink -f "$0")")
for argument; do
  case $argument in -h | --help | --list) exec python3 "$here/bench/bench.py" "$argument" ;; esac
done
"$here/deps.sh" || exit
exec python3 "$here/bench/bench.py" "$@"
