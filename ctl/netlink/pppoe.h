// SPDX-License-Identifier: GPL-2.0-only
// PPPoE sessions. The kernel tells them in one place only, /proc/net/pppoe, and does not say which
// ppp device a session belongs to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "util/addr.h"

namespace ftctl {

struct PppoeSession {
    std::uint16_t id = 0; ///< host order
    Mac peer;
    std::string device; ///< that its frames leave by
    auto operator<=>(const PppoeSession &) const = default;
};

/// The sessions in the text of /proc/net/pppoe (pppoe_seq_show()), sorted. Lines that make no sense
/// are left out.
std::vector<PppoeSession> parse_pppoe(std::string_view text);

/// Those of this network namespace; none where the kernel knows no PPPoE.
std::vector<PppoeSession> pppoe_sessions();

} // namespace ftctl
