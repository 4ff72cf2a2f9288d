// SPDX-License-Identifier: GPL-2.0-only
// Routes, rules, links and neighbours against the running kernel.
#include <catch2/catch.hpp>

#include <netinet/in.h>

#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

#include "netlink/policy.h"
#include "netlink/route.h"
#include "netlink_live.h"

using namespace ftctl;
using namespace netlink_live;

TEST_CASE("live: routes as the kernel takes them", "[.][live]")
{
    const Scratch ns;
    sh("ip link add ra type veth peer name pa && ip link add rb type veth peer name pb");
    sh("for d in ra pa rb pb; do ip link set $d up; done");
    sh("ip addr add 192.0.2.1/24 dev ra && ip addr add 198.51.100.1/24 dev rb");
    sh("ip addr add 2001:db8:a::1/64 dev ra nodad && ip addr add 2001:db8:b::1/64 dev rb nodad");
    sh("ip route add default via 198.51.100.2 mtu lock 1400 && ip -6 route add default via 2001:db8:b::2");
    set_sysctl("net/ipv4/ip_forward", "1");
    set_sysctl("net/ipv6/conf/all/forwarding", "1");
    for (const char *d : {"all", "ra", "rb"})
        set_sysctl(std::string("net/ipv4/conf/") + d + "/rp_filter", "1");
    CHECK(sysctl_number("net.ipv4.ip_forward") == 1);
    const auto rt = must(RtControl::open());
    const auto ra = must(rt->link("ra")).index;
    const auto rb = must(rt->link("rb")).index;

    RouteQuery q;
    q.dst = ip("203.0.113.9");
    q.src = ip("192.0.2.2");
    q.iif = ra;
    q.proto = IPPROTO_TCP;
    q.sport = 40000;
    q.dport = 80;
    q.tos = 0xb9;
    auto a = must(rt->route(q));
    CHECK(a.type == RTN_UNICAST);
    CHECK(a.oif == rb);
    CHECK(a.gateway == ip("198.51.100.2"));
    CHECK(a.mtu == 1400);
    CHECK(a.mtu_locked);
    CHECK(a.table == RT_TABLE_MAIN);
    q.proto = IPPROTO_GRE; // the kernel refuses to be asked; without, it answers
    CHECK(must(rt->route(q)).oif == rb);

    q.src = ip("198.51.100.9"); // lives behind rb, arrives on ra: strict reverse path
    const auto refused = rt->route(q);
    REQUIRE_FALSE(refused);
    CHECK((refused.error().err == EXDEV || refused.error().err == EINVAL)); // EINVAL since 6.14
    for (const char *d : {"all", "ra"})
        set_sysctl(std::string("net/ipv4/conf/") + d + "/rp_filter", "0");
    CHECK(must(rt->route(q)).oif == rb);
    q.src = ip("192.0.2.2");
    q.dst = ip("192.0.2.1");
    CHECK(must(rt->route(q)).type == RTN_LOCAL);
    sh("ip route add unreachable 203.0.113.128/25 && ip route add prohibit 203.0.113.64/26");
    q.dst = ip("203.0.113.129");
    CHECK(rt->route(q).error().err == EHOSTUNREACH);
    q.dst = ip("203.0.113.65");
    CHECK(rt->route(q).error().err == EACCES);

    RouteQuery q6;
    q6.dst = ip("2001:db8:c::9");
    q6.src = ip("2001:db8:a::2");
    q6.iif = ra;
    q6.proto = IPPROTO_UDP;
    q6.sport = q6.dport = 53;
    a = must(rt->route(q6));
    CHECK(a.oif == rb);
    CHECK(a.gateway == ip("2001:db8:b::2"));
    CHECK(a.table == RT_TABLE_MAIN);
    RouteQuery out;
    out.dst = ip("198.51.100.7");
    a = must(rt->route(out));
    CHECK(a.prefsrc == ip("198.51.100.1"));
    CHECK_FALSE(a.gateway);

    sh("ip route add 203.0.113.32/28 via inet6 fe80::77 dev rb");
    q.dst = ip("203.0.113.33");
    CHECK(must(rt->route(q)).gateway == ip("fe80::77"));

    const auto begin = std::chrono::steady_clock::now();
    constexpr int rounds = 20000;
    q.dst = ip("203.0.113.9");
    for (int i = 0; i < rounds; i++)
        REQUIRE(rt->route(q).has_value());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    WARN("route query: " << took.count() / rounds << " us");
}

