#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Tries something by hand on another kernel.
set -uo pipefail

here=$(dirname "$(readlink -f "$0")")
kernel=${1-}
if [ $# -lt 3 ] || [ "$2" != -- ] || [[ $kernel == -* ]]; then
  cat >&2 <<'TEXT'
usage: test/vm/shell.sh KERNEL -- COMMAND [ARG...]

KERNEL: 6.1, 6.12, newest, ... (see kernels.sh). COMMAND runs as root on that kernel, in this directory, with
this machine's files; what it writes is gone afterwards. For more (memory, shared directories, modules) use vm:

  test/vm/vm --rw /tmp/out "$(test/vm/kernels.sh 6.12)" -- COMMAND

Example: test/vm/shell.sh 6.1 -- build/ftctl doctor
TEXT
  exit 1
fi
shift 2
"$here/deps.sh" || exit
package=$("$here/kernels.sh" "$kernel") || exit
exec "$here/vm" "$package" -- "$@"
