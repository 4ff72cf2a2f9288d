// SPDX-License-Identifier: GPL-2.0-only
// The tun driver: IPv4 or IPv6 in either.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tunnel/icmp_error.h"
#include "tunnel/offload.h"
#include "tunnel/rules.h"
#include "tunnel/tun_device.h"
#include "tunnel/tun_driver.h"

namespace ftctl {

class UserTunnel final : public TunTunnel {
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
        Fd send;              ///< whole packets only; IPv4: outer DF set
        Fd send_fragmentable; ///< outer DF clear; IPv4 outside only
        Fd send_option;       ///< destination options and what is behind them; IPv6 outside only
        Fd receive;           ///< filtered to the peer
        Fd icmp;              ///< errors to inner sources
    };
    static Result<Sockets> open_sockets(const TunnelConfig &config);

    UserTunnel(TunDevice tun, Sockets sockets, const TunnelConfig &config)
        : tun_(std::move(tun)), sockets_(std::move(sockets)), config_(config)
    {
    }

    void read_device();
    void send_out(std::span<const std::uint8_t> inner);
    int transmit(const EncapDecision &d, std::span<const std::uint8_t> inner);
    void on_too_big(const EncapDecision &first, std::span<const std::uint8_t> inner);
    [[nodiscard]] std::uint32_t limit_for_ourselves(std::span<const std::uint8_t> inner,
                                                    std::uint32_t path) const;
    void send_icmp();
    void read_underlay();
    /// The next packet and what to do with it; none when there is nothing to read.
    bool receive(std::span<std::uint8_t> &packet, DecapDecision &d);
    void deliver(std::span<std::uint8_t> packet, const DecapDecision &d, std::uint32_t mtu);

    TunDevice tun_;
    Sockets sockets_;
    TunnelConfig config_;
    Counters counters_;
    IcmpError icmp_;
    /// One packet at a time: the largest packet (an IPv6 one counts its payload only) and what the TUN
    /// device puts before it.
    std::array<std::uint8_t, sizeof(VnetHeader) + 65536 + 40> buffer_{};
};

} // namespace ftctl
