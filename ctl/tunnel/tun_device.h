// SPDX-License-Identifier: GPL-2.0-only
// A persistent TUN device.
#pragma once

#include <cstdint>
#include <string>

#include "util/fd.h"
#include "util/result.h"

namespace ftctl {

struct TunDevice {
    Fd fd; ///< non-blocking; each packet has a virtio_net_hdr (VnetHeader) before it
    std::string name;
    std::uint32_t ifindex = 0;
    bool created = false; ///< false: it was there and is attached to again
};

/// Makes the device, or attaches to it where an earlier daemon left it. A new one is not persistent
/// before tun_persist(): closing it removes it.
Result<TunDevice> tun_open(const std::string &name);
/// With false the device goes when its descriptor is closed.
Status tun_persist(const TunDevice &tun, bool on);
Status tun_set_mtu(const TunDevice &tun, std::uint32_t mtu);
/// How many packets wait for read() before the kernel drops more (500 in a new device).
Status tun_set_queue(const TunDevice &tun, std::uint32_t packets);
/// The MTU now, bytes; 0 when the device is gone.
std::uint32_t tun_mtu(const std::string &name);

} // namespace ftctl
