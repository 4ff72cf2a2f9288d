#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Prints a command that runs xdp-forward of Debian's newest xdp-tools. See --help.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: test/bench/xdp-tools.sh [--cached]

Prints the path of a script that runs the xdp-forward of the newest xdp-tools that a Debian suite has: Debian 12's
have none. The package is fetched with all that it depends on, the C library among it, and unpacked; nothing is
installed. What was unpacked before is used again. --cached: fetches nothing.

Cache: $FTCTL_VM_CACHE, else ~/.cache/ftctl-vm. Exit code 77: it cannot be had; the reason is on standard error.
TEXT
}

skip() { echo "SKIP: $*" >&2; exit 77; }
case ${1-} in
  -h | --help) usage; exit 0 ;;
  '' | --cached) ;;
  *) usage >&2; exit 1 ;;
esac

# shellcheck source=test/debian.sh
. "$(dirname "$0")/../debian.sh"
target=$cache/xdp-tools

fetch() {
  local new=$cache/new-xdp-tools package loader libraries
  rm -rf "$new"
  mkdir -p "$new/debs/partial" "$new/root"
  # As if nothing were installed: with every library, of the same suite.
  : >"$new/status"
  own_apt apt-get -qq -y --download-only --no-install-recommends -o "Dir::State::status=$new/status" \
    -o "Dir::Cache::archives=$new/debs" -o Debug::NoLocking=1 install xdp-tools >"$apt/log" 2>&1 || return 1
  for package in "$new"/debs/*.deb; do
    dpkg-deb -x "$package" "$new/root" || return 1
  done
  loader=$(cd "$new/root" && find . -name 'ld-linux*.so.*' -print -quit)
  libraries=$(cd "$new/root" && find . -name libxdp.so.1 -printf '%h' -quit)
  [ -n "$loader" ] && [ -n "$libraries" ] && [ -x "$new/root/usr/sbin/xdp-forward" ] || return 1
  cat >"$new/root/xdp-forward" <<TEXT
#!/bin/sh
root=$target
export LIBXDP_OBJECT_PATH="\$root/$libraries/bpf"
exec "\$root/$loader" --library-path "\$root/$libraries" "\$root/usr/sbin/xdp-forward" "\$@"
TEXT
  chmod +x "$new/root/xdp-forward"
  rm -rf "$target"
  mv "$new/root" "$target"
  rm -rf "$new"
}

if [ ! -x "$target/xdp-forward" ]; then
  [ "${1-}" != --cached ] || skip "no xdp-tools were fetched yet"
  own_apt_update daily
  fetch || skip "xdp-tools cannot be fetched: $(tail -n 1 "$apt/log" 2>/dev/null)"
fi
# Its exit code says nothing here.
[[ $("$target/xdp-forward" load --help 2>&1 || true) == *fwd-mode* ]] || skip "$target/xdp-forward does not run"
echo "$target/xdp-forward"
