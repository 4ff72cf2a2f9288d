// SPDX-License-Identifier: GPL-2.0-only
// The tun driver: a TUN device whose slow path the daemon runs in user space, so that conntrack,
// nft and routing see an ordinary tunnel device on kernels without ipip.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "netlink/route.h"
#include "util/result.h"

namespace ftctl {

class TunTunnel {
  public:
    /// Creates (or re-opens) the persistent TUN device `name`, sets its MTU to the underlay's
    /// less the outer header when it is new, and opens the raw sockets. The device is left down,
    /// as `ip link add` leaves it.
    static Result<std::unique_ptr<TunTunnel>> create(const std::string &name, const TunnelConfig &config);
    virtual ~TunTunnel() = default; ///< closes; the device stays

    [[nodiscard]] virtual const std::string &name() const = 0;
    [[nodiscard]] virtual const TunnelConfig &config() const = 0;
    [[nodiscard]] virtual std::uint32_t ifindex() const = 0;

    /// The descriptors to poll for reading, and what to do when one is readable (bounded work).
    [[nodiscard]] virtual std::vector<int> fds() const = 0;
    virtual void handle(int fd) = 0;

    /// Removes the device.
    virtual Status destroy() = 0;

    struct Counters {
        std::uint64_t encap = 0, decap = 0, dropped_ecn = 0, too_big = 0, errors = 0;
    };
    [[nodiscard]] virtual const Counters &counters() const = 0;
};

} // namespace ftctl
