// SPDX-License-Identifier: GPL-2.0-only
// What the kernel says about the path under a tunnel, and the device it needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "netlink/route.h"
#include "util/result.h"

namespace ftctl {

/// The MTU of the device the tunnel's packets leave by: config.link, else the route's to the
/// remote; none when there is no route (yet). Bytes.
std::optional<std::uint32_t> underlay_device_mtu(const TunnelConfig &config);

/// The MTU of the path to the remote as the kernel knows it now, learnt exceptions included;
/// 0 when there is no route. Bytes. Opens a socket for each call: for the error path only.
std::uint32_t underlay_path_mtu(const TunnelConfig &config);

/// Sets what every socket of a tunnel has: mark, device and, for IPv4 outside, source address. (IPv6
/// names the source with each packet: only so does the kernel check that it is this machine's.)
Status bind_to_underlay(int fd, const TunnelConfig &config);

/// The address is one of this machine's (in the table the namespace looks up first).
bool is_local_address(std::uint32_t be);

/// Switches the automatic IPv6 link-local address of a device off: a kernel ipip device has none,
/// a TUN device gets one and sends router solicitations from it. Where IPv6 is inside, a router needs
/// none to forward; who wants one gives the device an address.
void disable_ipv6_autoconf(std::uint32_t ifindex);

} // namespace ftctl
