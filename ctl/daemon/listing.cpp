// SPDX-License-Identifier: GPL-2.0-only
// Flows as the interface lists them, with what the daemon knows beyond the maps.
#include <memory>
#include <optional>
#include <vector>

#include "daemon/control_protocol.h"
#include "daemon/engine.h"
#include "util/clock.h"

namespace ftctl {

namespace {

using nlohmann::json;

constexpr std::uint32_t kBetweenBeats = 1024; ///< connections
constexpr std::uint32_t kPiece = 256;         ///< connections looked at for one piece of a listing

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

// Nothing when it has no flow, or when the filter does not want it.
std::optional<json> Engine::listed(const Connection &conn, const FlowFilter &filter,
                                   const FlowJsonContext &context) const
{
    std::optional<FlowEntry> found[2];
    for (const bool reply : {false, true})
        if (auto entry = datapath_->flow_lookup(connections_->key(conn, reply));
            entry && *entry && (*entry)->flow.id == conn.id)
            found[reply] = *entry;
    if (!found[0] && !found[1])
        return std::nullopt;
    json flow =
        connection_json(conn, found[0] ? &*found[0] : nullptr, found[1] ? &*found[1] : nullptr, context);
    if (!filter_matches(flow, filter))
        return std::nullopt;
    return flow;
}

std::optional<json> Engine::listed(const Tuple &orig, const FlowFilter &filter, std::uint64_t now_ns) const
{
    const auto it = connections_->refused().find(orig);
    if (it == connections_->refused().end())
        return std::nullopt;
    json flow = refused_connection_json(orig, it->second, now_ns);
    if (!filter_matches(flow, filter))
        return std::nullopt;
    return flow;
}

void Engine::each_flow(const FlowFilter &filter, const std::function<void(const Connection *)> &handler)
{
    const FlowJsonContext context = json_context();
    std::uint32_t seen = 0;
    const auto now_and_then = [&] {
        if (++seen % kBetweenBeats == 0)
            beat();
    };
    if (filter.state == "refused") {
        for (const auto &[orig, refused] : connections_->refused()) {
            now_and_then();
            if (listed(orig, filter, context.now_ns))
                handler(nullptr);
        }
        return;
    }
    connections_->all().each([&](const Connection &conn) {
        now_and_then();
        if (listed(conn, filter, context))
            handler(&conn);
    });
}

std::function<bool(std::string &)> Engine::flow_elements(const FlowFilter &filter) const
{
    const auto add = [](std::string &text, const std::optional<json> &flow) {
        if (flow)
            text += ',' + dump_line(*flow);
    };
    if (filter.state == "refused") {
        auto origs = std::make_shared<std::vector<Tuple>>();
        for (const auto &[orig, refused] : connections_->refused())
            origs->push_back(orig);
        return [this, filter, origs, add](std::string &text) {
            const std::uint64_t now_ns = monotonic_ns();
            for (std::uint32_t i = 0; i < kPiece && !origs->empty(); ++i, origs->pop_back())
                add(text, listed(origs->back(), filter, now_ns));
            return !origs->empty();
        };
    }
    return [this, filter, add, number = std::uint32_t{0}](std::string &text) mutable {
        const FlowJsonContext context = json_context();
        const ConnectionTable &table = connections_->all();
        for (std::uint32_t i = 0; i < kPiece && number < table.end(); ++i, ++number)
            if (const Connection *conn = table.at(number))
                add(text, listed(*conn, filter, context));
        return number < table.end();
    };
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
