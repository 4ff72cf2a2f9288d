// SPDX-License-Identifier: GPL-2.0-only
// Conntrack messages, parsed from a netlink message that is already bounded.
#pragma once

#include "netlink/attr.h"
#include "netlink/conntrack.h"

namespace ftctl::nl {

std::optional<CtMessage> parse_conntrack(const Message &m);

} // namespace ftctl::nl
