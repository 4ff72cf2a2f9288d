// SPDX-License-Identifier: GPL-2.0-only
// The connections that have flows, and those that were refused: admission, changes, the end.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bpf/datapath.h"
#include "daemon/connection_table.h"
#include "daemon/kernel_view.h"
#include "flow/admission.h"
#include "flow/path_table.h"
#include "flow/plan.h"
#include "netlink/conntrack.h"
#include "netlink/policy.h"

namespace ftctl {

struct RefusedConnection {
    Tuple reply;
    std::uint32_t mark = 0;
    std::uint32_t epoch = 0; ///< of the last dump that had it
    std::uint64_t since_ns = 0;
    Refusal refusal;
    std::uint16_t zone = 0;
};

class Connections {
  public:
    using Refused = std::unordered_map<Tuple, RefusedConnection, TupleHash>;
    /// Who is told of what happens. Nothing is put into words while nobody listens.
    struct Audience {
        std::function<bool()> listens;
        std::function<void(const nlohmann::json &)> publish;
    };

    struct Settings {
        MarkRule mark;
        bool mark_from_conntrack = false; ///< packets are routed with their connection's mark
        std::uint32_t trickle_s = 10;
        /// The operator's policy: may this original tuple, coming in by this device, have flows?
        std::function<bool(const Tuple &orig, const std::string &iif)> allowed;
    };

    Connections(Datapath &datapath, KernelView &kernel, CtControl &conntrack, Settings settings,
                Audience audience);

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

    [[nodiscard]] const ConnectionTable &all() const { return table_; }
    [[nodiscard]] const Refused &refused() const { return refused_; }
    [[nodiscard]] const Connection *find(const Tuple &tuple) const; ///< of either direction
    /// How the packets of a direction arrive: the key of its flow.
    [[nodiscard]] ftctl_tuple key(const Connection &conn, bool reply) const;
    /// Connections of which a direction carries packets. Counted anew when that is at least twenty times
    /// as long ago as it takes: with a million connections the number may be some seconds old.
    [[nodiscard]] std::size_t count_live();
    [[nodiscard]] const std::map<ftctl_reason, std::uint64_t> &refusal_counts() const
    {
        return refusal_counts_;
    }
    [[nodiscard]] std::uint64_t insert_full() const { return insert_full_; }

  private:
    void admit(const CtEntry &entry, bool from_dump);
    Decision<Ways> ways_for(const CtEntry &entry);
    /// Asks for its ways again; false: it was removed.
    bool follow(Connection &conn);
    bool insert(Connection &conn, const Ways &ways, const std::array<ftctl_flow, 2> &carry);
    bool insert_direction(Connection &conn, const Ways &ways, bool reply, const ftctl_flow &carry);
    std::array<ftctl_flow, 2> erase_flows(const Connection &conn);
    void remove(const Connection &conn, const char *why);
    /// The entry in a flow map is this connection's.
    [[nodiscard]] bool owns(const Connection &conn, const FlowEntry &entry) const;
    [[nodiscard]] std::vector<std::uint32_t>
    ids_of(const std::function<bool(const Connection &)> &which) const;
    void refuse_connection(const CtEntry &entry, Refusal refusal);
    void closing(const Connection &conn, std::uint8_t tcp_flags);
    void mangled(const Connection &conn, unsigned detail);
    void retry_later(const Tuple &orig, std::uint64_t delay_ns);
    void write_path(std::uint32_t index);
    void watch();
    /// The slow path's timeout for connections of this protocol.
    [[nodiscard]] std::uint32_t full_timeout(std::uint8_t proto) const;
    template <typename Make>
    void publish(const Make &make)
    {
        if (audience_.listens())
            audience_.publish(make());
    }
    /// False: conntrack does not have it any more.
    bool age(Connection &conn, std::uint64_t now_ns);

    Datapath &datapath_;
    KernelView &kernel_;
    CtControl &conntrack_;
    Settings settings_;
    Audience audience_;
    PathTable paths_{FTCTL_MAX_PATHS};
    bool told_no_memory_ = false;
    XfrmPolicies xfrm_;

    ConnectionTable table_;
    Refused refused_;
    std::deque<Tuple> refused_order_;
    std::deque<Tuple> waiting_; ///< refused because the table was full
    std::multimap<std::uint64_t, Tuple> retries_;
    std::deque<std::uint32_t> verify_; ///< ids, from a dump: conntrack may not announce their end
    std::map<ftctl_reason, std::uint64_t> refusal_counts_;
    std::unordered_map<std::uint32_t, std::uint64_t> flipped_ns_; ///< when a path was last rewritten
    std::size_t live_ = 0;                                        ///< as last counted
    std::uint64_t next_count_ns_ = 0;                             ///< until then, that number is good enough
    std::uint64_t insert_full_ = 0;
    std::uint32_t next_id_ = 1;
    std::uint32_t epoch_ = 0;
};

} // namespace ftctl
