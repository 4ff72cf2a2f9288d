// SPDX-License-Identifier: GPL-2.0-only
// Conntrack: its events, what follows when some were lost, and that it is on at all.
#include <utility>

#include <netinet/in.h>
#include <spdlog/spdlog.h>

#include "daemon/engine.h"
#include "util/clock.h"

namespace ftctl {

namespace {

constexpr unsigned kEventsPerTurn = 4096;
constexpr std::size_t kMostHeld = 1U << 20;

} // namespace

void Engine::on_conntrack(CtEventType type, const CtEntry &entry)
{
    ct_event_count_++;
    if (devices_->none_attached())
        return;
    if (type == CtEventType::destroyed)
        connections_->destroyed(entry);
    else
        connections_->consider(entry, false);
}

void Engine::on_conntrack()
{
    const auto whole = ct_events_->read(
        [this](CtEventType type, const CtEntry &entry) { on_conntrack(type, entry); }, kEventsPerTurn);
    if (!whole) {
        spdlog::error("{}: {}", whole.error().what, whole.error().why);
        lost_events_ = true;
    } else if (!*whole) {
        // Lost events are a normal state: everything to the stack, read it all again.
        ct_overruns_++;
        lost_events_ = true;
    }
    if (lost_events_) {
        datapath_->config().disabled = 1;
        want_resync_ = true;
    }
}

/// Events are newer than what a dump has yet to tell of the same connections, so they are followed after
/// it. But a long dump would overrun the socket again, and so on for ever.
void Engine::hold_events()
{
    const auto hold = [this](CtEventType type, const CtEntry &entry) { held_.push_back({type, entry}); };
    if (held_.size() < kMostHeld) // what does not fit stays in the socket
        if (const auto whole = ct_events_->read(hold, kEventsPerTurn); !whole || !*whole) {
            ct_overruns_ += whole.has_value();
            lost_again_ = true;
        }
}

void Engine::resync_now()
{
    want_resync_ = false;
    if (devices_->none_attached()) {
        lost_events_ = false;
        datapath_->config().disabled = 0;
        return;
    }
    lost_again_ = false;
    const auto beat_and_hold = [this] {
        beat();
        hold_events();
    };
    const auto done = connections_->resync(beat_and_hold);
    for (const CtMessage &event : std::exchange(held_, {}))
        on_conntrack(event.type, event.entry);
    if (!done) {
        spdlog::error("{}: {}", done.error().what, done.error().why);
        want_resync_ = true;
    } else {
        ct_resyncs_++;
        lost_events_ = false;
    }
    if (lost_again_) // perhaps about what had been read before
        lost_events_ = want_resync_ = true;
    datapath_->config().disabled = lost_events_;
    resynced_ns_ = monotonic_ns();
}

Status Engine::ensure_tracking(bool wanted, std::vector<std::string> *notes)
{
    if (!wanted) {
        track_state_ = "left to others (--no-track)";
        return {};
    }
    std::string untracked; // families that no rule of others keeps tracking on for
    for (const auto &[family, name] : {std::pair{AF_INET, "IPv4"}, std::pair{AF_INET6, "IPv6"}}) {
        const auto tracked = track_table_->tracked_by_others(static_cast<std::uint8_t>(family));
        if (!tracked)
            return tl::unexpected(tracked.error());
        if (!*tracked)
            untracked += (untracked.empty() ? "" : " and ") + std::string(name);
    }
    const auto exists = track_table_->exists();
    if (exists && *exists) {
        track_state_ = "on, by table inet ftctl";
        return {};
    }
    if (untracked.empty()) {
        track_state_ = "on, by the ruleset";
        return {};
    }
    if (auto done = track_table_->add(); !done)
        return done;
    track_state_ = "on, by table inet ftctl";
    if (notes)
        notes->emplace_back("no rule asks for tracking of " + untracked +
                            " connections here: table inet ftctl keeps it on until the last detach "
                            "(--no-track leaves it off)");
    return {};
}

} // namespace ftctl
