// SPDX-License-Identifier: GPL-2.0-only
// Reads from the ruleset, by netlink, who needs conntrack.
#pragma once

#include <optional>
#include <string_view>

#include "netlink/socket.h"

namespace ftctl::nl {

/// A rule (NFT_MSG_NEWRULE) or a stateful object (NFT_MSG_NEWOBJ) as far as it matters here.
struct NftUser {
    std::uint8_t family = 0; ///< NFPROTO_*
    std::string_view table;  ///< within the message
    bool conntrack = false;  ///< it holds conntrack on while it exists (nf_ct_netns_get)
};
std::optional<NftUser> parse_nft_user(const Message &m);

/// One hook of nfnetlink_hook's answer is conntrack's (ipv4_conntrack_in, ipv6_conntrack_in).
bool is_conntrack_hook(const Message &m);

/// Conntrack has a hook in this family (NFPROTO_IPV4, _IPV6). EOPNOTSUPP or another errno where
/// the kernel cannot list its hooks.
Result<bool> conntrack_hooked(Socket &socket, std::uint8_t family);

/// Some rule or object for which `match` says yes holds conntrack on.
Result<bool> ruleset_any(Socket &socket, const std::function<bool(const NftUser &)> &match);

} // namespace ftctl::nl
