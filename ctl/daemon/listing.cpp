// SPDX-License-Identifier: GPL-2.0-only
// Flows as the interface lists them, with what the daemon knows beyond the maps.
#include <array>
#include <optional>
#include <unordered_map>

#include "daemon/engine.h"
#include "util/clock.h"

namespace ftctl {

namespace {

using nlohmann::json;
using Pair = std::array<std::optional<FlowEntry>, 2>;

const FlowEntry *pointer(const std::optional<FlowEntry> &entry)
{
    return entry ? &*entry : nullptr;
}

} // namespace

Result<FlowFilter> Engine::filter_of(const json &request) const
{
    const auto it = request.find("filter");
    auto filter = parse_flow_filter(it == request.end() ? json(nullptr) : *it);
    if (!filter || !filter->names_tunnel_device())
        return filter;
    const Link *link = kernel_->link_by_name(filter->tunnel);
    if (!link || !link->tunnel)
        return fail("filter", "no tunnel '" + filter->tunnel + "'", "`ftctl tunnel list` shows them",
                    Code::usage);
    filter->tunnel_ends = {link->tunnel->local, link->tunnel->remote};
    return filter;
}

FlowJsonContext Engine::json_context() const
{
    FlowJsonContext context;
    context.gen = datapath_->config().gen;
    context.now_ns = monotonic_ns();
    context.path = [this](std::uint32_t index) -> const ftctl_path_body * {
        if (index == 0 || index >= FTCTL_MAX_PATHS)
            return nullptr;
        const ftctl_path &path = datapath_->path(index);
        return &path.body[path.active & 1];
    };
    context.ifname = [this](std::uint32_t index) { return index ? kernel_->name(index) : std::string(); };
    context.hook = [this](std::uint32_t index) {
        const Device *device = devices_->find(index);
        return device ? device->hook : FTCTL_HOOK_NONE;
    };
    return context;
}

json Engine::connection_json(const Connection &conn, const FlowEntry *orig, const FlowEntry *reply,
                             const FlowJsonContext &context) const
{
    FlowExtras extras;
    extras.mark = conn.mark;
    extras.age_s = static_cast<double>(context.now_ns - conn.created_ns) / 1e9;
    if (const Way *way = connections_->paths().way(conn.dir[0].path))
        extras.orig_next_hop = way->next_hop;
    if (const Way *way = connections_->paths().way(conn.dir[1].path))
        extras.reply_next_hop = way->next_hop;
    return flow_json(orig, reply, context, extras);
}

json Engine::refused_connection_json(const Tuple &orig, const RefusedConnection &refused,
                                     std::uint64_t now_ns)
{
    FlowExtras extras;
    extras.mark = refused.mark;
    extras.zone = refused.zone;
    extras.age_s = static_cast<double>(now_ns - refused.since_ns) / 1e9;
    extras.reason = reason_text(refused.refusal.reason, refused.refusal.detail);
    return refused_json(0, orig, refused.reply, extras); // no flow, no number
}

Status Engine::each_flow(const FlowFilter &filter,
                         const std::function<void(const Connection *, json)> &handler) const
{
    const FlowJsonContext context = json_context();
    if (filter.state == "refused") {
        for (const auto &[orig, refused] : connections_->refused()) {
            json flow = refused_connection_json(orig, refused, context.now_ns);
            if (filter_matches(flow, filter))
                handler(nullptr, std::move(flow));
        }
        return {};
    }
    std::unordered_map<std::uint32_t, Pair> pairs;
    auto done = datapath_->flow_each([&](const FlowEntry &entry) {
        pairs[entry.flow.id].at(entry.flow.flags & FTCTL_F_REPLY ? 1 : 0) = entry;
        return true;
    });
    if (!done)
        return done;
    connections_->all().each([&](const Connection &conn) {
        const auto it = pairs.find(conn.id);
        if (it == pairs.end())
            return;
        json flow = connection_json(conn, pointer(it->second[0]), pointer(it->second[1]), context);
        if (filter_matches(flow, filter))
            handler(&conn, std::move(flow));
    });
    return {};
}

json Engine::flow_counts()
{
    const std::size_t live = connections_->count_live();
    return {{"live", live},
            {"pending", connections_->all().size() - live},
            {"max", datapath_->max_flows()},
            {"insert_full", connections_->insert_full()}};
}

} // namespace ftctl
