// SPDX-License-Identifier: GPL-2.0-only
// What keeps the connections true: resync with conntrack, changed ways, paths, lifetimes.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include <netinet/in.h>
#include <spdlog/spdlog.h>

#include "daemon/connections.h"
#include "flow/lifetime.h"
#include "util/clock.h"

namespace ftctl {

namespace {

/// A beat at least this often in long loops (in connections).
constexpr std::size_t kBeatEvery = 256;
/// Conntrack entries asked for by the second to see whether they are still there.
constexpr std::size_t kVerifyPerSecond = 5000;
/// A path is not rewritten twice within this time: a packet may still be reading the other half.
constexpr std::uint64_t kPathGrace = 2 * 1000 * 1000;

} // namespace

Status Connections::resync(const std::function<void()> &beat)
{
    epoch_++;
    std::size_t n = 0;
    auto done = conntrack_.dump([&](const CtEntry &entry) {
        if (++n % kBeatEvery == 0)
            beat();
        consider(entry, true);
        return true;
    });
    if (!done)
        return done;
    (void)remove_if([this](const Connection &conn) { return conn.epoch != epoch_; }, "conntrack");
    std::erase_if(refused_, [this](const auto &item) { return item.second.epoch != epoch_; });
    return {};
}

void Connections::resolve_again(const std::function<bool(const Connection &)> &which,
                                const std::function<void()> &beat)
{
    std::size_t n = 0;
    for (const std::uint32_t id : ids_of(which)) {
        if (++n % kBeatEvery == 0)
            beat();
        if (Connection *conn = table_.by_id(id))
            (void)follow(*conn);
    }
}

std::vector<std::uint32_t> Connections::ids_of(const std::function<bool(const Connection &)> &which) const
{
    std::vector<std::uint32_t> ids;
    table_.each([&](const Connection &conn) {
        if (which(conn))
            ids.push_back(conn.id);
    });
    return ids;
}

bool Connections::follow(Connection &conn)
{
    const CtEntry ct = conn.entry();
    auto ways = ways_for(ct);
    if (!ways) {
        remove(conn, reason_name(ways.error().reason));
        refuse_connection(ct, ways.error());
        return false;
    }
    const Way *there = paths_.way(conn.dir[0].path);
    const Way *back = paths_.way(conn.dir[1].path);
    if (there && back && *there == ways->orig && *back == ways->reply)
        return true;
    if (!insert(conn, *ways, erase_flows(conn))) {
        table_.erase(conn);
        refuse_connection(ct, {FTCTL_R_TABLE_FULL, {}});
        return false;
    }
    watch();
    return true;
}

void Connections::refresh_paths(const std::vector<std::uint32_t> &paths)
{
    for (const std::uint32_t index : paths)
        write_path(index);
}

void Connections::write_path(std::uint32_t index)
{
    const Way *way = paths_.way(index);
    if (!way)
        return;
    paths_.written(index) = kernel_.version();
    const Link *device = kernel_.link(way->oif);
    const Link *source = kernel_.link(way->smac_dev);
    const Neigh *neigh = kernel_.neighbour(way->neigh_dev, way->next_hop);
    const Mac *dmac = way->pppoe ? &way->pppoe->peer : neigh && neigh->valid() ? &neigh->mac : nullptr;
    // Its port is that of another station: the way will be asked for again.
    if (dmac && way->station && *way->station != *dmac)
        dmac = nullptr;
    constexpr std::uint32_t kUp = 0x1; // IFF_UP
    Egress egress;
    egress.up = device && device->carrier &&
                std::all_of(way->devices.begin(), way->devices.end(), [this](std::uint32_t below) {
                    const Link *link = kernel_.link(below);
                    return link && (link->flags & kUp);
                });
    egress.mtu = device ? device->mtu : 0;
    egress.priority_by_tos = kernel_.priority_by_tos();
    egress.xdp = [&] {
        for (std::uint32_t slot = 1; slot < FTCTL_MAX_SLOTS; slot++)
            if (datapath_.slot(slot).ifindex == way->oif && datapath_.slot(slot).hook == FTCTL_HOOK_XDP)
                return true;
        return false;
    }();
    const ftctl_path_body body = plan_path(*way, source ? source->mac : Mac{}, dmac, egress);

    ftctl_path &path = datapath_.path(index);
    const std::uint32_t active = path.active & 1;
    if (std::memcmp(&path.body[active], &body, sizeof(body)) == 0)
        return;
    std::uint64_t &flipped = flipped_ns_[index];
    while (monotonic_ns() - flipped < kPathGrace)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    path.body[active ^ 1] = body;
    __atomic_store_n(&path.active, active ^ 1, __ATOMIC_RELEASE);
    flipped = monotonic_ns();
}

std::size_t Connections::walk(const std::function<void()> &beat)
{
    const std::uint64_t now = monotonic_ns();
    struct Mangled {
        std::uint32_t id;
        unsigned detail;
    };
    std::vector<Mangled> differing;
    std::vector<std::uint32_t> closing_ids;
    std::vector<ftctl_tuple> strays;
    std::size_t n = 0;

    (void)datapath_.flow_each([&](const FlowEntry &entry) {
        if (++n % kBeatEvery == 0)
            beat();
        const ftctl_flow &flow = entry.flow;
        Connection *conn = table_.by_id(flow.id);
        if (!conn || !owns(*conn, entry)) {
            strays.push_back(entry.key);
            return true;
        }
        const auto later = [](std::uint32_t a, std::uint32_t b) {
            return a == 0 || (b != 0 && static_cast<std::int32_t>(b - a) > 0) ? b : a;
        };
        conn->last_seen = later(conn->last_seen, flow.last_seen);
        conn->last_kernel = later(conn->last_kernel, flow.last_trickle);
        if (flow.state == FTCTL_FLOW_DIFFERS)
            differing.push_back({flow.id, flow.detail});
        else if (flow.state == FTCTL_FLOW_CLOSING)
            closing_ids.push_back(flow.id);
        return true;
    });

    for (const ftctl_tuple &stray : strays) {
        const auto entry = datapath_.flow_lookup(stray); // events were followed meanwhile
        const Connection *conn = entry && *entry ? table_.by_id((*entry)->flow.id) : nullptr;
        if (!conn || !owns(*conn, **entry))
            (void)datapath_.flow_delete(stray);
    }
    for (const Mangled &m : differing)
        if (const Connection *conn = table_.by_id(m.id))
            mangled(*conn, m.detail);
    for (const std::uint32_t id : closing_ids)
        if (const Connection *conn = table_.by_id(id))
            closing(*conn, 0);
    std::size_t aged = 0;
    for (std::uint32_t number = 0; number < table_.end(); number++) {
        if (++aged % kBeatEvery == 0)
            beat();
        if (Connection *conn = table_.at(number); conn && !age(*conn, now))
            remove(*conn, "expired");
    }
    return n;
}

bool Connections::owns(const Connection &conn, const FlowEntry &entry) const
{
    const ftctl_tuple own = key(conn, entry.flow.flags & FTCTL_F_REPLY);
    return std::memcmp(&own, &entry.key, sizeof(own)) == 0;
}

std::size_t Connections::count_live()
{
    const std::uint64_t now = monotonic_ns();
    if (now < next_count_ns_)
        return std::min(live_, table_.size());
    const std::uint32_t gen = datapath_.config().gen;
    std::vector<bool> live(table_.end());
    live_ = 0;
    (void)datapath_.flow_each([&](const FlowEntry &entry) {
        if (entry.flow.state != FTCTL_FLOW_LIVE || entry.flow.gen != gen)
            return true;
        const std::uint32_t number = table_.number_of_id(entry.flow.id);
        if (number < live.size() && !live[number]) {
            live[number] = true;
            live_++;
        }
        return true;
    });
    next_count_ns_ = now + 20 * (monotonic_ns() - now);
    return live_;
}

bool Connections::age(Connection &conn, std::uint64_t now_ns)
{
    const std::uint32_t now = to_ticks(now_ns);
    IdleFacts facts;
    facts.idle_s = tick_seconds(now, conn.last_seen);
    facts.kernel_idle_s = tick_seconds(now, conn.last_kernel);
    facts.timeout_s = conn.timeout_s;
    const bool carried = conn.last_seen != 0;
    const double silent_s = carried ? std::min(facts.idle_s, facts.kernel_idle_s) : facts.kernel_idle_s;

    // Conntrack drops an expired entry, and says so, only when something looks at it or its garbage
    // collector comes by, which may take a minute. Until then its flow must not carry packets.
    if (silent_s >= conn.timeout_s && (conn.ask_after == 0 || tick_seconds(now, conn.ask_after) >= 0)) {
        const auto entry = conntrack_.get(conn.orig);
        if (!entry && entry.error().err == ENOENT)
            return false;
        const std::uint32_t left_s = entry && entry->timeout_s ? *entry->timeout_s : 1;
        conn.ask_after = to_ticks(now_ns + std::clamp(left_s, 1U, 3600U) * FTCTL_NSEC_PER_SEC);
        return true;
    }

    const double settled = std::clamp(conn.timeout_s / 10.0, 1.0, 10.0);
    if (!carried || conn.corrected == conn.last_seen || facts.idle_s < settled ||
        facts.kernel_idle_s < facts.idle_s + 1.0)
        return true;
    const auto entry = conntrack_.get(conn.orig);
    if (!entry && entry.error().err == ENOENT)
        return false;
    conn.corrected = conn.last_seen;
    if (!entry || !entry->timeout_s || entry->id != conn.ct_id)
        return true;
    facts.remaining_s = *entry->timeout_s;
    if (const auto seconds = corrected_timeout(facts))
        (void)conntrack_.set_timeout(conn.orig, *seconds);
    return true;
}

void Connections::every_second()
{
    const std::uint64_t now = monotonic_ns();
    const auto again = [this](const Tuple &orig) {
        if (auto entry = conntrack_.get(orig))
            consider(*entry, true);
        else if (entry.error().err == ENOENT)
            refused_.erase(orig);
    };
    while (!retries_.empty() && retries_.begin()->first <= now) {
        const Tuple orig = retries_.begin()->second;
        retries_.erase(retries_.begin());
        again(orig);
    }
    while (!waiting_.empty() && table_.size() < datapath_.max_flows()) {
        const Tuple orig = waiting_.front();
        waiting_.pop_front();
        again(orig);
        const auto it = refused_.find(orig);
        if (it != refused_.end() && it->second.refusal.reason == FTCTL_R_TABLE_FULL) {
            waiting_.push_back(orig);
            break;
        }
    }
    for (std::size_t i = std::min(verify_.size(), kVerifyPerSecond); i > 0; i--) {
        const std::uint32_t id = verify_.front();
        verify_.pop_front();
        const Connection *conn = table_.by_id(id);
        if (!conn || !conn->from_dump)
            continue;
        const auto entry = conntrack_.get(conn->orig);
        if (!entry && entry.error().err == ENOENT) {
            remove(*conn, "conntrack");
        } else {
            if (entry)
                consider(*entry, true);
            if (table_.by_id(id))
                verify_.push_back(id);
        }
    }
}

std::set<std::uint32_t> Connections::unseen_pppoe() const
{
    std::set<std::uint32_t> found;
    table_.each([&](const Connection &conn) {
        for (const auto &dir : conn.dir)
            if (const Way *way = paths_.way(dir.path); way && way->pppoe && !dir.live)
                found.insert(way->neigh_dev);
    });
    return found;
}

void Connections::adjust_trickle()
{
    for (std::uint32_t number = 0; number < table_.end(); number++) {
        Connection *conn = table_.at(number);
        if (!conn)
            continue;
        conn->timeout_s = full_timeout(conn->orig.proto);
        for (const bool reply : {false, true}) {
            ftctl_flow_edit edit{};
            edit.key = key(*conn, reply);
            edit.what = FTCTL_EDIT_TRICKLE;
            edit.trickle_s = trickle_seconds(settings_.trickle_s, conn->timeout_s);
            (void)datapath_.flow_edit(edit);
        }
    }
}

std::size_t Connections::remove_if(const std::function<bool(const Connection &)> &which, const char *why)
{
    const std::vector<std::uint32_t> ids = ids_of(which);
    for (const std::uint32_t id : ids)
        if (const Connection *conn = table_.by_id(id))
            remove(*conn, why);
    return ids.size();
}

} // namespace ftctl
