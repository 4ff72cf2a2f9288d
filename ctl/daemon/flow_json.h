// SPDX-License-Identifier: GPL-2.0-only
// Flows and counters as the interface shows them, from what stands in the maps. The daemon and the
// command (without a daemon) both use it, so that they cannot differ.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "bpf/datapath.h"
#include "util/addr.h"

namespace ftctl {

/// What the maps around a flow say.
struct FlowJsonContext {
    std::uint32_t gen = 0;    ///< config.gen
    std::uint64_t now_ns = 0; ///< CLOCK_MONOTONIC
    /// The body in use of a path; null when there is none.
    std::function<const ftctl_path_body *(std::uint32_t index)> path;
    std::function<std::string(std::uint32_t ifindex)> ifname;
    std::function<ftctl_hook(std::uint32_t ifindex)> hook;
};

/// What only the daemon knows. Defaults: no daemon.
struct FlowExtras {
    std::optional<std::uint32_t> mark;
    std::uint16_t zone = 0;
    std::optional<double> age_s;
    IpAddr orig_next_hop; ///< none: unknown
    IpAddr reply_next_hop;
    std::optional<std::string> state; ///< instead of the one the maps tell ("closing", "refused")
    std::string reason;               ///< with state refused
};

/// One element of `ftctl -j flows`, every key of the interface present. Either direction may be
/// missing (null), not both: it is then shown as the other one's mirror image, not live. Numbers
/// that nobody knows are null; "reason" is there only for refused connections.
nlohmann::json flow_json(const FlowEntry *orig, const FlowEntry *reply, const FlowJsonContext &context,
                         const FlowExtras &extras = {});

/// The same for a connection that has no flow, because it was refused: its conntrack tuples are all
/// that is known. Families that have no flows yet are shown as well.
nlohmann::json refused_json(std::uint32_t id, const Tuple &orig, const Tuple &reply,
                            const FlowExtras &extras);

/// The state that the maps tell, of a connection of which either direction may be missing.
std::string flow_state_name(const FlowEntry *orig, const FlowEntry *reply, std::uint32_t gen);

/// Seconds since `ticks` (ftctl_flow.last_seen); 0 for never.
double idle_seconds(std::uint32_t ticks, std::uint64_t now_ns);

/// "xdp", "tc", or "none".
const char *hook_name(ftctl_hook hook);

/// One element of "devices" in `ftctl -j stats`; all packet reasons, zeros as well.
nlohmann::json device_stats_json(const SlotStats &stats, const std::string &name);

} // namespace ftctl