TEST_CASE("live: rules and route traits", "[.][live]")
{
    const Scratch ns;
    const auto rt = must(RtControl::open());
    sh("ip link add ra type veth peer name pa && ip link set ra up && ip link set pa up");
    sh("ip addr add 192.0.2.1/24 dev ra && ip addr add 2001:db8:a::1/64 dev ra nodad");
    for (const std::uint8_t family : {AF_INET, AF_INET6}) {
        const auto s = must(rt->rules(family));
        CHECK_FALSE((s.fwmark || s.tos || s.other || s.ports));
        const auto t = must(rt->route_traits(family));
        CHECK_FALSE((t.tos || t.multipath || t.alternatives));
    }
    sh("ip route add default via 192.0.2.8 && ip route append default via 192.0.2.9 metric 5");
    CHECK_FALSE(must(rt->route_traits(AF_INET)).alternatives);
    sh("ip route append default via 192.0.2.9");
    CHECK(must(rt->route_traits(AF_INET)).alternatives);
    sh("ip route del default via 192.0.2.9");
    CHECK_FALSE(must(rt->route_traits(AF_INET)).alternatives);
    sh("ip link set pa up && ip -6 route add 2001:db8:d::/64 dev ra");
    CHECK_FALSE(must(rt->route_traits(AF_INET6)).alternatives);
    sh("ip -6 route append 2001:db8:d::/64 dev lo && ip -6 route show 2001:db8:d::/64 | grep -q lo");
    CHECK(must(rt->route_traits(AF_INET6)).alternatives);
    sh("ip -6 route del 2001:db8:d::/64 dev lo");
    sh("ip rule add sport 53 lookup 100");
    CHECK(must(rt->rules(AF_INET)).ports);
    sh("ip rule del sport 53 lookup 100");
    sh("ip rule add fwmark 1 lookup 100 && ip -6 rule add tos 0x10 lookup 100");
    CHECK(must(rt->rules(AF_INET)).fwmark);
    CHECK_FALSE(must(rt->rules(AF_INET)).tos);
    CHECK_FALSE(must(rt->rules(AF_INET6)).fwmark);
    CHECK(must(rt->rules(AF_INET6)).tos);
    sh("ip rule add uidrange 0-10 lookup 100");
    CHECK(must(rt->rules(AF_INET)).other);

    sh("ip route add 203.0.113.0/24 tos 0x10 via 192.0.2.9");
    CHECK(must(rt->route_traits(AF_INET)).tos);
    CHECK_FALSE(must(rt->route_traits(AF_INET)).multipath);
    sh("ip route add 198.18.0.0/24 table 77 nexthop via 192.0.2.8 nexthop via 192.0.2.9");
    CHECK(must(rt->route_traits(AF_INET)).multipath);
    sh("ip -6 route add 2001:db8:c::/64 nexthop via 2001:db8:a::8 nexthop via 2001:db8:a::9");
    CHECK(must(rt->route_traits(AF_INET6)).multipath);
    CHECK_FALSE(must(rt->route_traits(AF_INET6)).tos);

    sh("ip route del 198.18.0.0/24 table 77");
    set_sysctl("net/ipv4/nexthop_compat_mode", "0"); // only ids are told now
    sh("ip nexthop add id 1 via 192.0.2.8 dev ra && ip nexthop add id 2 via 192.0.2.9 dev ra");
    sh("ip route add 198.18.0.0/24 nhid 1");
    CHECK_FALSE(must(rt->route_traits(AF_INET)).multipath);
    sh("ip nexthop add id 3 group 1/2 && ip route add 198.18.1.0/24 nhid 3");
    CHECK(must(rt->route_traits(AF_INET)).multipath);
}

