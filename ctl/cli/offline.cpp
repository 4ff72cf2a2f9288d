// SPDX-License-Identifier: GPL-2.0-only
#include "cli/offline.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <net/if.h>

#include "bpf/datapath.h"
#include "daemon/early_filter.h"
#include "daemon/flow_json.h"
#include "daemon/rpf_mode.h"
#include "daemon/state_file.h"
#include "netlink/policy.h"
#include "util/clock.h"

namespace ftctl {

namespace {

using nlohmann::json;

std::string device_name(std::uint32_t ifindex)
{
    std::array<char, IF_NAMESIZE> name{};
    if (if_indextoname(ifindex, name.data()))
        return name.data();
    return "if" + std::to_string(ifindex); // gone; its flows are soon gone, too
}

struct Connection {
    std::optional<FlowEntry> orig;
    std::optional<FlowEntry> reply;
};

/// Both directions of a connection carry its number.
std::map<std::uint32_t, Connection> connections(Datapath &datapath)
{
    std::map<std::uint32_t, Connection> out;
    (void)datapath.flow_each([&](const FlowEntry &e) {
        auto &c = out[e.flow.id];
        ((e.flow.flags & FTCTL_F_REPLY) != 0 ? c.reply : c.orig) = e;
        return true;
    });
    return out;
}

FlowJsonContext context_of(Datapath &datapath, std::uint64_t now_ns)
{
    std::map<std::uint32_t, ftctl_hook> hooks;
    for (const auto &a : datapath.attachments())
        hooks[a.ifindex] = a.hook;
    FlowJsonContext context;
    context.gen = datapath.config().gen;
    context.now_ns = now_ns;
    context.path = [&datapath](std::uint32_t index) -> const ftctl_path_body * {
        if (index >= FTCTL_MAX_PATHS)
            return nullptr;
        const auto &path = datapath.path(index);
        return &path.body[path.active & 1];
    };
    context.ifname = [names = std::map<std::uint32_t, std::string>()](std::uint32_t index) mutable {
        auto &name = names[index];
        if (name.empty())
            name = device_name(index);
        return name;
    };
    context.hook = [hooks = std::move(hooks)](std::uint32_t index) {
        const auto it = hooks.find(index);
        return it == hooks.end() ? FTCTL_HOOK_NONE : it->second;
    };
    return context;
}

/// {"live", "pending", "max", "insert_full"}
json flow_counts(Datapath &datapath)
{
    const auto gen = datapath.config().gen;
    std::uint64_t live = 0;
    std::uint64_t pending = 0;
    for (const auto &[id, c] : connections(datapath)) {
        const auto state = flow_state_name(c.orig ? &*c.orig : nullptr, c.reply ? &*c.reply : nullptr, gen);
        live += state == "live" ? 1 : 0;
        pending += state == "pending" || state == "stale" ? 1 : 0;
    }
    return {{"live", live}, {"pending", pending}, {"max", datapath.max_flows()}, {"insert_full", nullptr}};
}

json no_conntrack()
{
    return {{"events", nullptr}, {"overruns", nullptr}, {"resyncs", nullptr}};
}

std::string fast_path_text(const ftctl_config &config, double beat_age_s)
{
    if (beat_age_s * FTCTL_NSEC_PER_SEC >= static_cast<double>(FTCTL_HEARTBEAT_NS))
        return "off: no heartbeat; every packet goes to the stack";
    return config.disabled != 0 ? "off: the daemon re-reads conntrack" : "on";
}

/// Takes devices off: what is attached, and what a daemon would attach again when it starts.
class Detacher {
  public:
    Detacher(Datapath *datapath, SavedState &saved) : datapath_(datapath), saved_(saved)
    {
        if (datapath_)
            for (const auto &a : datapath_->attachments())
                attached_[device_name(a.ifindex)] = a.ifindex;
    }

    [[nodiscard]] std::vector<std::string> all() const
    {
        std::set<std::string> names;
        for (const auto &[name, index] : attached_)
            names.insert(name);
        for (const auto &[name, options] : saved_.devices)
            names.insert(name);
        return {names.begin(), names.end()};
    }

    Status detach(const std::string &name)
    {
        const bool remembered = saved_.devices.erase(name) > 0;
        const auto it = attached_.find(name);
        if (it != attached_.end())
            return datapath_->detach(it->second);
        if (!remembered)
            return fail("detach " + name, "not attached", "ftctl status lists what is", Code::not_running);
        return {};
    }

