// SPDX-License-Identifier: GPL-2.0-only
// clang-format off
// The control socket's language: one JSON object a line in each direction.
//
//   request   {"cmd": "flows", ...arguments...}\n            at most kMaxRequest bytes
//   answer    {"ok": true, "data": ...}\n
//             {"ok": false, "error": {"what", "why", "hint", "code"}}\n
//   partial   {"ok": true, "data": ..., "errors": [{...}]}\n   exit code 4
//   monitor   an answer, then one object a line until either side closes
//
// Commands and their arguments:
//   attach   {"devices": [NAME...], "mode": "auto|xdp|tc", "rpf": "off|loose|strict[,log]", "track": true, "force": false, "dry_run": false}
//            data: {"devices": [{"name", "index", "hook", "why", "changed": bool}], "notes": [TEXT...]}
//   detach   {"devices": [NAME...]} or {"all": true}; data: {"devices": [{"name", "changed": bool}]}
//   status   {}   data: see status_json() in daemon/engine.h
//   flows    {"filter": FILTER}; data: the array of the interface
//   count    {"filter": FILTER}; data: {"count": N}
//   flush    {"filter": FILTER}; data: {"flushed": N}
//   stats    {}   data: the object of the interface
//   explain  {"proto", "src", "sport", "dst", "dport", "dev": NAME or null}
//            data: {"verdict": "fast|stack|drop", "reason": NAME or null, "help": TEXT or null, "hook", "dev",
//                   "rewrite": {...} or null, "connection": FLOW object, {"state": "refused", "reason"} or null,
//                   "text": [LINE...]}
//   tunnel_add {"name", "mode", "local", "remote", "ttl": N or "inherit", "tos": N or "inherit", "dev": NAME or null,
//               "encaplimit": N or "none" or null, "flowlabel": N, "0xHEX" or "inherit" or null};
//               data: {"name", "index"}
//   tunnel_del {"name"}; data: {}
//   tunnel_list {}; data: [{"name", "mode", "local", "remote", "ttl", "tos", "dev", "driver": "tun|kernel", "index", "mtu"}],
//               with IPv6 outside also "encaplimit": N or "none", "flowlabel": N or "inherit"; "any": true where one
//               device carries both families
//   filter_add {"words": [WORD...]}; data: {"id"}
//   filter_del {"ids": [N...]}; data: {"rules": N}
//   filter_load {"token": TEXT, "lines": [TEXT...], "more": bool}; data: {"rules": N}. Parts of one load carry the same
//               token; with the part that has no more to follow the rules take the place of those in use
//   filter_list {}; data: [{"id", "dev", "src", "dst", "proto", "sport", "dport", "inner", "action", "comment", "packets",
//               "bytes"}]
//   filter_flush {}; data: {"removed": N}
//   rpf      {"device": NAME, "rpf": "off|loose|strict[,log]"}; data: {"name", "rpf"}
//   doctor   {}   data: {"kernel": [PROBE...], "devices": [{"name", "checks": [PROBE...]}]},
//            PROBE: {"name", "ok", "required", "detail", "hint"}
//   monitor  {}
//
// FILTER: {"proto": "tcp", "src": "A[/n]", "dst": "A[/n]", "sport": N, "dport": N, "dev": NAME, "state": S,
// "tunnel": NAME or type}; absent keys match everything.
// clang-format on
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "util/result.h"

namespace ftctl {

inline constexpr std::size_t kMaxRequest = 65536;

/// "/run/ftctl/NAME.sock"
std::string socket_path(const std::string &instance);
/// 1-64 characters of [A-Za-z0-9_-]: it names a file, and a directory on a bpffs, which takes no dots.
bool valid_instance(const std::string &name);

/// One request line (without the newline) to an object with a string "cmd". Never throws; nesting
/// is bounded. Errors carry Code::usage.
Result<nlohmann::json> parse_request(std::string_view line);

/// Errors as they travel: {"what", "why", "hint", "code"} and back. What does not fit is left at
/// its default, so that an answer of another version still gives an error to print.
nlohmann::json error_json(const Error &error);
Error error_from_json(const nlohmann::json &json);

/// Compact text of a document; bytes that are no UTF-8 become U+FFFD.
std::string dump_line(const nlohmann::json &json);

} // namespace ftctl
