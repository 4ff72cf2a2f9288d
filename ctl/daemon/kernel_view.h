// SPDX-License-Identifier: GPL-2.0-only
// What the daemon knows of the kernel's links, neighbours, rules and settings: read once, kept
// current by events, and asked for routes on behalf of flow/ways.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "daemon/route_cache.h"
#include "flow/pppoe_guess.h"
#include "flow/ways.h"
#include "netlink/policy.h"
#include "netlink/route.h"

namespace ftctl {

/// Settings that are polled, since the kernel does not announce all of them.
struct Sysctls {
    long udp_stream_s = 120;
    long tcp_established_s = 432000;
    long gre_stream_s = 180;
    /// Whatever decides about forwarding and source checks, of all attached devices: compared only.
    std::map<std::string, long> forwarding;
    bool operator==(const Sysctls &) const = default;
};

class KernelView : public Fib {
  public:
    static Result<std::unique_ptr<KernelView>> open();

    /* Fib */
    Result<RouteAnswer> route(const RouteQuery &query) override;
    const Link *link(std::uint32_t ifindex) override;
    bool attached(std::uint32_t ifindex) override { return attached_.count(ifindex) > 0; }
    bool sends_redirects(std::uint32_t ifindex) override;
    bool known_local(const IpAddr &addr) override { return local_.count(addr) > 0; }
    /// As last polled; a device that is asked about is polled from then on.
    std::uint32_t ipv6_mtu(std::uint32_t ifindex) override;
    int auto_flow_labels() override;
    std::optional<Mac> neighbour_mac(std::uint32_t ifindex, const IpAddr &addr) override;
    std::optional<std::uint32_t> fdb_port(std::uint32_t bridge, const Mac &mac, std::uint16_t vid) override;
    [[nodiscard]] const std::vector<BridgeVlan> &bridge_vlans(std::uint32_t ifindex) const override;
    std::optional<PppoeSession> pppoe(const Link &ppp) override { return pppoe_.session(ppp.index); }
    std::optional<Mac> upper_mac(std::uint32_t ifindex) override;
    [[nodiscard]] bool policy_routed(std::uint8_t family) const override
    {
        const Policy &p = family == AF_INET6 ? policy6_ : policy4_;
        return p.other || (p.marks && !marks_known_);
    }
    [[nodiscard]] bool flow_label_routed() const override;

    /// Reads links, neighbours, rules and settings anew.
    Status refresh();
    Status refresh_rules();

    /// Takes over what an event says. True when routes or ways may have changed by it.
    void apply(const LinkChanged &event);
    void apply(const LinkGone &event);
    void apply(const NeighChanged &event);
    /// Something waits for what this says, having asked in vain before.
    bool awaited(const NeighChanged &event);
    bool awaited(const FdbChanged &event);
    /// It is a port of a bridge, or below one that is.
    bool below_bridge(std::uint32_t ifindex);
    /// Ports have come, gone or changed.
    void refresh_bridges();
    /// Addresses or routes changed: what is known to be local may be wrong.
    void forget_local() { local_.clear(); }
    /// Something changed that the kernel's answers may depend on: it is asked again.
    void forget_routes() { routes_.clear(); }
    /// Rules or routes changed: until refresh_rules() it is not known what answers depend on.
    void suspect_routes()
    {
        forget_routes();
        rules_read_ = false;
    }
    /// Another number whenever something that is known here (links, neighbours, settings) has changed.
    [[nodiscard]] std::uint64_t version() const { return version_; }

    [[nodiscard]] const Link *link_by_name(const std::string &name) const override;
    [[nodiscard]] const std::map<std::uint32_t, Link> &links() const { return links_; }
    [[nodiscard]] const Neigh *neighbour(std::uint32_t ifindex, const IpAddr &addr) const;
    [[nodiscard]] std::string name(std::uint32_t ifindex) const;
    /// Some route of the family has several next hops.
    [[nodiscard]] bool multipath(std::uint8_t family) const
    {
        return (family == AF_INET6 ? policy6_ : policy4_).multipath;
    }

    /// The operator says what mark each packet is routed with: rules on marks are then no obstacle.
    void marks_are_known(bool known) { marks_known_ = known; }
    void set_attached(std::uint32_t ifindex, bool on);
    /// A tunnel made by `ftctl tunnel add`: the TUN device `name` has these settings.
    void declare_tunnel(const std::string &name, const TunnelConfig &config);
    void forget_tunnel(const std::string &name);

    [[nodiscard]] const Sysctls &sysctls() const { return sysctls_; }
    /// Reads the settings again; true when one that decides about forwarding changed.
    bool poll_sysctls();

    /// net.ipv4.ip_forward_update_priority
    [[nodiscard]] bool priority_by_tos() const;

    /// Which session each ppp device has.
    PppoeGuess &pppoe_guess() { return pppoe_; }
    /// Reads the PPPoE sessions again, where there is a ppp device. True when they have changed.
    bool poll_pppoe();

    RtControl &control() { return *control_; }

  private:
    /// What rules and routes of one family look at.
    struct Policy {
        bool marks = false;
        bool other = false;
        bool multipath = false; ///< some route has several next hops
        bool cacheable = false; ///< answers do not depend on protocol and ports, nor on neighbours
    };
    Status refresh_rules(std::uint8_t family, Policy &policy);
    [[nodiscard]] bool may_cache(std::uint8_t family) const;
    void overlay(Link &link) const;
    void find_uppers();
    [[nodiscard]] Sysctls read_sysctls() const;

    std::unique_ptr<RtControl> control_;
    std::map<std::uint32_t, Link> links_;
    std::map<std::pair<std::uint32_t, IpAddr>, Neigh> neighbours_;
    std::map<std::string, TunnelConfig> declared_;
    std::set<std::uint32_t> attached_;
    std::set<std::uint32_t> asked_; ///< devices whose IPv6 MTU was asked for
    std::set<IpAddr> local_;
    BridgeVlans bridge_vlans_;
    PppoeGuess pppoe_;
    std::map<std::uint32_t, Mac> upper_macs_; ///< attached or not
    std::set<std::uint32_t> below_bridges_;   ///< ports and the devices below those
    bool links_changed_ = true;               ///< these two are old
    std::set<std::pair<std::uint32_t, IpAddr>> awaited_neighbours_;
    std::set<std::pair<std::uint32_t, Mac>> awaited_stations_;
    Sysctls sysctls_;
    bool marks_known_ = false;
    Policy policy4_;
    Policy policy6_;
    RouteCache routes_;
    bool rules_read_ = false;
    std::uint64_t version_ = 1;
};

} // namespace ftctl
