#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Installs what the virtual machines need, with apt, and only what is missing. Exit code 77: cannot be had.
set -euo pipefail

missing=()
for package in qemu-system-x86 busybox-static cpio kmod xz-utils zstd util-linux ppp pppoe; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
echo "installing: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get -qq update && apt-get -qq -y --no-install-recommends install "${missing[@]}"; } >/dev/null 2>&1; then
  echo "SKIP: cannot install ${missing[*]} (run: apt-get install ${missing[*]})"
  exit 77
fi
