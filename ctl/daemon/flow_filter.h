// SPDX-License-Identifier: GPL-2.0-only
// The FILTER of the control protocol: which flows a listing, count or flush is about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "util/addr.h"
#include "util/result.h"

namespace ftctl {

struct FlowFilter {
    std::optional<std::uint8_t> proto;
    std::optional<Prefix> src;
    std::optional<Prefix> dst;
    std::optional<std::uint16_t> sport; ///< host order
    std::optional<std::uint16_t> dport;
    std::string dev;    ///< device name; "": any
    std::string state;  ///< a state of the interface; "": any but refused
    std::string tunnel; ///< a type ("ipip", ...) or a device's name; "": any
    /// Outer addresses of the device `tunnel` names, either way round. Whoever knows devices sets
    /// it after parsing; unset, `tunnel` is compared with the type.
    std::optional<std::pair<IpAddr, IpAddr>> tunnel_ends;

    /// No condition at all.
    [[nodiscard]] bool empty() const;
    /// `tunnel` is set, and no type: its addresses have to be looked up.
    [[nodiscard]] bool names_tunnel_device() const;
};

/// The words of a filter, in the order of the manual; the states; the tunnel types.
const std::vector<std::string> &filter_words();
const std::vector<std::string> &flow_states();
const std::vector<std::string> &tunnel_types();

/// From the protocol's FILTER object (null: no filter). Unknown keys, wrong types and values that
/// cannot be are errors of Code::usage.
Result<FlowFilter> parse_flow_filter(const nlohmann::json &filter);

/// A flow element (daemon/flow_json.h) fulfils the filter. src, dst, sport and dport have to hold
/// for one direction's packets as they arrive (both in the original or both in the reply); dev is
/// the way in or out of either direction. Without `state`, refused connections do not match.
bool filter_matches(const nlohmann::json &flow, const FlowFilter &filter);

} // namespace ftctl
