// SPDX-License-Identifier: GPL-2.0-only
// The commands of the control socket (daemon/control_protocol.h).
#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "daemon/engine.h"
#include "daemon/request.h"
#include "daemon/rpf_mode.h"
#include "util/clock.h"
#include "util/suggest.h"

namespace ftctl {

namespace {

using nlohmann::json;

/// The names in "devices"; none when it is something else.
std::optional<std::vector<std::string>> device_names(const json &request)
{
    auto names = words(request, "devices");
    if (!names || names->size() > FTCTL_MAX_SLOTS ||
        std::any_of(names->begin(), names->end(), [](const std::string &name) { return name.empty(); }))
        return std::nullopt;
    return names;
}

} // namespace

Reply Engine::command(const json &request)
{
    const std::string cmd = word(request, "cmd");
    if (cmd == "attach")
        return cmd_attach(request);
    if (cmd == "detach")
        return cmd_detach(request);
    if (cmd == "status")
        return cmd_status();
    if (cmd == "stats")
        return cmd_stats();
    if (cmd == "flows" || cmd == "count")
        return cmd_flows(request, cmd == "count");
    if (cmd == "flush")
        return cmd_flush(request);
    if (cmd == "explain")
        return cmd_explain(request);
    if (cmd == "tunnel_add")
        return cmd_tunnel_add(request);
    if (cmd == "tunnel_del")
        return cmd_tunnel_del(request);
    if (cmd == "tunnel_list")
        return answer(tunnels_->list());
    if (cmd == "filter_add")
        return cmd_filter_add(request);
    if (cmd == "filter_del")
        return cmd_filter_del(request);
    if (cmd == "filter_list")
        return answer(filter_list_json(datapath_->filter_rules()));
    if (cmd == "filter_load")
        return cmd_filter_load(request);
    if (cmd == "filter_flush")
        return cmd_filter_flush();
    if (cmd == "rpf")
        return cmd_rpf(request);
    if (cmd == "doctor")
        return cmd_doctor();
    if (cmd == "monitor") {
        Reply reply;
        reply.monitor = true;
        return reply;
    }
    return usage("request", "unknown command '" + cmd + "'");
}

Reply Engine::cmd_attach(const json &request)
{
    const auto names = device_names(request);
    if (!names || names->empty())
        return usage("attach", "no device named");
    AttachOptions options{word(request, "mode", "auto"), flag(request, "force", false), ""};
    if (options.mode != "auto" && options.mode != "xdp" && options.mode != "tc")
        return usage("attach", "unknown mode '" + options.mode + "': auto, xdp or tc");
    const std::string rpf = word(request, "rpf");
    if (!parse_rpf(rpf))
        return usage("attach", "unknown rpf '" + rpf + "': " + join_words(rpf_words()));
    const bool dry_run = flag(request, "dry_run", false);
    const bool track = config_.track && flag(request, "track", true);

    std::vector<std::string> notes;
    const auto before = devices_->wanted();
    auto attached = devices_->attach(*names, options, dry_run);
    if (!attached)
        return failure(attached.error());
    const auto &outcomes = attached->devices;
    if (!dry_run) {
        if (auto tracked = ensure_tracking(track, &notes); !tracked) {
            for (const std::string &name : *names)
                if (before.count(name) == 0)
                    (void)devices_->detach(name);
            return failure(tracked.error());
        }
        track_wanted_ = track;
        if (!rpf.empty())
            tell_rpf();
        for (const std::string &name : *names)
            if (!rpf.empty() && !devices_->set_rpf(name, rpf))
                notes.emplace_back(name +
                                   ": the reverse path filter does not judge what it receives (untagged "
                                   "packets of devices that are no ports only)");
        if (auto saved = save(); !saved)
            notes.emplace_back(saved.error().what + ": " + saved.error().why);
        if (std::any_of(outcomes.begin(), outcomes.end(), [](const auto &o) { return o.changed; })) {
            connections_->refresh_paths(connections_->paths().all());
            dirty_.everything = true;
            want_resync_ = true;
            resynced_ns_ = 0; // now, not in a second
            next_walk_ns_ = 0;
        }
    }
    json devices = json::array();
    for (const auto &[device, changed] : outcomes) {
        devices.push_back({{"name", device.name},
                           {"index", device.ifindex},
                           {"hook", hook_name(device.hook)},
                           {"why", device.why},
                           {"changed", changed}});
        if (changed && !dry_run)
            server_->publish(
                {{"event", "attach"}, {"device", device.name}, {"hook", hook_name(device.hook)}});
        const Link *link = kernel_->link_by_name(device.name);
        if (device.hook == FTCTL_HOOK_XDP && link && shapes(*link))
            notes.emplace_back(device.name + ": XDP bypasses the egress qdisc (" + link->qdisc + ")");
    }
    if (!dry_run && devices_->all().size() == 1)
        notes.emplace_back("a connection is taken only when the devices of both its directions are attached");
    for (const auto &[upper, below] : attached->uppers)
        notes.emplace_back(
            fmt::format("{}: its frames use {}: attached there", upper, fmt::join(below, ", ")));
    return answer({{"devices", devices}, {"uppers", attached->uppers}, {"notes", notes}});
}

Reply Engine::cmd_detach(const json &request)
{
    std::vector<std::string> names;
    if (flag(request, "all", false)) {
        for (const auto &[name, options] : devices_->wanted())
            names.push_back(name);
    } else {
        const auto named = device_names(request);
        if (!named || named->empty())
            return usage("detach", "no device named");
        names = *named;
    }
    Reply reply;
    json devices = json::array();
    for (const std::string &name : names) {
        for (const std::string &device : devices_->meant_by(name))
            if (const auto it = devices_->all().find(device); it != devices_->all().end())
                release_device(it->second.ifindex);
        const auto done = devices_->detach(name);
        if (!done) {
            reply.errors.push_back(done.error());
            continue;
        }
        devices.push_back({{"name", name}, {"changed", *done}});
        if (*done)
            server_->publish({{"event", "detach"}, {"device", name}});
        else
            reply.errors.push_back({"detach " + name, "not attached", "", Code::not_running, 0});
    }
    if (devices_->none_attached()) {
        (void)connections_->remove_if([](const Connection &) { return true; }, "detach");
        if (auto done = track_table_->remove(); !done)
            reply.errors.push_back(done.error());
        track_state_ = "off: nothing is attached";
        track_wanted_ = config_.track;
    }
    if (auto saved = save(); !saved)
        reply.errors.push_back(saved.error());
    dirty_.everything = true;
    want_resync_ = true;
    if (!reply.errors.empty() && std::none_of(devices.begin(), devices.end(),
                                              [](const json &device) { return device["changed"] == true; }))
        return failure(reply.errors.front());
    reply.data = {{"devices", devices}};
    return reply;
}

Reply Engine::cmd_status()
{
    const std::uint64_t now = monotonic_ns();
    json devices = json::array();
    for (const auto &[name, device] : devices_->all()) {
        const Link *link = device.ifindex ? kernel_->link(device.ifindex) : nullptr;
        devices.push_back({{"name", name},
                           {"index", device.ifindex},
                           {"hook", hook_name(device.hook)},
                           {"why", device.why},
                           {"mode", device.options.mode},
                           {"rpf", rpf_text(parse_rpf(device.options.rpf).value_or(0))},
                           {"uppers", device.uppers},
                           {"mtu", link ? json(link->mtu) : json(nullptr)},
                           {"ingress_prog_id", device.ingress_prog_id},
                           {"egress_prog_id", device.egress_prog_id},
                           {"bypasses_qdisc", device.hook == FTCTL_HOOK_XDP}});
    }
    const ftctl_config &config = datapath_->config();
    return answer(
        {{"instance", instance_},
         {"daemon",
          {{"running", true},
           {"version", FTCTL_VERSION},
           {"pid", getpid()},
           {"uptime_s", static_cast<double>(now - started_ns_) / 1e9}}},
         {"heartbeat", {{"age_s", static_cast<double>(now - config.heartbeat_ns) / 1e9}}},
         {"fast_path", config.disabled ? "off: the daemon re-reads conntrack" : "on"},
         {"generation", config.gen},
         {"track", track_state_},
         {"flows", flow_counts()},
         {"conntrack", {{"events", ct_event_count_}, {"overruns", ct_overruns_}, {"resyncs", ct_resyncs_}}},
         {"devices", devices}});
}

Reply Engine::cmd_stats()
{
    const auto stats = datapath_->stats();
    if (!stats)
        return failure(stats.error());
    json devices = json::array();
    for (const SlotStats &slot : *stats) {
        json device = device_stats_json(slot, kernel_->name(slot.attachment.ifindex));
        device["bypasses_qdisc"] = slot.attachment.hook == FTCTL_HOOK_XDP;
        devices.push_back(std::move(device));
    }
    json refusals = json::object();
    for (const auto &[reason, count] : connections_->refusal_counts())
        refusals[reason_name(reason)] = count;
    return answer(
        {{"devices", devices},
         {"flows", flow_counts()},
         {"conntrack", {{"events", ct_event_count_}, {"overruns", ct_overruns_}, {"resyncs", ct_resyncs_}}},
         {"refusals", refusals}});
}

Reply Engine::cmd_flows(const json &request, bool count_only)
{
    const auto filter = filter_of(request);
    if (!filter)
        return failure(filter.error());
    if (!count_only) {
        Reply reply;
        reply.elements = flow_elements(*filter);
        return reply;
    }
    std::size_t count = 0;
    each_flow(*filter, [&](const Connection *) { count++; });
    return answer({{"count", count}});
}

Reply Engine::cmd_flush(const json &request)
{
    const auto filter = filter_of(request);
    if (!filter)
        return failure(filter.error());
    std::set<std::uint32_t> ids;
    each_flow(*filter, [&](const Connection *conn) {
        if (conn)
            ids.insert(conn->id);
    });
    const auto flushed =
        connections_->remove_if([&](const Connection &conn) { return ids.count(conn.id) > 0; }, "flush");
    want_resync_ = true; // what is still wanted comes back through the witness
    return answer({{"flushed", flushed}});
}

Reply Engine::cmd_tunnel_add(const json &request)
{
    auto declaration = parse_tunnel(request);
    if (!declaration)
        return failure(declaration.error());
    const auto ifindex = tunnels_->add(*declaration);
    if (!ifindex)
        return failure(ifindex.error());
    Reply reply = answer({{"name", declaration->name}, {"index", *ifindex}});
    if (auto saved = save(); !saved)
        reply.errors.push_back(saved.error());
    datapath_->config().tunnels = tunnels_->count();
    dirty_.everything = true;
    return reply;
}

Reply Engine::cmd_tunnel_del(const json &request)
{
    if (auto done = tunnels_->remove(word(request, "name")); !done)
        return failure(done.error());
    Reply reply;
    if (auto saved = save(); !saved)
        reply.errors.push_back(saved.error());
    datapath_->config().tunnels = tunnels_->count();
    dirty_.everything = true;
    return reply;
}

} // namespace ftctl
