// SPDX-License-Identifier: GPL-2.0-only
// Raw sockets under a tunnel: what follows the outer header goes in, the kernel writes the header.
#pragma once

#include <cstdint>
#include <span>

#include "tunnel/rules.h"
#include "util/addr.h"
#include "util/fd.h"
#include "util/result.h"

namespace ftctl {

/// A non-blocking raw socket of this family and protocol.
Result<Fd> open_raw(std::uint8_t family, int protocol);

/// One that only sends. fragment: the kernel may cut what does not fit, and IPv4 leaves DF clear;
/// else sending answers EMSGSIZE.
Result<Fd> open_sender(std::uint8_t family, int protocol, bool fragment);

/// One that receives with room for bursts, only from config.remote.
Result<Fd> open_receiver(const TunnelConfig &config);

/// What the header of one packet is to say.
struct SendHeader {
    IpAddr to;
    IpAddr from;                  ///< IPv6: must be this machine's; none: chosen by the route
    std::uint32_t interface = 0;  ///< device for link-local addresses, 0: none
    std::uint8_t tos = 0;         ///< TOS or traffic class
    std::uint8_t ttl = 0;         ///< 0: the system's default
    std::uint32_t flow_label = 0; ///< IPv6, host order
};

/// Sends one packet: `front`, which may be empty, and `payload` behind it. Returns 0 or a positive errno:
/// EMSGSIZE when it does not fit, EINVAL when `from` is not this machine's. An ICMP error that came back
/// for an earlier packet is reported here once, by IPv6 only: the path MTU it tells is learnt then.
int send_raw(int fd, const SendHeader &header, std::span<const std::uint8_t> front,
             std::span<const std::uint8_t> payload);

/// One packet from a raw IPv6 socket made by open_receiver(): its size, or -1 with errno.
ssize_t receive_raw6(int fd, std::span<std::uint8_t> buffer, OuterHeader &outer);

} // namespace ftctl
