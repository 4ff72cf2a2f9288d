// SPDX-License-Identifier: GPL-2.0-only
// The daemon: turns what the kernel says into flows, and serves the control socket.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bpf/datapath.h"
#include "daemon/config.h"
#include "daemon/connections.h"
#include "daemon/control_server.h"
#include "daemon/devices.h"
#include "daemon/early_filter.h"
#include "daemon/flow_filter.h"
#include "daemon/flow_json.h"
#include "daemon/kernel_view.h"
#include "daemon/loop.h"
#include "daemon/tunnels.h"
#include "netlink/conntrack.h"
#include "netlink/policy.h"

namespace ftctl {

class Engine {
  public:
    /// Opens everything, takes over what an earlier daemon left, and attaches what the
    /// configuration names. Privileges may be dropped afterwards.
    static Result<std::unique_ptr<Engine>> start(const std::string &instance, const Config &config);
    ~Engine();

    /// Serves until SIGTERM or SIGINT.
    Status run();

  private:
    Engine(std::string instance, Config config) : instance_(std::move(instance)), config_(std::move(config))
    {
    }

    /* engine.cpp */
    Status open();
    Status restore();
    void beat();
    /// In long loops that conntrack's events may come between: they must not pile up.
    void beat_and_listen();
    void tick();
    void every_second();
    void poll_underlays();
    void poll_pppoe();
    void guess_pppoe();
    void follow_options();
    Status save();

    /* engine_events.cpp: what changed, gathered and followed at most every few milliseconds */
    void on_route_events();
    void on_xfrm();
    void on_nft();
    void settle();
    void settle_routes();
    void follow_devices();
    void new_generation();
    void resolve_all();

    /* engine_conntrack.cpp */
    void on_conntrack();
    void on_conntrack(CtEventType type, const CtEntry &entry);
    void hold_events();
    void resync_now();
    Status ensure_tracking(bool wanted, std::vector<std::string> *notes);

    /* commands.cpp */
    Reply command(const nlohmann::json &request);
    Reply cmd_attach(const nlohmann::json &request);
    Reply cmd_detach(const nlohmann::json &request);
    Reply cmd_status();
    Reply cmd_stats();
    Reply cmd_flows(const nlohmann::json &request, bool count_only);
    Reply cmd_flush(const nlohmann::json &request);
    Reply cmd_tunnel_add(const nlohmann::json &request);
    Reply cmd_tunnel_del(const nlohmann::json &request);
    void release_device(std::uint32_t ifindex);

    /* filter_commands.cpp */
    Reply cmd_filter_add(const nlohmann::json &request);
    Reply cmd_filter_del(const nlohmann::json &request);
    Reply cmd_filter_load(const nlohmann::json &request);
    Reply cmd_filter_flush();
    Reply cmd_rpf(const nlohmann::json &request);
    void publish_drops();
    void tell_rpf();

    /* listing.cpp */
    Result<FlowFilter> filter_of(const nlohmann::json &request) const;
    FlowJsonContext json_context() const;
    nlohmann::json connection_json(const Connection &conn, const FlowEntry *orig, const FlowEntry *reply,
                                   const FlowJsonContext &context) const;
    static nlohmann::json refused_connection_json(const Tuple &orig, const RefusedConnection &refused,
                                                  std::uint64_t now_ns);
    /// Calls the handler for each connection's element that fulfils the filter.
    void each_flow(const FlowFilter &filter, const std::function<void(const Connection *)> &handler);
    /// The same as the elements of an answer (Reply): connections that come and go meanwhile may be missed,
    /// no other is, and none comes twice.
    [[nodiscard]] std::function<bool(std::string &)> flow_elements(const FlowFilter &filter) const;
    [[nodiscard]] std::optional<nlohmann::json> listed(const Connection &conn, const FlowFilter &filter,
                                                       const FlowJsonContext &context) const;
    [[nodiscard]] std::optional<nlohmann::json> listed(const Tuple &orig, const FlowFilter &filter,
                                                       std::uint64_t now_ns) const;
    nlohmann::json flow_counts();

    /* explain.cpp, doctor.cpp */
    Reply cmd_explain(const nlohmann::json &request);
    Reply cmd_doctor() const;

    std::string instance_;
    Config config_;
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<Datapath> datapath_;
    std::unique_ptr<KernelView> kernel_;
    std::unique_ptr<CtControl> ct_control_;
    std::unique_ptr<CtEvents> ct_events_;
    std::unique_ptr<RtEvents> rt_events_;
    std::unique_ptr<XfrmWatch> xfrm_;
    std::unique_ptr<NftWatch> nft_;
    std::unique_ptr<TrackTable> track_table_;
    std::unique_ptr<Connections> connections_;
    std::unique_ptr<Devices> devices_;
    std::unique_ptr<Tunnels> tunnels_;
    std::unique_ptr<EarlyFilter> filter_;
    std::unique_ptr<ControlServer> server_;
    std::vector<Probe> probes_; ///< taken while there was every privilege
    Fd timer_;
    Fd signals_;

    /// What changed since it was last followed.
    struct Dirty {
        std::vector<RouteChanged> routes;
        std::vector<std::uint32_t> devices; ///< links whose state, MTU or address changed
        std::set<std::uint32_t> paths;      ///< whose neighbour or bridge port changed
        bool bridges = false;               ///< VLANs of ports
        bool rules = false;
        bool addresses = false;
        bool settings = false; ///< sysctls, netconf
        bool everything = false;
        [[nodiscard]] bool any() const
        {
            return !routes.empty() || !devices.empty() || !paths.empty() || bridges || rules || addresses ||
                   settings || everything;
        }
    } dirty_;
    std::vector<CtMessage> held_; ///< events that came during a resync, to be followed after it
    bool want_resync_ = false;
    bool lost_events_ = false;
    bool lost_again_ = false; ///< during a resync
    bool want_generation_ = false;
    bool beating_ = false;
    bool stopping_ = false;
    bool track_wanted_ = true;
    std::string track_state_ = "off: nothing is attached";
    std::uint64_t settled_ns_ = 0;
    std::uint64_t resynced_ns_ = 0;
    std::uint64_t generation_ns_ = 0;
    std::uint64_t second_ns_ = 0;
    std::uint64_t next_walk_ns_ = 0;
    std::uint64_t guessed_ns_ = 0;
    std::uint64_t started_ns_ = 0;
    std::map<std::uint32_t, std::pair<IpAddr, std::uint32_t>> underlays_; ///< tunnel -> next hop, MTU
    std::map<std::pair<std::uint32_t, unsigned>, std::uint64_t>
        dropped_; ///< slot, reason -> packets last seen
    std::uint64_t ct_event_count_ = 0, ct_overruns_ = 0, ct_resyncs_ = 0;
};

} // namespace ftctl
