#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Runs tests in virtual machines with Debian's kernels. See --help.
set -uo pipefail

usage() {
  cat <<'TEXT'
usage: test/vm/run.sh [--kernel KERNEL] [--timeout N] [--icount] [--results DIR] [TEST...]

Runs the programs of build/ (or $FTCTL_BIN_DIR) on other kernels: each TEST of test/vm/tests (default: all) in a virtual
machine of its own. Installs QEMU and fetches kernels where they are missing.

  --kernel KERNEL  6.1, 6.12, newest (default), the beginning of any version, or all (6.1, 6.12 and newest)
  --timeout N      seconds that each test may take (600)
  --icount         the guest's clock counts instructions: nothing is late there when this machine is busy; one processor
  --results DIR    where `load` leaves what `ftctl doctor -j` said: KERNEL.doctor.json (see test/vm/doctor.py --table)
  --list           the names of the tests

FTCTL_VM_ROWS=all|NAME,... chooses the rows of `oracle`, whose default is a quick few.

Exit code: the first one of a guest that failed; 77 when everything was skipped (the reasons are printed);
0 otherwise.
TEXT
}

cd "$(dirname "$(readlink -f "$0")")/../.." || exit 1
here=test/vm
kernels=(newest)
names=()
options=(--time)
while [ $# -gt 0 ]; do
  case $1 in
    --kernel)
      shift
      kernels=("${1:?--kernel needs a version}")
      [ "$1" != all ] || kernels=(6.1 6.12 newest)
      ;;
    --icount) options+=(--icount) ;;
    --timeout) shift; options+=(--timeout "${1:?--timeout needs seconds}") ;;
    --results)
      shift
      mkdir -p "${1:?--results needs a directory}" || exit 1
      FTCTL_VM_RESULTS=$(readlink -f "$1") && export FTCTL_VM_RESULTS
      options+=(--rw "$FTCTL_VM_RESULTS")
      ;;
    --list) find $here/tests -name '[a-z]*.*' -printf '%f\n' | sed 's/\..*//' | sort; exit 0 ;;
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; exit 1 ;;
    *) names+=("$1") ;;
  esac
  shift
done
[ ${#names[@]} -gt 0 ] || mapfile -t names < <("$0" --list)

FTCTL_BIN_DIR=$(readlink -f "${FTCTL_BIN_DIR:-build}") && export FTCTL_BIN_DIR
if [ ! -x "$FTCTL_BIN_DIR/ftctld" ]; then
  echo "run.sh: ftctl is not built in $FTCTL_BIN_DIR (test/run.sh builds it)" >&2
  exit 1
fi
"$here/deps.sh" || exit

passed=0 skipped=0 failed=0 first=0
for kernel in "${kernels[@]}"; do
  if ! package=$("$here/kernels.sh" "$kernel" 2>&1); then
    echo "SKIP: kernel $kernel: $(sed -n 's/^SKIP: //p' <<<"$package")"
    skipped=$((skipped + ${#names[@]}))
    continue
  fi
  package=$(tail -n 1 <<<"$package")
  for name in "${names[@]}"; do
    test=$(find $here/tests -name "$name.*" | head -n 1)
    [ -n "$test" ] || { echo "run.sh: no test $name (--list names them)" >&2; exit 1; }
    echo "== $name on $(head -n 1 "$package/package")"
    began=$SECONDS
    case $test in
      *.py) "$here/vm" "${options[@]}" "$package" -- python3 "$test" ;;
      *) "$here/vm" "${options[@]}" "$package" -- bash "$test" ;;
    esac
    code=$?
    case $code in
      0) passed=$((passed + 1)) ;;
      77) skipped=$((skipped + 1)) ;;
      *) failed=$((failed + 1)) && [ $first -ne 0 ] || first=$code ;;
    esac
    echo "== $name: exit code $code after $((SECONDS - began)) s"
  done
done
echo "virtual machines: $passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] || exit $first
[ $passed -gt 0 ] || exit 77
