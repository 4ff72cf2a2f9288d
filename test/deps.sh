#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Installs what building and testing ftctl needs, with apt, and only what is missing.
set -euo pipefail

packages="build-essential cmake ninja-build pkg-config clang llvm clang-format clang-tidy libbpf-dev bpftool
  libelf-dev zlib1g-dev libmnl-dev libnftables-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev catch2 libexpected-dev libcap-ng-dev
  iproute2 nftables conntrack ethtool iperf3 socat tcpdump util-linux python3 scdoc mandoc ccache kmod procps
  shellcheck"

missing=()
for package in $packages; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "deps.sh: missing packages: ${missing[*]}" >&2
  echo "hint: run as root, or: apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq -y --no-install-recommends install "${missing[@]}" >/dev/null
