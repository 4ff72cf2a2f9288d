#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Measures ftctl against the kernel's own forwarding on this machine. See --help.
set -uo pipefail

here=$(dirname "$(readlink -f "$0")")
for argument; do
  case $argument in -h | --help | --list | --from | --from=*) exec python3 "$here/main.py" "$@" ;; esac
done
if [ "$(id -u)" -ne 0 ]; then
  echo "test/bench/run.sh: it loads BPF programs and makes network namespaces: run as root" >&2
  exit 1
fi
"$here/../deps.sh" || exit
# Two at once would measure each other.
exec 9>/run/lock/ftctl-bench
if ! flock --nonblock 9; then
  echo "test/bench/run.sh: waiting for another run to end" >&2
  flock 9
fi
# It keeps the lock; what it starts does not get the descriptor (subprocess closes it).
exec python3 "$here/main.py" "$@"
