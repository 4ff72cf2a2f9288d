// SPDX-License-Identifier: GPL-2.0-only
// The tunnels of this namespace: those declared with `ftctl tunnel add` and the kernel's own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "daemon/config.h"
#include "daemon/kernel_view.h"
#include "daemon/loop.h"
#include "tunnel/tun_driver.h"

namespace ftctl {

class Tunnels {
  public:
    Tunnels(KernelView &kernel, Loop &loop) : kernel_(kernel), loop_(loop) {}

    /// Creates the TUN device and starts to serve it. Idempotent for an equal declaration.
    Result<std::uint32_t> add(const TunnelDecl &declaration);
    /// Removes the device. Code::not_running when there is no such declared tunnel.
    Status remove(const std::string &name);

    /// A device is gone. If it was a declared tunnel's (`ip link del`), the tunnel goes with it: true.
    bool on_gone(std::uint32_t ifindex);

    [[nodiscard]] std::vector<TunnelDecl> declared() const;
    /// Declared and kernel tunnels, as `ftctl -j tunnel list` shows them.
    [[nodiscard]] nlohmann::json list() const;
    /// How many devices of this namespace are tunnels.
    [[nodiscard]] std::uint32_t count() const;

  private:
    struct Declared {
        TunnelDecl declaration;
        std::unique_ptr<TunTunnel> device;
    };
    KernelView &kernel_;
    Loop &loop_;
    std::map<std::string, Declared> declared_;
};

} // namespace ftctl
