// SPDX-License-Identifier: GPL-2.0-only
// What the kernel announces, and how the flows follow. Changes are gathered and followed together:
// a routing daemon may change thousands of routes at once.
#include <algorithm>

#include <linux/neighbour.h>
#include <net/if.h>
#include <spdlog/spdlog.h>

#include "daemon/engine.h"
#include "util/clock.h"

namespace ftctl {

namespace {

constexpr std::uint64_t kSettleNs = 50 * 1000 * 1000;
/// More connections than this are not asked for again while packets flow: they go to the witness first.
constexpr std::size_t kManyConnections = 5000;

template <typename... Ts>
struct Overloaded : Ts... {
    using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

/// Refusals that other routes, devices or addresses may lift.
bool about_ways(ftctl_reason reason)
{
    switch (reason) {
    case FTCTL_R_NO_ROUTE:
    case FTCTL_R_PATH:
    case FTCTL_R_DEVICE:
    case FTCTL_R_TUNNEL:
    case FTCTL_R_LOCAL:
    case FTCTL_R_HAIRPIN:
        return true;
    default:
        return false;
    }
}

} // namespace

void Engine::on_route_events()
{
    const auto on_neighbour = [this](const NeighChanged &event) {
        kernel_->apply(event);
        const auto paths = connections_->paths().by_neighbour(event.neigh.ifindex, event.neigh.addr);
        connections_->refresh_paths(paths);
        for (const std::uint32_t index : paths) // below a bridge: another station may have another port
            if (const Way *way = connections_->paths().way(index); way->station && !way->pppoe)
                if (*way->station != event.neigh.mac)
                    dirty_.paths.insert(index);
        if (kernel_->awaited(event))
            want_resync_ = true;
        // A packet sent to a stale neighbour makes the kernel check it (neigh_event_send); packets that
        // take the fast path do not. Unresolved ones need no help: their packets go to the stack.
        if (!event.gone && (event.neigh.state & NUD_STALE) && !paths.empty())
            (void)kernel_->control().probe_neighbour(event.neigh.ifindex, event.neigh.addr);
    };
    const auto on_link = [this](const LinkChanged &event) {
        const Link *old = kernel_->link(event.link.index);
        const Link before = old ? *old : Link{};
        kernel_->apply(event);
        const Link &now = *kernel_->link(event.link.index);
        if (devices_->on_link(now)) {
            dirty_.everything = true;
            want_resync_ = true;
        }
        connections_->refresh_paths(connections_->paths().by_device(now.index));
        if (before.flags != now.flags || before.carrier != now.carrier || before.mtu != now.mtu ||
            before.mac != now.mac || before.tunnel != now.tunnel || before.vlan != now.vlan ||
            before.master != now.master || before.bridge != now.bridge || before.port != now.port)
            dirty_.devices.push_back(now.index);
        datapath_->config().tunnels = tunnels_->count();
    };
    const auto on_station = [this](const FdbChanged &event) {
        const auto paths = connections_->paths().by_station(event.bridge, event.mac);
        dirty_.paths.insert(paths.begin(), paths.end());
        if (kernel_->awaited(event))
            want_resync_ = true;
    };
    const auto on_port = [&](const PortChanged &event) {
        dirty_.bridges = true;
        dirty_.devices.push_back(event.index);
        if (const auto link = kernel_->control().link(event.index))
            on_link(LinkChanged{*link});
    };
    const auto on_gone = [this](const LinkGone &event) {
        release_device(event.index);
        (void)devices_->on_gone(event.index);
        if (tunnels_->on_gone(event.index))
            if (auto saved = save(); !saved)
                spdlog::warn("{}: {}", saved.error().what, saved.error().why);
        kernel_->apply(event);
        dirty_.everything = true;
        datapath_->config().tunnels = tunnels_->count();
    };
    const auto handler = [&](const RtEvent &event) {
        // Neighbours and stations decide no route that is kept.
        if (std::holds_alternative<RouteChanged>(event) || std::holds_alternative<RuleChanged>(event) ||
            std::holds_alternative<NexthopChanged>(event))
            kernel_->suspect_routes();
        else if (!std::holds_alternative<NeighChanged>(event) && !std::holds_alternative<FdbChanged>(event))
            kernel_->forget_routes();
        std::visit(Overloaded{on_neighbour, on_link, on_station, on_port, on_gone,
                              [this](const AddrChanged &) { dirty_.addresses = true; },
                              [this](const RouteChanged &route) { dirty_.routes.push_back(route); },
                              [this](const RuleChanged &) { dirty_.rules = true; },
                              [this](const NetconfChanged &) { dirty_.settings = true; },
                              [this](const NexthopChanged &) { dirty_.everything = true; },
                              [this](const Overrun &) {
                                  spdlog::warn("route events were lost; reading everything again");
                                  if (auto done = kernel_->refresh(); !done)
                                      spdlog::error("{}: {}", done.error().what, done.error().why);
                                  connections_->refresh_paths(connections_->paths().all());
                                  dirty_.everything = true;
                                  want_resync_ = true;
                              }},
                   event);
    };
    if (auto done = rt_events_->read(handler); !done)
        spdlog::error("{}: {}", done.error().what, done.error().why);
    settle();
}

void Engine::on_xfrm()
{
    const auto changed = xfrm_->read();
    if (changed && !*changed)
        return;
    auto policies = xfrm_->policies();
    if (!policies) {
        spdlog::error("{}: {}", policies.error().what, policies.error().why);
        return;
    }
    connections_->set_xfrm(std::move(*policies));
    kernel_->forget_routes();
    new_generation(); // at once: clear text must not leave where it is forbidden
    resolve_all();
    want_resync_ = true;
}

void Engine::on_nft()
{
    const auto changed = nft_->read();
    if (!changed || *changed)
        want_generation_ = true;
    settle();
}

void Engine::new_generation()
{
    __atomic_add_fetch(&datapath_->config().gen, 1, __ATOMIC_RELEASE);
    generation_ns_ = monotonic_ns();
    want_generation_ = false;
}

void Engine::resolve_all()
{
    if (connections_->all().size() > kManyConnections)
        new_generation();
    connections_->resolve_again([](const Connection &) { return true; }, [this] { beat(); });
}

void Engine::settle_routes()
{
    const Dirty dirty = std::exchange(dirty_, {});
    kernel_->forget_routes(); // what is asked again is asked of the kernel
    if (dirty.addresses || !dirty.routes.empty() || dirty.everything)
        kernel_->forget_local();
    if (dirty.bridges)
        kernel_->refresh_bridges();
    if (!dirty.devices.empty() || !dirty.routes.empty() || dirty.everything)
        follow_devices();
    if (dirty.rules || !dirty.routes.empty() || dirty.everything)
        if (auto done = kernel_->refresh_rules(); !done)
            spdlog::error("{}: {}", done.error().what, done.error().why);
    if (devices_->wants_rpf() && (dirty.addresses || !dirty.routes.empty() || dirty.everything))
        tell_rpf();
    const auto by_route = [&](const Connection &conn) {
        return std::any_of(dirty.routes.begin(), dirty.routes.end(), [&](const RouteChanged &route) {
            const auto touches = [&](const IpAddr &addr) {
                return addr.family == route.family && route.dst.contains(addr);
            };
            if (touches(conn.orig.src) || touches(conn.reply.src))
                return true;
            for (const auto &dir : conn.dir) {
                const Way *way = connections_->paths().way(dir.path);
                if (way && way->tunnel && touches(way->tunnel->remote))
                    return true;
            }
            return false;
        });
    };
    const auto by_device = [&](const Connection &conn) {
        return std::any_of(std::begin(conn.dir), std::end(conn.dir), [&](const Connection::Direction &dir) {
            const Way *way = connections_->paths().way(dir.path);
            return way && std::any_of(dirty.devices.begin(), dirty.devices.end(),
                                      [&](std::uint32_t index) { return way->uses(index); });
        });
    };
    const auto by_path = [&](const Connection &conn) {
        return dirty.paths.count(conn.dir[0].path) > 0 || dirty.paths.count(conn.dir[1].path) > 0;
    };
    if (dirty.settings) {
        (void)kernel_->poll_sysctls();
        new_generation();
    }
    if (dirty.rules || dirty.addresses || dirty.settings || dirty.everything) {
        resolve_all();
        want_resync_ = true;
    } else {
        connections_->resolve_again(
            [&](const Connection &conn) { return by_route(conn) || by_device(conn) || by_path(conn); },
            [this] { beat(); });
        const auto &refused = connections_->refused();
        if (std::any_of(refused.begin(), refused.end(),
                        [](const auto &item) { return about_ways(item.second.refusal.reason); }))
            want_resync_ = true;
    }
}

/// The attachments follow the devices: ports of a bridge that came or went, changed MAC addresses.
void Engine::follow_devices()
{
    if (!devices_->follow())
        return;
    connections_->refresh_paths(connections_->paths().all());
    dirty_.everything = true; // of the next turn
    want_resync_ = true;
}

/// Follows what has been gathered, at the pace that was promised: routes within tens of
/// milliseconds, rulesets and resyncs at most once a second.
void Engine::settle()
{
    const std::uint64_t now = monotonic_ns();
    if (dirty_.any() && now - settled_ns_ >= kSettleNs) {
        settle_routes();
        settled_ns_ = monotonic_ns();
    }
    if (want_generation_ && now - generation_ns_ >= FTCTL_NSEC_PER_SEC) {
        new_generation();
        if (!devices_->none_attached()) {
            if (auto done = ensure_tracking(track_wanted_, nullptr); !done)
                spdlog::error("{}: {}", done.error().what, done.error().why);
            want_resync_ = true; // what a rule had mangled may be left alone now
        }
    }
    if (want_resync_ && now - resynced_ns_ >= FTCTL_NSEC_PER_SEC)
        resync_now();
}

void Engine::release_device(std::uint32_t ifindex)
{
    (void)connections_->remove_if(
        [&](const Connection &conn) {
            return std::any_of(std::begin(conn.dir), std::end(conn.dir),
                               [&](const Connection::Direction &dir) {
                                   const Way *way = connections_->paths().way(dir.path);
                                   return way && way->uses(ifindex);
                               });
        },
        "device");
}

} // namespace ftctl
