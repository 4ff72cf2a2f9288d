// SPDX-License-Identifier: GPL-2.0-only
// Positional words as iproute2 has them ("src 192.0.2.0/24 dev eth0"): the small language of
// FILTER, of explain and of tunnel add. Each function gives the request of the control protocol.
// Errors carry Code::usage and name the word.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "util/result.h"

namespace ftctl {

using Words = std::vector<std::string>;

/// KEY VALUE pairs to an object of strings, numbers where the value is all digits. `what` names the
/// command in errors. Each key at most once.
Result<nlohmann::json> parse_pairs(const std::string &what, const Words &words, const Words &keys);

/// FILTER, checked: {"proto": "tcp", "sport": 80, ...}.
Result<nlohmann::json> parse_filter(const std::string &what, const Words &words);

/// An end of a connection: "A", "A:PORT", "[A6]:PORT" or "A6". Port 0 when there is none.
struct Endpoint {
    std::string addr;
    unsigned port = 0;
};
Result<Endpoint> parse_endpoint(const std::string &what, const std::string &text);

/// PROTO SRC[:PORT] DST[:PORT] [dev D]
Result<nlohmann::json> parse_explain(const Words &words);

/// NAME mode M local A remote A [ttl N|inherit] [tos N|inherit] [encaplimit N|none]
/// [flowlabel N|inherit] [dev D]
Result<nlohmann::json> parse_tunnel_add(const Words &words);

} // namespace ftctl