  private:
    Datapath *datapath_;
    SavedState &saved_;
    std::map<std::string, std::uint32_t> attached_;
};

/// Nothing is attached any more: leave the machine as it was found.
void clean_up(Datapath &datapath, std::vector<Error> &errors)
{
    if (datapath.filter_rules().empty()) // they are wanted until they are flushed
        if (auto status = datapath.remove_pins(); !status)
            errors.push_back(status.error());
    auto table = TrackTable::open();
    if (!table) {
        errors.push_back(table.error());
        return;
    }
    const auto exists = (*table)->exists();
    if (!exists)
        errors.push_back(exists.error());
    else if (*exists)
        if (auto status = (*table)->remove(); !status)
            errors.push_back(status.error());
}

} // namespace

json flows_of(Datapath &datapath, const FlowFilter &filter, std::uint64_t now_ns)
{
    const auto context = context_of(datapath, now_ns);
    json out = json::array();
    for (const auto &[id, c] : connections(datapath)) {
        auto flow = flow_json(c.orig ? &*c.orig : nullptr, c.reply ? &*c.reply : nullptr, context);
        if (filter_matches(flow, filter))
            out.push_back(std::move(flow));
    }
    return out;
}

Result<json> offline_flows(const std::string &instance, const FlowFilter &filter)
{
    auto datapath = Datapath::open_existing(instance);
    if (!datapath)
        return tl::unexpected(datapath.error());
    if (filter.names_tunnel_device())
        return fail("flows", "the daemon is needed to tell which tunnel '" + filter.tunnel + "' is",
                    "use a type (ipip), or start it: ftctld -i " + instance);
    return flows_of(**datapath, filter, monotonic_ns());
}

Result<json> offline_stats(const std::string &instance)
{
    auto datapath = Datapath::open_existing(instance);
    if (!datapath)
        return tl::unexpected(datapath.error());
    const auto stats = (*datapath)->stats();
    if (!stats)
        return tl::unexpected(stats.error());
    json devices = json::array();
    for (const auto &s : *stats)
        devices.push_back(device_stats_json(s, device_name(s.attachment.ifindex)));
    return json{{"devices", devices},
                {"flows", flow_counts(**datapath)},
                {"conntrack", no_conntrack()},
                {"refusals", json::object()}};
}

Result<json> offline_status(const std::string &instance)
{
    auto datapath = Datapath::open_existing(instance);
    if (!datapath)
        return tl::unexpected(datapath.error());
    json devices = json::array();
    for (const auto &a : (*datapath)->attachments())
        devices.push_back({{"name", device_name(a.ifindex)},
                           {"index", a.ifindex},
                           {"hook", hook_name(a.hook)},
                           {"rpf", rpf_text((*datapath)->slot(a.slot).rpf)},
                           {"why", nullptr}});
    const auto &config = (*datapath)->config();
    const double age = config.heartbeat_ns == 0
                           ? 1e9
                           : static_cast<double>(monotonic_ns() - config.heartbeat_ns) / FTCTL_NSEC_PER_SEC;
    return json{{"instance", instance},
                {"daemon", {{"running", false}}},
                {"heartbeat", {{"age_s", config.heartbeat_ns == 0 ? json() : json(age)}}},
                {"fast_path", fast_path_text(config, age)},
                {"devices", devices},
                {"flows", flow_counts(**datapath)},
                {"conntrack", no_conntrack()}};
}

Result<json> offline_filter_list(const std::string &instance)
{
    auto datapath = Datapath::open_existing(instance);
    if (!datapath)
        return tl::unexpected(datapath.error());
    return filter_list_json((*datapath)->filter_rules());
}

Result<OfflineDetach> offline_detach(const std::string &instance, const std::vector<std::string> &devices,
                                     bool all)
{
    auto datapath = Datapath::open_existing(instance);
    auto saved = load_state(instance);
    if (!datapath && datapath.error().code != Code::not_running)
        return tl::unexpected(datapath.error());
    if (!datapath && saved.devices.empty())
        return fail("detach", "nothing is attached: no daemon runs and nothing is pinned",
                    "ftctld -i " + instance + " starts the daemon", Code::not_running);
    OfflineDetach out;
    json done = json::array();
    Detacher detacher(datapath ? datapath->get() : nullptr, saved);
    for (const auto &name : all ? detacher.all() : devices) {
        if (auto status = detacher.detach(name); !status)
            out.errors.push_back(status.error());
        else
            done.push_back({{"name", name}, {"changed", true}});
    }
    if (auto status = save_state(instance, saved); !status)
        out.errors.push_back(status.error());
    if (datapath && (all || !done.empty()) && (*datapath)->attachments().empty())
        clean_up(**datapath, out.errors);
    if (done.empty() && !out.errors.empty())
        return tl::unexpected(out.errors.front());
    out.data = {{"devices", done}};
    return out;
}

json offline_doctor()
{
    json kernel = json::array();
    auto probes = probe_kernel();
    for (auto &p : probe_conntrack())
        probes.push_back(std::move(p));
    for (const auto &p : probes)
        kernel.push_back({{"name", p.name},
                          {"ok", p.ok},
                          {"required", p.required},
                          {"detail", p.detail},
                          {"hint", p.hint}});
    return {{"kernel", kernel},
            {"devices", json::array()},
            {"notes", json::array({"the daemon is not running: only the kernel was looked at"})}};
}

} // namespace ftctl
