#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Prints the directory of an extracted Debian kernel; fetches it first when it is not there. See --help.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: test/vm/kernels.sh [--refresh] KERNEL

KERNEL is `newest` or the beginning of a version (6.1, 6.12, 7.3). Debian's suites are asked for the newest
linux-image package of that version, at most once a day (--refresh: now); it is fetched with apt, in an apt
state directory of its own, and unpacked. What was unpacked before is used again, and used without a
network, too. Prints the directory; its file `package` names package, version and suites.

Cache: $FTCTL_VM_CACHE, else ~/.cache/ftctl-vm. Exit code 77: no such package can be had; the reason is on
standard error.
TEXT
}

refresh=daily
[ "${1-}" != --refresh ] || { refresh=now; shift; }
case ${1-} in
  -h | --help) usage; exit 0 ;;
  newest | [0-9]*) kernel=$1 ;;
  *) usage >&2; exit 1 ;;
esac

skip() { echo "SKIP: $*" >&2; exit 77; }
arch=$(dpkg --print-architecture)
[ "$arch" = amd64 ] || skip "the virtual machines are amd64, this machine is $arch"

# shellcheck source=test/debian.sh
. "$(dirname "$0")/../debian.sh"
mkdir -p "$cache/kernels"

# matches VERSION: is it what was asked for?
matches() { [ "$kernel" = newest ] || [[ $1 == "$kernel" || $1 == "$kernel"[.-]* ]]; }

# The highest of the versions on standard input.
highest() {
  local best='' version
  while read -r version; do
    if matches "$version" && { [ -z "$best" ] || dpkg --compare-versions "$version" gt "$best"; }; then
      best=$version
    fi
  done
  echo "$best"
}

# parts PACKAGE VERSION: the packages with files of this kernel. Up to 6.12 one linux-image package has them all; since
# 7.x it only depends on linux-binary, linux-modules and linux-base packages.
parts() {
  local queue=("$1") seen=' ' package
  while [ ${#queue[@]} -gt 0 ]; do
    package=${queue[0]}
    queue=("${queue[@]:1}")
    [[ $seen != *" $package "* ]] || continue
    seen+="$package "
    [[ ! $package =~ ^linux-[a-z]+-[0-9] ]] || echo "$package"
    mapfile -t -O ${#queue[@]} queue < <(own_apt apt-cache show "$package=$2" 2>/dev/null | sed -n 's/^Depends: //p' |
      tr ',' '\n' | sed -nE 's/^ *(linux-(image|binary|modules|base)-[^ ]*[0-9][^ ]*) .*/\1/p')
  done
}

fetch() { # VERSION DIRECTORY
  local version=$1 target=$2 packages package
  mapfile -t packages < <(parts linux-image-amd64 "$version")
  [ ${#packages[@]} -gt 0 ] || { echo "linux-image-amd64 $version depends on no image" >&2; return 1; }
  rm -rf "$cache/new"
  mkdir -p "$cache/new/debs" "$cache/new/root"
  echo "kernels.sh: fetching ${packages[*]} ($version)" >&2
  (cd "$cache/new/debs" && own_apt apt-get -qq download "${packages[@]/%/=$version}") >&2 || return 1
  for package in "$cache"/new/debs/*.deb; do
    dpkg-deb -x "$package" "$cache/new/root" || return 1
  done
  {
    echo "${packages[0]} $version"
    own_apt apt-cache madison linux-image-amd64 |
      awk -F'|' -v v="$version" '{gsub(/ /, "", $2)} $2 == v {sub(/^ /, "", $3); print $3}'
  } >"$cache/new/root/package"
  rm -rf "$target"
  mv "$cache/new/root" "$target"
  rm -rf "$cache/new"
}

own_apt_update "$refresh"
known=$(own_apt apt-cache madison linux-image-amd64 2>/dev/null | awk -F'|' '{gsub(/ /, "", $2); print $2}' | highest)
here=$(find "$cache/kernels" -mindepth 1 -maxdepth 1 -printf '%f\n' | highest)
if [ -z "$known$here" ]; then
  why=$(tail -n 1 "$apt/log" 2>/dev/null) || true
  skip "Debian's suites have no linux-image-amd64 $kernel${why:+ (apt-get update: $why)}"
fi
if [ -n "$known" ] && [ ! -e "$cache/kernels/$known/package" ]; then
  if ! fetch "$known" "$cache/kernels/$known"; then
    [ -n "$here" ] || skip "linux-image-amd64 $known cannot be fetched"
    echo "kernels.sh: $known cannot be fetched; using $here" >&2
    known=$here
  fi
fi
echo "$cache/kernels/${known:-$here}"