TEST_CASE("live: links, neighbours, and their events", "[.][live]")
{
    const Scratch ns;
    const auto events = must(RtEvents::open());
    const auto rt = must(RtControl::open());
    std::vector<RtEvent> seen;
    const auto read = [&] { must(events->read([&](const RtEvent &e) { seen.push_back(e); })); };
    const auto until = [&](const std::function<bool(const RtEvent &)> &match) {
        const bool ok = wait_for(events->fd(), read, [&] {
            for (const auto &e : seen)
                if (match(e))
                    return true;
            return false;
        });
        seen.clear();
        return ok;
    };
    sh("ip link add ra address 02:00:00:00:00:0a mtu 1400 type veth peer name pa");
    CHECK(until([](const RtEvent &e) {
        const auto *l = std::get_if<LinkChanged>(&e);
        return l && l->link.name == "ra" && l->link.kind == "veth";
    }));
    sh("ip link add br0 type bridge && ip link set ra master br0 && ip link set ra up && ip link set pa up");
    CHECK(until([](const RtEvent &e) {
        const auto *l = std::get_if<LinkChanged>(&e);
        return l && l->link.name == "ra" && l->link.master != 0;
    }));
    auto ra = must(rt->link("ra"));
    CHECK(ra.mac.str() == "02:00:00:00:00:0a");
    CHECK(ra.mtu == 1400);
    CHECK(ra.master_kind == "bridge");
    CHECK(ra.lower == must(rt->link("pa")).index);
    CHECK(must(rt->link(ra.master)).kind == "bridge");
    CHECK(rt->link("nope").error().err == ENODEV);
    CHECK(rt->link(9999).error().err == ENODEV);
    CHECK(must(rt->links()).size() == 4);
    sh("ip link set ra nomaster && ip link set br0 up && ip link del br0");
    CHECK(until([](const RtEvent &e) {
        const auto *l = std::get_if<LinkGone>(&e);
        return l && l->name == "br0";
    }));

    sh("ip addr add 192.0.2.1/24 dev ra && ip addr add 2001:db8:a::1/64 dev ra nodad");
    CHECK(until([](const RtEvent &e) {
        const auto *a = std::get_if<AddrChanged>(&e);
        return a && a->addr == ip("2001:db8:a::1") && !a->gone;
    }));
    for (const char *text : {"192.0.2.77", "2001:db8:a::77"}) {
        const IpAddr peer = ip(text);
        CHECK_FALSE(must(rt->neighbour(ra.index, peer)));
        must(rt->probe_neighbour(ra.index, peer));
        CHECK(until([&](const RtEvent &e) { // nobody answers: resolving, then failed
            const auto *n = std::get_if<NeighChanged>(&e);
            return n && n->neigh.addr == peer && !n->neigh.valid();
        }));
        CHECK(must(rt->neighbour(ra.index, peer)));
        sh(std::string("ip neigh replace ") + text + " lladdr 02:00:00:00:00:77 dev ra nud stale");
        CHECK(until([&](const RtEvent &e) {
            const auto *n = std::get_if<NeighChanged>(&e);
            return n && n->neigh.addr == peer && n->neigh.mac.str() == "02:00:00:00:00:77";
        }));
        must(rt->probe_neighbour(ra.index, peer)); // stale: checks it, keeps the address
        const auto n = must(rt->neighbour(ra.index, peer));
        REQUIRE(n);
        CHECK(n->mac.str() == "02:00:00:00:00:77");
        CHECK((n->state & (NUD_DELAY | NUD_PROBE)) != 0);
        CHECK_FALSE(must(rt->neighbours()).empty());
        sh(std::string("ip neigh del ") + text + " dev ra");
        CHECK(until([&](const RtEvent &e) {
            const auto *g = std::get_if<NeighChanged>(&e);
            return g && g->neigh.addr == peer && (g->gone || !g->neigh.valid());
        }));
    }
    sh("ip route add 203.0.113.0/24 via 192.0.2.9 table 500");
    CHECK(until([](const RtEvent &e) {
        const auto *r = std::get_if<RouteChanged>(&e);
        return r && r->dst.str() == "203.0.113.0/24" && r->table == 500;
    }));
    sh("ip rule add fwmark 1 lookup 500");
    CHECK(until([](const RtEvent &e) { return std::holds_alternative<RuleChanged>(e); }));
    set_sysctl("net/ipv4/conf/ra/rp_filter", "2");
    CHECK(until([](const RtEvent &e) { return std::holds_alternative<NetconfChanged>(e); }));
    sh("ip nexthop add id 1 via 192.0.2.8 dev ra");
    CHECK(until([](const RtEvent &e) { return std::holds_alternative<NexthopChanged>(e); }));
    sh("for i in $(seq 1 200); do for j in $(seq 1 200); do echo route replace 10.$i.$j.0/24 via 192.0.2.9; "
       "done; done | ip -batch -"); // more than the receive buffer holds
    CHECK(until([](const RtEvent &e) { return std::holds_alternative<Overrun>(e); }));
}

