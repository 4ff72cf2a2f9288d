// SPDX-License-Identifier: GPL-2.0-only
// Classic BPF on raw sockets: which packets are queued at all.
#pragma once

#include <cstdint>

#include "util/addr.h"

namespace ftctl {

/// The socket only sends: nothing is queued for reading.
bool attach_drop_filter(int fd);

/// Only IPv4 packets from this address (network order) are queued.
bool attach_source_filter(int fd, std::uint32_t source);

/// Only IPv6 packets from `source`, and to `local` unless that is none, are queued.
bool attach_peer_filter(int fd, const IpAddr &source, const IpAddr &local);

} // namespace ftctl
