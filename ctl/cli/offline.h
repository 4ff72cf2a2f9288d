// SPDX-License-Identifier: GPL-2.0-only
// What can be said and done without a daemon, from the pinned maps alone. The data has the same
// keys as the daemon's; what only the daemon knows is null. Code::not_running when nothing is pinned.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "daemon/flow_filter.h"
#include "util/result.h"

namespace ftctl {

class Datapath;

Result<nlohmann::json> offline_flows(const std::string &instance, const FlowFilter &filter);
Result<nlohmann::json> offline_stats(const std::string &instance);
Result<nlohmann::json> offline_status(const std::string &instance);

Result<nlohmann::json> offline_filter_list(const std::string &instance);

/// Takes the programs off the devices. After the last one, what is pinned and the table that kept
/// conntrack on go as well. Devices that are not attached are errors in `errors`.
struct OfflineDetach {
    nlohmann::json data; ///< as the daemon's answer
    std::vector<Error> errors;
};
Result<OfflineDetach> offline_detach(const std::string &instance, const std::vector<std::string> &devices,
                                     bool all);

/// What this kernel can do; devices are looked at by the daemon only.
nlohmann::json offline_doctor();

/// The parts of offline_flows() and offline_stats() that need no pins: for any open datapath.
nlohmann::json flows_of(Datapath &datapath, const FlowFilter &filter, std::uint64_t now_ns);

} // namespace ftctl
