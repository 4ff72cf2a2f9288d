// SPDX-License-Identifier: GPL-2.0-only
// The configuration file, /etc/ftctl/ftctl.json: JSON with // and /* */ comments. Its words are
// those of the commands. Checking it needs neither privileges nor a daemon.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "netlink/route.h"
#include "util/addr.h"
#include "util/result.h"

namespace ftctl {

inline constexpr const char *kConfigPath = "/etc/ftctl/ftctl.json";

struct DeviceConfig {
    std::string name;
    std::string mode = "auto"; ///< auto, xdp, tc
    std::string rpf;           ///< reverse path filter (daemon/rpf_mode.h); "": off
};

/// `ftctl tunnel add`, or an element of "tunnels".
struct TunnelDecl {
    std::string name;
    TunnelConfig config; ///< .declared set; .link is left to whoever knows devices
    std::string dev;     ///< underlay device; "": any
};

/// Which connections a policy entry is about. Unset: any. Matched against the original tuple.
struct PolicyMatch {
    std::optional<std::uint8_t> proto;
    Prefix src; ///< none address: any
    Prefix dst;
    std::optional<std::uint16_t> sport; ///< host order
    std::optional<std::uint16_t> dport;
    std::string dev; ///< ingress device of the original direction
    [[nodiscard]] bool matches(const Tuple &orig, std::string_view iif) const;
};

struct PolicyRule {
    PolicyMatch match;
    bool offload = true; ///< false: skip
};

struct LimitsConfig {
    std::uint32_t flows = 0;                ///< connections; 0: as many as nf_conntrack_max
    std::uint32_t rcvbuf_bytes = 16U << 20; ///< of the conntrack event socket
};

struct Config {
    std::vector<DeviceConfig> devices;
    std::vector<TunnelDecl> tunnels;
    LimitsConfig limits;
    std::uint8_t trickle_s = 10;           ///< 0: never
    std::vector<PolicyRule> policy;        ///< the first that matches counts; none matches: offload
    std::uint32_t mark_value = 0x80000000; ///< (conntrack mark & mask) == value: leave alone
    std::uint32_t mark_mask = 0x80000000;  ///< 0: no mark is looked at
    /// The operator says that nft gives each packet its connection's mark before it is routed: rules on
    /// marks can then be followed.
    bool mark_from_conntrack = false;
    bool track = true; ///< keep conntrack on with a table of our own where nothing else does
};

/// The whole text. Errors name the line ("FILE:7") and the word, and carry Code::usage. `origin`
/// is the file's name for them.
Result<Config> parse_config(std::string_view text, const std::string &origin = "config");

/// Reads and parses; files above 1 MiB are refused.
Result<Config> load_config(const std::string &path);

/// One tunnel from its words: an element of "tunnels", or the arguments of the request tunnel_add
/// ("cmd" is ignored). Code::usage on errors.
Result<TunnelDecl> parse_tunnel(const nlohmann::json &words);

/// True when a packet of this connection may be offloaded as far as policy goes.
bool policy_allows(const Config &config, const Tuple &orig, std::string_view iif);

} // namespace ftctl
