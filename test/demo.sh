#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# The demonstration: builds ftctl and shows its main job on a laboratory of namespaces. See --help.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")

for word in "$@"; do
  case $word in -h | --help) exec python3 "$here/demo/demo.py" --help ;; esac
done
if [ "$(id -u)" -ne 0 ]; then
  echo "demo.sh: makes network namespaces and loads BPF programs: run as root" >&2
  exit 1
fi
"$here/deps.sh"
if [ -z "${FTCTL_BIN_DIR:-}" ]; then
  export FTCTL_BIN_DIR=$top/build
  echo "building (the first time takes a minute or two) ..."
  log=$(mktemp)
  if ! { cmake -S "$top" -B "$FTCTL_BIN_DIR" -G Ninja && cmake --build "$FTCTL_BIN_DIR" --target ftctl ftctld; } >"$log" 2>&1; then
    tail -n 40 "$log"
    rm -f "$log"
    echo "demo.sh: the build failed" >&2
    exit 1
  fi
  rm -f "$log"
fi
exec python3 "$here/demo/demo.py" "$@"