TEST_CASE("live: bridges, their stations and VLANs", "[.][live]")
{
    const Scratch ns;
    sh("ip link add br0 address 02:00:00:00:0b:00 type bridge && ip link add p1 type veth peer name q1");
    sh("ip link set p1 master br0 && ip link set br0 up && ip link set p1 up && ip link set q1 up");
    const auto events = must(RtEvents::open());
    const auto rt = must(RtControl::open());
    const auto bridge = must(rt->link("br0"));
    auto port = must(rt->link("p1"));
    REQUIRE(bridge.bridge);
    CHECK_FALSE(bridge.bridge->vlan_filtering);
    REQUIRE(port.port);
    CHECK_FALSE(port.port->locked);
    CHECK_FALSE(port.bridge);

    const Mac station = *Mac::parse("02:00:00:00:0a:01");
    CHECK_FALSE(must(rt->fdb_port(bridge.index, station, 0)));
    sh("bridge fdb add 02:00:00:00:0a:01 dev p1 master static");
    CHECK(must(rt->fdb_port(bridge.index, station, 0)) == port.index);
    CHECK_FALSE(must(rt->fdb_port(bridge.index, station, 5)));
    CHECK_FALSE(must(rt->fdb_port(bridge.index, bridge.mac, 0))); // its own
    sh("bridge link set dev p1 state 0");
    bool stations = false;
    bool ports = false;
    CHECK(wait_for(
        events->fd(),
        [&] {
            must(events->read([&](const RtEvent &e) {
                const auto *fdb = std::get_if<FdbChanged>(&e);
                stations |= fdb && fdb->mac == station && fdb->bridge == bridge.index;
                const auto *changed = std::get_if<PortChanged>(&e);
                ports |= changed && changed->index == port.index;
            }));
        },
        [&] { return stations && ports; }));
    port = must(rt->link("p1"));
    REQUIRE(port.port);
    CHECK_FALSE(port.port->forwarding);
    sh("bridge link set dev p1 state 3");
    CHECK(must(rt->link("p1")).port->forwarding);
    // A kernel that filters no VLANs (CONFIG_BRIDGE_VLAN_FILTERING) names none.
    for (const auto &[index, vlans] : must(rt->bridge_vlans()))
        for (const BridgeVlan &vlan : vlans)
            CHECK(vlan == BridgeVlan{1, true, true});
}
