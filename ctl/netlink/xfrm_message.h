// SPDX-License-Identifier: GPL-2.0-only
// XFRM messages, parsed from netlink messages that are already bounded.
#pragma once

#include "netlink/attr.h"
#include "netlink/policy.h"

namespace ftctl::nl {

/// XFRM_MSG_NEWPOLICY: the selector, when the policy touches forwarded packets.
std::optional<XfrmSelector> parse_xfrm_policy(const Message &m);

/// XFRM_MSG_GETDEFAULT as an answer: fwd or out is "block". None for another message.
std::optional<bool> parse_xfrm_default(const Message &m);

} // namespace ftctl::nl
