// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/connections.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tcp.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>

#include "flow/lifetime.h"
#include "util/clock.h"

namespace ftctl {

namespace {

constexpr std::size_t kMaxRefused = 65536;
constexpr std::size_t kMaxWaiting = 65536;
/// After a new SYN on an old tuple the connection is left to the stack for a while.
constexpr std::uint64_t kSynCooling = 5 * FTCTL_NSEC_PER_SEC;
/// A connection whose packets were seen to be changed is looked at again after this.
constexpr std::uint64_t kMangledCooling = 60 * FTCTL_NSEC_PER_SEC;
/// How long the witness is kept awake after an admission.
constexpr std::uint64_t kWatch = 5 * FTCTL_NSEC_PER_SEC;

/// Both change packets into the same.
bool same_rewrite(const FlowEntry &a, const FlowEntry &b)
{
    return a.flow.new_src == b.flow.new_src && a.flow.new_dst == b.flow.new_dst &&
           a.flow.new_sport == b.flow.new_sport && a.flow.new_dport == b.flow.new_dport &&
           std::memcmp(&a.new_src, &b.new_src, sizeof(a.new_src)) == 0 &&
           std::memcmp(&a.new_dst, &b.new_dst, sizeof(a.new_dst)) == 0;
}

} // namespace

Connections::Connections(Datapath &datapath, KernelView &kernel, CtControl &conntrack, Settings settings,
                         Audience audience)
    : datapath_(datapath), kernel_(kernel), conntrack_(conntrack), settings_(std::move(settings)),
      audience_(std::move(audience))
{
    // ids of flows that an earlier daemon left are not used again
    (void)datapath_.flow_each([this](const FlowEntry &entry) {
        next_id_ = std::max(next_id_, entry.flow.id + 1);
        return true;
    });
}

const Connection *Connections::find(const Tuple &tuple) const
{
    const Connection *conn = table_.find(tuple);
    return conn ? conn : table_.find_reply(tuple);
}

ftctl_tuple Connections::key(const Connection &conn, bool reply) const
{
    // packets come in by the other direction's way
    const Way *way_in = paths_.way(conn.dir[!reply].path);
    return way_in ? flow_key(conn.tuple(reply), *way_in) : ftctl_tuple{};
}

void Connections::consider(CtEntry entry, bool from_dump)
{
    if (Connection *conn = table_.find(entry.orig)) {
        if (!entry.tcp_state) // an event names only what changed
            entry.tcp_state = conn->tcp_state;
        if (entry.id != conn->ct_id || entry.reply != conn->reply) {
            remove(*conn, "replaced");
        } else if (entry_closed(entry)) {
            remove(*conn, "closed");
            return;
        } else if (auto refusal = refuse_entry(entry, settings_.mark)) {
            remove(*conn, reason_name(refusal->reason));
            refuse_connection(entry, std::move(*refusal));
            return;
        } else {
            const bool rerouted = settings_.mark_from_conntrack && entry.mark != conn->mark;
            conn->mark = entry.mark;
            conn->tcp_state = entry.tcp_state;
            conn->epoch = epoch_;
            if (rerouted)
                follow(*conn);
            return;
        }
    }
    if (!from_dump && entry.orig.proto == IPPROTO_TCP && !entry.tcp_state && (entry.status & IPS_ASSURED)) {
        if (auto whole = conntrack_.get(entry.orig))
            entry = *whole;
    }
    if (auto refusal = refuse_entry(entry, settings_.mark)) {
        refuse_connection(entry, std::move(*refusal));
        return;
    }
    admit(entry, from_dump);
}

Decision<Ways> Connections::ways_for(const CtEntry &entry)
{
    // A policy sees packets before SNAT and after DNAT (forward) or as they leave (output).
    const Tuple forwarded{entry.orig.src, entry.reply.src, entry.orig.sport, entry.reply.sport,
                          entry.orig.proto};
    if (xfrm_.touches(entry.orig) || xfrm_.touches(entry.reply) || xfrm_.touches(forwarded))
        return refuse(FTCTL_R_XFRM);
    auto ways = resolve_ways(entry, kernel_, settings_.mark_from_conntrack ? entry.mark : 0);
    if (ways && !settings_.allowed(entry.orig, kernel_.name(ways->reply.l3_oif)))
        return refuse(FTCTL_R_POLICY);
    return ways;
}

void Connections::admit(const CtEntry &entry, bool from_dump)
{
    auto ways = ways_for(entry);
    if (!ways) {
        refuse_connection(entry, ways.error());
        return;
    }
    if (table_.size() >= datapath_.max_flows()) {
        refuse_connection(entry, {FTCTL_R_TABLE_FULL, {}});
        return;
    }
    // Before the first packet may be taken: what conntrack does not see must not look out of window.
    if (entry.orig.proto == IPPROTO_TCP) {
        if (const auto done = conntrack_.set_liberal(entry.orig); !done) {
            if (done.error().err != ENOENT)
                refuse_connection(entry, {FTCTL_R_KERNEL, done.error().why});
            return;
        }
    }
    while (next_id_ == 0 || table_.by_id(next_id_)) // after four thousand million of them
        next_id_++;
    Connection conn;
    conn.id = next_id_++;
    conn.ct_id = entry.id;
    conn.orig = entry.orig;
    conn.reply = entry.reply;
    conn.mark = entry.mark;
    conn.tcp_state = entry.tcp_state;
    conn.created_ns = monotonic_ns();
    conn.last_kernel = to_ticks(conn.created_ns);
    // The event of the change that made the entry eligible carries the fresh timeout, whatever rule
    // gave it; a dump shows what is left of it.
    conn.timeout_s = !from_dump && entry.timeout_s ? *entry.timeout_s : full_timeout(entry.orig.proto);
    conn.epoch = epoch_;
    conn.from_dump = from_dump;
    if (!insert(conn, *ways, {})) {
        refuse_connection(entry, {FTCTL_R_TABLE_FULL, {}});
        return;
    }
    if (from_dump)
        verify_.push_back(conn.id);
    refused_.erase(entry.orig);
    table_.add(conn);
    watch();
}

bool Connections::insert(Connection &conn, const Ways &ways, const std::array<ftctl_flow, 2> &carry)
{
    // Reply first, as nf_flow_table does: who finds the original direction finds both.
    for (const bool reply : {true, false}) {
        if (insert_direction(conn, ways, reply, carry.at(reply)))
            continue;
        if (!reply) {
            (void)datapath_.flow_delete(flow_key(conn.reply, ways.orig));
            paths_.release(conn.dir[1].path);
        }
        return false;
    }
    return true;
}

bool Connections::insert_direction(Connection &conn, const Ways &ways, bool reply, const ftctl_flow &carry)
{
    const FlowPlan plan = plan_flow(conn.entry(), ways, reply);
    const auto path = paths_.acquire(reply ? ways.reply : ways.orig);
    if (!path)
        return false;
    if (paths_.written(*path) != kernel_.version())
        write_path(*path);

    FlowEntry entry;
    entry.key = plan.key;
    entry.flow = carry; // counters of the same direction, when it had others before
    entry.flow.gen = datapath_.config().gen;
    entry.flow.state = FTCTL_FLOW_PENDING;
    entry.flow.path = *path;
    if (plan.key.family == 6) {
        entry.new_src = plan.new_src;
        entry.new_dst = plan.new_dst;
    } else {
        entry.flow.new_src = plan.new_src.w[0];
        entry.flow.new_dst = plan.new_dst.w[0];
    }
    entry.flow.new_sport = plan.new_sport;
    entry.flow.new_dport = plan.new_dport;
    entry.flow.addr_delta = plan.addr_delta;
    entry.flow.port_delta = plan.port_delta;
    entry.flow.flags = static_cast<std::uint8_t>((plan.nat ? FTCTL_F_NAT : 0) | (reply ? FTCTL_F_REPLY : 0) |
                                                 (plan.upper ? FTCTL_F_UPPER : 0));
    entry.flow.trickle_s = trickle_seconds(settings_.trickle_s, conn.timeout_s);
    entry.flow.reason = 0;
    entry.flow.detail = 0;
    entry.flow.id = conn.id;

    auto done = datapath_.flow_insert(entry);
    if (!done && done.error().err == EEXIST) {
        // Left by an earlier daemon, or by a connection that a NAT change gave the same tuple.
        const auto old = datapath_.flow_delete(entry.key);
        if (old && *old && same_rewrite(**old, entry) && !table_.by_id((*old)->flow.id)) {
            entry.flow.carried = (*old)->flow.carried;
            entry.flow.last_seen = (*old)->flow.last_seen;
        }
        done = datapath_.flow_insert(entry);
    }
    if (!done) {
        const Error &error = done.error();
        spdlog::debug("insert {}: {}", conn.orig.str(), error.why);
        // It counts as table-full, whose advice would be the wrong one.
        if (error.err == ENOMEM && !std::exchange(told_no_memory_, true))
            spdlog::warn("{}: {}: such connections stay slow; {}", error.what, error.why, error.hint);
        paths_.release(*path);
        return false;
    }
    conn.dir[reply] = {*path, 0};
    return true;
}

std::uint32_t Connections::full_timeout(std::uint8_t proto) const
{
    const Sysctls &sysctls = kernel_.sysctls();
    const long configured = proto == IPPROTO_TCP   ? sysctls.tcp_established_s
                            : proto == IPPROTO_GRE ? sysctls.gre_stream_s
                                                   : sysctls.udp_stream_s;
    return static_cast<std::uint32_t>(std::clamp(configured, 1L, 0x7fffffffL));
}

std::array<ftctl_flow, 2> Connections::erase_flows(const Connection &conn)
{
    std::array<ftctl_flow, 2> last{};
    for (const bool reply : {false, true})
        if (const auto old = datapath_.flow_delete(key(conn, reply));
            old && *old && (*old)->flow.id == conn.id)
            last.at(reply) = (*old)->flow;
    for (const auto &dir : conn.dir) // last: keys are made from paths
        paths_.release(dir.path);
    return last;
}

void Connections::remove(const Connection &conn, const char *why)
{
    const auto last = erase_flows(conn);
    publish([&] {
        const auto counters = [](const ftctl_flow &flow) {
            return nlohmann::json{{"packets", ftctl_count_packets(&flow.carried)},
                                  {"bytes", ftctl_count_bytes(&flow.carried)}};
        };
        return nlohmann::json{{"event", "removal"},
                              {"id", conn.id},
                              {"tuple", conn.orig.str()},
                              {"cause", why},
                              {"age_s", static_cast<double>(monotonic_ns() - conn.created_ns) / 1e9},
                              {"orig", counters(last[0])},
                              {"reply", counters(last[1])}};
    });
    table_.erase(conn);
}

void Connections::destroyed(const CtEntry &entry)
{
    refused_.erase(entry.orig);
    if (const Connection *conn = table_.find(entry.orig); conn && conn->ct_id == entry.id)
        remove(*conn, "conntrack");
}

void Connections::refuse_connection(const CtEntry &entry, Refusal refusal)
{
    if (refusal.reason == FTCTL_R_CLOSED) { // not kept from anything: it is over
        refused_.erase(entry.orig);
        return;
    }
    const auto it = refused_.find(entry.orig);
    if (it != refused_.end() && it->second.refusal == refusal) {
        it->second.reply = entry.reply;
        it->second.mark = entry.mark;
        it->second.zone = entry.zone;
        it->second.epoch = epoch_;
        return;
    }
    refusal_counts_[refusal.reason]++;
    if (refusal.reason == FTCTL_R_TABLE_FULL) {
        insert_full_++;
        if (waiting_.size() < kMaxWaiting)
            waiting_.push_back(entry.orig);
    }
    if (refusal.reason != FTCTL_R_NOT_ASSURED)
        publish([&] {
            return nlohmann::json{{"event", "refusal"},
                                  {"tuple", entry.orig.str()},
                                  {"reason", reason_text(refusal.reason, refusal.detail)}};
        });
    if (it == refused_.end()) {
        while (refused_.size() >= kMaxRefused && !refused_order_.empty()) {
            refused_.erase(refused_order_.front());
            refused_order_.pop_front();
        }
        refused_order_.push_back(entry.orig);
        if (refused_order_.size() > 2 * kMaxRefused) // entries that ended meanwhile
            std::erase_if(refused_order_, [this](const Tuple &t) { return refused_.count(t) == 0; });
    }
    refused_[entry.orig] = {entry.reply, entry.mark, epoch_, monotonic_ns(), std::move(refusal), entry.zone};
}

void Connections::on_event(const ftctl_event &event)
{
    Connection *conn = table_.by_id(event.id);
    if (!conn)
        return;
    const bool reply = event.flow_flags & FTCTL_F_REPLY;
    switch (event.type) {
    case FTCTL_EV_LIVE:
        conn->last_kernel = to_ticks(monotonic_ns());
        if (const Way *way = paths_.way(conn->dir[reply].path); way && way->pppoe)
            kernel_.pppoe_guess().confirm(way->neigh_dev, *way->pppoe);
        if (!conn->dir[reply].live) {
            conn->dir[reply].live = 1;
            publish([&] {
                return nlohmann::json{{"event", "offload"},
                                      {"id", conn->id},
                                      {"tuple", conn->orig.str()},
                                      {"direction", reply ? "reply" : "orig"}};
            });
        }
        break;
    case FTCTL_EV_DIFFERS: {
        mangled(*conn, event.detail);
        break;
    }
    case FTCTL_EV_CLOSING:
        closing(*conn, event.tcp_flags);
        break;
    default:
        break;
    }
}

void Connections::mangled(const Connection &conn, unsigned detail)
{
    const CtEntry ct = conn.entry();
    remove(conn, "mangled");
    refuse_connection(ct, {FTCTL_R_MANGLED, detail_name(detail)});
    // Two packets alike in ID, length and sequence but not in TOS or TTL can look like one that was
    // changed: such a connection is not refused for ever.
    retry_later(ct.orig, kMangledCooling);
}

void Connections::closing(const Connection &conn, std::uint8_t tcp_flags)
{
    constexpr std::uint8_t kSyn = 0x02, kRst = 0x04;
    constexpr std::uint32_t kCloseTimeout = 10; // nf_conntrack_tcp_timeout_close
    const Tuple orig = conn.orig;

    remove(conn, tcp_flags & kRst ? "rst" : tcp_flags & kSyn ? "syn" : "fin");
    // Conntrack's last seen ACK is old news; without it the packets that end the connection count.
    (void)conntrack_.set_liberal(orig);
    if (tcp_flags & kRst) {
        // A RST that is not at the ACK conntrack remembers leaves the entry ESTABLISHED for days;
        // nf_flow_table ends it the same way (flow_offload_fixup_ct).
        const auto entry = conntrack_.get(orig);
        if (entry && entry->tcp_state && !entry_closed(*entry))
            (void)conntrack_.set_tcp_state(orig, TCP_CONNTRACK_CLOSE, kCloseTimeout);
    } else {
        retry_later(orig, kSynCooling); // still ESTABLISHED then: it was not what it looked like
    }
}

void Connections::retry_later(const Tuple &orig, std::uint64_t delay_ns)
{
    if (retries_.size() < kMaxWaiting)
        retries_.emplace(monotonic_ns() + delay_ns, orig);
}

void Connections::watch()
{
    auto &config = datapath_.config();
    const std::uint64_t until = monotonic_ns() + kWatch;
    if (config.watch_until_ns + kWatch / 2 < until)
        config.watch_until_ns = until;
}

} // namespace ftctl
