// SPDX-License-Identifier: GPL-2.0-only
// A Fib made of tables, and a conntrack entry to start from.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tcp.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>

#include "flow/ways.h"

namespace ftctl::test {

inline IpAddr ip(const char *text)
{
    return *IpAddr::parse(text);
}

class FakeFib : public Fib {
  public:
    struct Route {
        Prefix dst;
        RouteAnswer answer;
        std::uint32_t iif = 0; ///< only for packets from there; 0: any
    };

    FakeFib()
    {
        add_link(2, "lan");
        add_link(3, "wan");
        add_route("192.0.2.0/24", 2);
        add_route("198.51.100.0/24", 3);
        add_route("2001:db8:1::/64", 2);
        add_route("2001:db8:2::/64", 3);
    }

    Link &add_link(std::uint32_t index, const std::string &name)
    {
        Link &link = links[index];
        link.index = index;
        link.name = name;
        link.type = ARPHRD_ETHER;
        link.flags = IFF_UP;
        link.mtu = 1500;
        attached_to.insert(index);
        return link;
    }
    RouteAnswer &add_route(const char *dst, std::uint32_t oif, std::uint32_t iif = 0)
    {
        RouteAnswer answer;
        answer.type = RTN_UNICAST;
        answer.oif = oif;
        const Prefix prefix = *Prefix::parse(dst);
        answer.prefsrc = ip(prefix.addr.family == AF_INET ? "203.0.113.1" : "2001:db8:f::1");
        routes.insert(routes.begin(), {prefix, answer, iif});
        return routes.front().answer;
    }

    Result<RouteAnswer> route(const RouteQuery &query) override
    {
        queries.push_back(query);
        for (const Route &r : routes)
            if (r.dst.contains(query.dst) && (r.iif == 0 || r.iif == query.iif))
                return r.answer;
        return fail_errno("route", ENETUNREACH);
    }
    const Link *link(std::uint32_t ifindex) override
    {
        const auto it = links.find(ifindex);
        return it == links.end() ? nullptr : &it->second;
    }
    [[nodiscard]] const Link *link_by_name(const std::string &name) const override
    {
        const auto it =
            std::find_if(links.begin(), links.end(), [&](const auto &l) { return l.second.name == name; });
        return it == links.end() ? nullptr : &it->second;
    }
    std::optional<Mac> neighbour_mac(std::uint32_t ifindex, const IpAddr &addr) override
    {
        const auto it = neighbours.find({ifindex, addr});
        return it == neighbours.end() ? std::nullopt : std::optional(it->second);
    }
    std::optional<std::uint32_t> fdb_port(std::uint32_t bridge, const Mac &mac, std::uint16_t vid) override
    {
        const auto it = stations.find({bridge, mac, vid});
        return it == stations.end() ? std::nullopt : std::optional(it->second);
    }
    [[nodiscard]] const std::vector<BridgeVlan> &bridge_vlans(std::uint32_t ifindex) const override
    {
        static const std::vector<BridgeVlan> none;
        const auto it = vlans.find(ifindex);
        return it == vlans.end() ? none : it->second;
    }
    std::optional<PppoeSession> pppoe(const Link &ppp) override
    {
        const auto it = sessions.find(ppp.index);
        return it == sessions.end() ? std::nullopt : std::optional(it->second);
    }
    std::optional<Mac> upper_mac(std::uint32_t ifindex) override
    {
        const auto it = upper_macs.find(ifindex);
        return it == upper_macs.end() ? std::nullopt : std::optional(it->second);
    }
    bool attached(std::uint32_t ifindex) override { return attached_to.count(ifindex) > 0; }
    bool sends_redirects(std::uint32_t) override { return redirects; }
    bool known_local(const IpAddr &addr) override { return local.count(addr) > 0; }

    std::uint32_t ipv6_mtu(std::uint32_t ifindex) override
    {
        const auto it = ipv6_mtus.find(ifindex);
        return it == ipv6_mtus.end() ? 0 : it->second;
    }
    int auto_flow_labels() override { return flow_labels; }
    [[nodiscard]] bool policy_routed(std::uint8_t family) const override { return policy.count(family) > 0; }
    [[nodiscard]] bool flow_label_routed() const override { return label_routes; }

    std::map<std::uint32_t, Link> links;
    std::map<std::pair<std::uint32_t, IpAddr>, Mac> neighbours;
    std::map<std::tuple<std::uint32_t, Mac, std::uint16_t>, std::uint32_t> stations;
    BridgeVlans vlans;
    std::map<std::uint32_t, PppoeSession> sessions;
    std::map<std::uint32_t, Mac> upper_macs;
    std::map<std::uint32_t, std::uint32_t> ipv6_mtus;
    std::set<std::uint8_t> policy; ///< families
    int flow_labels = 0;
    bool label_routes = false;
    std::vector<Route> routes; ///< the first that fits
    std::set<std::uint32_t> attached_to;
    std::set<IpAddr> local;
    std::vector<RouteQuery> queries;
    bool redirects = true;
};

/// 192.0.2.2:40000 -> 198.51.100.2:80, behind 198.51.100.1:61000 on the way out; fit for flows.
inline CtEntry entry(std::uint8_t proto = IPPROTO_TCP)
{
    CtEntry e;
    e.id = 7;
    e.orig = {ip("192.0.2.2"), ip("198.51.100.2"), 40000, 80, proto};
    e.reply = {ip("198.51.100.2"), ip("198.51.100.1"), 80, 61000, proto};
    e.status = IPS_CONFIRMED | IPS_SEEN_REPLY | IPS_ASSURED | IPS_SRC_NAT;
    if (proto == IPPROTO_TCP)
        e.tcp_state = TCP_CONNTRACK_ESTABLISHED;
    return e;
}

/// [2001:db8:1::2]:40000 -> [2001:db8:2::2]:80, without NAT; fit for flows.
inline CtEntry entry6(std::uint8_t proto = IPPROTO_TCP)
{
    CtEntry e = entry(proto);
    e.orig = {ip("2001:db8:1::2"), ip("2001:db8:2::2"), 40000, 80, proto};
    e.reply = e.orig.reversed();
    e.status &= ~static_cast<std::uint32_t>(IPS_SRC_NAT);
    return e;
}

} // namespace ftctl::test
