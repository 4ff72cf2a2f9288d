// SPDX-License-Identifier: GPL-2.0-only
// Addresses as the maps have them (struct ftctl_addr), and as the rest of the control plane does.
#pragma once

#include <cstdint>
#include <cstring>

#include <sys/socket.h>

#include "ftctl/abi.h"
#include "util/addr.h"

namespace ftctl {

/// ftctl_tuple.family and ftctl_path_body.family, from AF_INET or AF_INET6.
constexpr std::uint8_t abi_family(std::uint8_t family)
{
    return family == AF_INET6 ? 6 : 4;
}

inline ftctl_addr to_abi(const IpAddr &addr)
{
    ftctl_addr out{};
    std::memcpy(out.w, addr.bytes.data(), addr.size());
    return out;
}

/// `family`: 4 or 6.
inline IpAddr from_abi(const ftctl_addr &addr, std::uint8_t family)
{
    return family == 6 ? IpAddr::from_bytes(AF_INET6, addr.w, 16) : IpAddr::from_v4(addr.w[0]);
}

} // namespace ftctl
