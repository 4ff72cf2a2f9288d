// SPDX-License-Identifier: GPL-2.0-only
// The connections that have flows, and those that were refused: admission, changes, the end.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bpf/datapath.h"
#include "daemon/kernel_view.h"
#include "flow/admission.h"
#include "flow/path_table.h"
#include "flow/plan.h"
#include "netlink/conntrack.h"
#include "netlink/policy.h"

namespace ftctl {

struct Connection {
    struct Direction {
        ftctl_tuple key{};
        std::uint32_t path = 0;
        bool live = false; ///< as last announced
    };
    std::uint32_t id = 0;
    CtEntry ct;
    Direction dir[2]; ///< original, reply
    std::uint64_t created_ns = 0;
    std::uint32_t timeout_s = 0;   ///< the slow path's full timeout
    std::uint32_t corrected = 0;   ///< ticks of the packet the timeout was last corrected for
    std::uint32_t last_seen = 0;   ///< ticks; from the last walk, 0: nothing carried yet
    std::uint32_t last_kernel = 0; ///< ticks; last packet known to have gone through conntrack
    std::uint32_t ask_after = 0;   ///< ticks; 0, or when conntrack's answer would have expired
    std::uint32_t epoch = 0;       ///< of the last dump that had it
    bool from_dump = false;        ///< conntrack may not announce its end
};

struct RefusedConnection {
    CtEntry ct;
    Refusal refusal;
    std::uint64_t since_ns = 0;
    std::uint32_t epoch = 0;
};

class Connections {
  public:
    using Publish = std::function<void(nlohmann::json)>;

    struct Settings {
        MarkRule mark;
        bool mark_from_conntrack = false; ///< packets are routed with their connection's mark
        std::uint32_t trickle_s = 10;
        /// The operator's policy: may this original tuple, coming in by this device, have flows?
        std::function<bool(const Tuple &orig, const std::string &iif)> allowed;
    };

    Connections(Datapath &datapath, KernelView &kernel, CtControl &conntrack, Settings settings,
                Publish publish);

    /// Looks at an entry that an event or a dump brought, and does what follows.
    void consider(CtEntry entry, bool from_dump);
    /// The entry is gone.
    void destroyed(const CtEntry &entry);
    /// What a datapath event says.
    void on_event(const ftctl_event &event);

    /// Dumps conntrack and makes the connections agree with it. `beat` is called now and then.
    Status resync(const std::function<void()> &beat);

    /// Asks for the ways of these connections again and follows what changed.
    void resolve_again(const std::function<bool(const Connection &)> &which,
                       const std::function<void()> &beat);
    /// A neighbour, device address or device state changed: rewrites the paths concerned.
    void refresh_paths(const std::vector<std::uint32_t> &paths);
    PathTable &paths() { return paths_; }

    void set_xfrm(XfrmPolicies policies) { xfrm_ = std::move(policies); }

    /// Walks the flow maps: lifetimes, missed events, strays. Returns flows seen.
    std::size_t walk(const std::function<void()> &beat);
    /// Once a second: retries, and connections whose end conntrack may not announce.
    void every_second();
    /// The ppp devices by which connections wait in vain to be seen to leave.
    [[nodiscard]] std::set<std::uint32_t> unseen_pppoe() const;
    /// The configured timeouts changed.
    void adjust_trickle();

    /// Removes the flows of these connections; they may come back with their next packets.
    /// Returns how many.
    std::size_t remove_if(const std::function<bool(const Connection &)> &which, const char *why);

    [[nodiscard]] const std::unordered_map<Tuple, std::unique_ptr<Connection>, TupleHash> &all() const
    {
        return by_tuple_;
    }
    [[nodiscard]] const std::unordered_map<Tuple, RefusedConnection, TupleHash> &refused() const
    {
        return refused_;
    }
    [[nodiscard]] const Connection *find(const Tuple &tuple) const; ///< of either direction
    [[nodiscard]] const std::map<ftctl_reason, std::uint64_t> &refusal_counts() const
    {
        return refusal_counts_;
    }
    [[nodiscard]] std::uint64_t insert_full() const { return insert_full_; }

  private:
    void admit(const CtEntry &entry, bool from_dump);
    Decision<Ways> ways_for(const CtEntry &entry);
    /// Asks for its ways again; false: it was removed.
    bool follow(const Tuple &orig);
    bool insert(Connection &conn, const Ways &ways, const std::array<ftctl_flow, 2> &carry);
    bool insert_direction(Connection &conn, const Ways &ways, bool reply, const ftctl_flow &carry);
    std::array<ftctl_flow, 2> erase_flows(Connection &conn);
    void remove(const Tuple &orig, const char *why);
    void refuse_connection(const CtEntry &entry, Refusal refusal);
    void closing(Connection &conn, std::uint8_t tcp_flags);
    void mangled(const CtEntry &entry, unsigned detail);
    void retry_later(const Tuple &orig, std::uint64_t delay_ns);
    void write_path(std::uint32_t index);
    void watch();
    [[nodiscard]] std::uint32_t full_timeout(const CtEntry &entry, bool from_dump) const;
    /// False: conntrack does not have it any more.
    bool age(Connection &conn, std::uint64_t now_ns);
    Connection *by_id(std::uint32_t id);

    Datapath &datapath_;
    KernelView &kernel_;
    CtControl &conntrack_;
    Settings settings_;
    Publish publish_;
    PathTable paths_{FTCTL_MAX_PATHS};
    XfrmPolicies xfrm_;

    std::unordered_map<Tuple, std::unique_ptr<Connection>, TupleHash> by_tuple_;
    std::unordered_map<Tuple, Tuple, TupleHash> by_reply_; ///< reply tuple -> original tuple
    std::unordered_map<std::uint32_t, Connection *> by_id_;
    std::unordered_map<Tuple, RefusedConnection, TupleHash> refused_;
    std::deque<Tuple> refused_order_;
    std::deque<Tuple> waiting_; ///< refused because the table was full
    std::multimap<std::uint64_t, Tuple> retries_;
    std::deque<Tuple> verify_; ///< from a dump: conntrack may not announce their end
    std::map<ftctl_reason, std::uint64_t> refusal_counts_;
    std::map<std::uint32_t, std::uint64_t> flipped_ns_; ///< when a path was last rewritten
    std::uint64_t insert_full_ = 0;
    std::uint32_t next_id_ = 1;
    std::uint32_t epoch_ = 0;
};

} // namespace ftctl
