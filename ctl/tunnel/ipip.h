// SPDX-License-Identifier: GPL-2.0-only
// The tun driver for IPv4 in IPv4.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tunnel/icmp_error.h"
#include "tunnel/ipv4_view.h"
#include "tunnel/offload.h"
#include "tunnel/tun_device.h"
#include "tunnel/tun_driver.h"

namespace ftctl {

class IpipTunnel final : public TunTunnel {
  public:
    /// `config` has passed validate_tunnel().
    static Result<std::unique_ptr<TunTunnel>> create(const std::string &name, const TunnelConfig &config);

    [[nodiscard]] const std::string &name() const override { return tun_.name; }
    [[nodiscard]] const TunnelConfig &config() const override { return config_; }
    [[nodiscard]] std::uint32_t ifindex() const override { return tun_.ifindex; }
    [[nodiscard]] std::vector<int> fds() const override;
    void handle(int fd) override;
    Status destroy() override;
    [[nodiscard]] const Counters &counters() const override { return counters_; }

  private:
    /// None of them is connected: a tunnel may exist before its route does, and one without a local
    /// address takes the source the route has at that moment.
    struct Sockets {
        Fd send_df;           ///< outer DF set
        Fd send_fragmentable; ///< outer DF clear
        Fd receive;           ///< filtered to the peer
        Fd icmp;              ///< errors to inner sources
    };

    IpipTunnel(TunDevice tun, Sockets sockets, const TunnelConfig &config)
        : tun_(std::move(tun)), sockets_(std::move(sockets)), config_(config)
    {
    }

    void read_device();
    void send_out(std::span<const std::uint8_t> inner);
    void refuse_too_big(std::span<const std::uint8_t> inner);
    void read_underlay();
    void deliver(std::span<std::uint8_t> packet, std::uint32_t mtu);

    TunDevice tun_;
    Sockets sockets_;
    TunnelConfig config_;
    Counters counters_;
    IcmpError icmp_;
    /// One packet at a time: the largest IPv4 packet and what the TUN device puts before it.
    std::array<std::uint8_t, sizeof(VnetHeader) + 65536> buffer_{};
};

} // namespace ftctl
