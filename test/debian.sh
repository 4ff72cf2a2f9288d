#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Packages of other Debian suites than the machine's, in an apt state directory of our own. To be sourced.
#
# Cache: $FTCTL_VM_CACHE, else ~/.cache/ftctl-vm; locked (descriptor 9) until the script ends.

cache=${FTCTL_VM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ftctl-vm}
apt=$cache/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
exec 9>"$cache/lock"
flock 9

# Nothing of the machine's apt configuration is read or changed, apart from its mirror and its keys.
write_sources() {
  local mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg signed='' suite
  # shellcheck disable=SC2016 # apt's own variables
  mirror=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' 'Label: Debian' 2>/dev/null | head -n 1) || true
  mirror=${mirror:-http://deb.debian.org/debian}
  [ ! -f $keyring ] || signed="[signed-by=$keyring] "
  for suite in bookworm bookworm-backports trixie trixie-backports sid; do
    echo "deb $signed$mirror $suite main"
  done
  for suite in bookworm trixie; do
    echo "deb ${signed}http://deb.debian.org/debian-security $suite-security main"
  done
}

own_apt() {
  local tool=$1
  shift
  # Container images switch apt's binary caches off; every question would take seconds.
  "$tool" -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root \
    -o Dir::Cache::pkgcache=pkgcache.bin -o Dir::Cache::srcpkgcache=srcpkgcache.bin \
    -o Acquire::Languages=none -o Acquire::Retries=2 "$@"
}

# own_apt_update daily|now: at most once a day, or now. Goes on with what is known when there is no network.
own_apt_update() {
  local stamp=$apt/updated
  if [ "${1-}" != now ] && [ -n "$(find "$stamp" -mmin -1440 2>/dev/null)" ]; then return; fi
  write_sources >"$apt/sources.list"
  if own_apt apt-get -qq update >"$apt/log" 2>&1; then
    touch "$stamp"
  else
    echo "${0##*/}: apt-get update failed, going on with what is known: $(tail -n 1 "$apt/log")" >&2
  fi
}
