// SPDX-License-Identifier: GPL-2.0-only
#include <catch2/catch.hpp>

#include <linux/if_ether.h>

#include "flow/path_table.h"
#include "flow/ways.h"
#include "flow_fakes.h"

using namespace ftctl;
using namespace ftctl::test;

namespace {

int refusal(const Decision<Ways> &ways)
{
    return ways ? 0 : ways.error().reason;
}

Link &add_tunnel(FakeFib &fib)
{
    Link &tun = fib.add_link(9, "tun0");
    tun.type = 65534; // ARPHRD_NONE
    tun.mtu = 1480;
    fib.attached_to.erase(9);
    TunnelConfig config;
    config.local = ip("203.0.113.1");
    config.remote = ip("203.0.113.2");
    tun.tunnel = config;
    fib.add_link(4, "underlay");
    fib.add_route("203.0.113.0/24", 4);
    fib.add_route("198.51.100.0/24", 9);
    return tun;
}

} // namespace

TEST_CASE("both ways of a plain connection", "[flow][ways]")
{
    FakeFib fib;
    const auto ways = resolve_ways(entry(), fib);
    REQUIRE(ways);
    CHECK(ways->orig.oif == 3);
    CHECK(ways->orig.next_hop == ip("198.51.100.2"));
    CHECK(ways->orig.mtu == 1500);
    CHECK(ways->reply.oif == 2);
    CHECK(ways->reply.next_hop == ip("192.0.2.2"));
    CHECK_FALSE(ways->orig.tunnel);
}

TEST_CASE("lookups carry what the slow path's carry", "[flow][ways]")
{
    FakeFib fib;
    CtEntry e = entry();
    e.orig.dst = ip("198.51.100.1"); // DNAT: routing sees the server's own address and port
    e.orig.dport = 8080;
    REQUIRE(resolve_ways(e, fib));
    REQUIRE(fib.queries.size() == 3);
    const RouteQuery &there = fib.queries[1];
    CHECK(there.src == ip("192.0.2.2"));
    CHECK(there.dst == ip("198.51.100.2"));
    CHECK(there.sport == 40000);
    CHECK(there.dport == 80);
    CHECK(there.iif == 2);
    CHECK(there.proto == IPPROTO_TCP);
    const RouteQuery &back = fib.queries[2];
    CHECK(back.src == ip("198.51.100.2"));
    CHECK(back.dst == ip("192.0.2.2"));
    CHECK(back.sport == 80);
    CHECK(back.dport == 40000);
    CHECK(back.iif == 3);
}

TEST_CASE("a gateway is the next hop", "[flow][ways]")
{
    FakeFib fib;
    fib.add_route("198.51.100.0/24", 3).gateway = ip("198.51.100.254");
    CHECK(resolve_ways(entry(), fib)->orig.next_hop == ip("198.51.100.254"));
    fib.routes.front().answer.gateway = ip("fe80::1");
    CHECK(refusal(resolve_ways(entry(), fib)) == FTCTL_R_PATH);
}

TEST_CASE("connections that end here", "[flow][ways]")
{
    FakeFib fib;
    SECTION("by lookup")
    {
        fib.add_route("198.51.100.2/32", 1).type = RTN_LOCAL;
        CHECK(refusal(resolve_ways(entry(), fib)) == FTCTL_R_LOCAL);
    }
    SECTION("known before any lookup")
    {
        fib.local.insert(ip("198.51.100.2"));
        CHECK(refusal(resolve_ways(entry(), fib)) == FTCTL_R_LOCAL);
        CHECK(fib.queries.empty());
    }
}

TEST_CASE("what stands in the way", "[flow][ways]")
{
    FakeFib fib;
    SECTION("no route")
    {
        fib.routes.clear();
        CHECK(refusal(resolve_ways(entry(), fib)) == FTCTL_R_NO_ROUTE);
    }
    SECTION("blackhole")
    {
        fib.add_route("198.51.100.2/32", 3).type = RTN_BLACKHOLE;
        CHECK(refusal(resolve_ways(entry(), fib)) == FTCTL_R_NO_ROUTE);
    }
    SECTION("device not attached, named")
    {
        fib.attached_to.erase(3);
        const auto ways = resolve_ways(entry(), fib);
        REQUIRE_FALSE(ways);
        CHECK(ways.error() == Refusal{FTCTL_R_DEVICE, "wan"});
    }
    SECTION("not Ethernet")
    {
        fib.links[3].type = 512; // ARPHRD_PPP
        CHECK(refusal(resolve_ways(entry(), fib)) == FTCTL_R_PATH);
    }
    SECTION("hairpin with redirects")
    {
        fib.add_route("198.51.100.0/24", 2);
        CHECK(refusal(resolve_ways(entry(), fib)) == FTCTL_R_HAIRPIN);
        fib.redirects = false;
        CHECK(refusal(resolve_ways(entry(), fib)) == 0);
    }
    SECTION("the two directions never agree")
    {
        fib.add_link(5, "other");
        fib.add_route("192.0.2.0/24", 5, 3); // seen from wan, the client is behind `other`
        fib.add_route("198.51.100.0/24", 5, 5);
        fib.add_route("192.0.2.0/24", 2, 5);
        const auto ways = resolve_ways(entry(), fib);
        REQUIRE_FALSE(ways);
        CHECK(ways.error() == Refusal{FTCTL_R_PATH, "asymmetric"});
    }
}

TEST_CASE("the input device is found by asking twice", "[flow][ways]")
{
    FakeFib fib;
    fib.add_link(5, "lan2");
    fib.add_route("192.0.2.0/24", 5, 3); // policy routing: replies from wan go to lan2
    const auto ways = resolve_ways(entry(), fib);
    REQUIRE(ways);
    CHECK(ways->reply.oif == 5);
}

TEST_CASE("the MTU of a way", "[flow][ways]")
{
    FakeFib fib;
    fib.links[3].mtu = 1400;
    CHECK(resolve_ways(entry(), fib)->orig.mtu == 1400);
    fib.add_route("198.51.100.0/24", 3).mtu = 1350;
    CHECK(resolve_ways(entry(), fib)->orig.mtu == 1350);
    fib.routes.front().answer.mtu = 9000; // a metric above the device's own
    CHECK(resolve_ways(entry(), fib)->orig.mtu == 1400);
}

TEST_CASE("through a tunnel", "[flow][ways]")
{
    FakeFib fib;
    Link &tun = add_tunnel(fib);
    SECTION("outer addresses, next hop and MTU")
    {
        const auto ways = resolve_ways(entry(), fib);
        REQUIRE(ways);
        CHECK(ways->orig.l3_oif == 9);
        CHECK(ways->orig.oif == 4);
        CHECK(ways->orig.next_hop == ip("203.0.113.2"));
        CHECK(ways->orig.mtu == 1480);
        REQUIRE(ways->orig.tunnel);
        CHECK(ways->orig.tunnel->local == ip("203.0.113.1"));
        fib.links[4].mtu = 1400;
        CHECK(resolve_ways(entry(), fib)->orig.mtu == 1380);
    }
    SECTION("source chosen by the route")
    {
        tun.tunnel->local = {};
        CHECK(resolve_ways(entry(), fib)->orig.tunnel->local == ip("203.0.113.1"));
    }
    SECTION("settings that cannot be reproduced")
    {
        tun.tunnel->fou = true;
        CHECK(refusal(resolve_ways(entry(), fib)) == FTCTL_R_TUNNEL);
        tun.tunnel->fou = false;
        tun.tunnel->remote = {};
        CHECK(refusal(resolve_ways(entry(), fib)) == FTCTL_R_TUNNEL);
    }
    SECTION("down")
    {
        tun.flags = 0;
        CHECK(refusal(resolve_ways(entry(), fib)) == FTCTL_R_PATH);
    }
    SECTION("routed through itself")
    {
        fib.add_route("203.0.113.0/24", 9);
        CHECK(refusal(resolve_ways(entry(), fib)) == FTCTL_R_PATH);
    }
    SECTION("underlay not attached")
    {
        fib.attached_to.erase(4);
        CHECK(resolve_ways(entry(), fib).error() == Refusal{FTCTL_R_DEVICE, "underlay"});
    }
}

TEST_CASE("paths are shared, counted and handed out again late", "[flow][paths]")
{
    PathTable table(4); // indexes 1 to 3
    Way a, b;
    a.oif = 1;
    b.oif = b.neigh_dev = 2;
    a.devices = {1};
    b.devices = {2};
    b.next_hop = ip("192.0.2.9");
    const auto first = table.acquire(a);
    CHECK(table.acquire(a) == first);
    const auto second = table.acquire(b);
    CHECK(second != first);
    CHECK(table.by_device(2) == std::vector<std::uint32_t>{*second});
    CHECK(table.by_neighbour(2, ip("192.0.2.9")).size() == 1);
    CHECK(table.by_neighbour(2, ip("192.0.2.8")).empty());
    table.release(*first);
    CHECK(table.way(*first) != nullptr);
    table.release(*first);
    CHECK(table.way(*first) == nullptr);
    a.oif = 3;
    const auto third = table.acquire(a);
    CHECK(third != first); // the fresh one comes before the one just freed
    a.oif = 4;
    CHECK(table.acquire(a) == first);
    a.oif = 5;
    CHECK_FALSE(table.acquire(a));
}

TEST_CASE("ways through VLAN devices end at the attached one below", "[flow][ways]")
{
    FakeFib fib;
    const auto add_vlan = [&](std::uint32_t index, std::uint32_t lower, VlanTag tag) -> Link & {
        Link &link = fib.add_link(index, "vlan" + std::to_string(index));
        fib.attached_to.erase(index);
        link.lower = lower;
        link.vlan = VlanConfig{tag, false};
        return link;
    };
    Link &outer = add_vlan(20, 3, {ETH_P_8021AD, 100});
    Link &inner = add_vlan(21, 20, {ETH_P_8021Q, 10});
    fib.add_route("198.51.100.0/24", 21);
    const auto refused = [&](const char *why) {
        const auto ways = resolve_ways(entry(), fib);
        REQUIRE_FALSE(ways);
        CHECK(ways.error() == Refusal{FTCTL_R_PATH, why});
    };

    const auto ways = resolve_ways(entry(), fib);
    REQUIRE(ways);
    CHECK(ways->orig.oif == 3);
    CHECK(ways->orig.l3_oif == 21);
    CHECK(ways->orig.neigh_dev == 21);
    CHECK(ways->orig.tags == std::vector<VlanTag>{{ETH_P_8021AD, 100}, {ETH_P_8021Q, 10}});
    CHECK(ways->reply.tags.empty());
    SECTION("an attached VLAN device is where the way ends")
    {
        fib.attached_to.insert(21);
        const auto there = resolve_ways(entry(), fib);
        REQUIRE(there);
        CHECK(there->orig.oif == 21);
        CHECK(there->orig.tags.empty());
    }
    SECTION("nothing below is attached")
    {
        fib.attached_to.erase(3);
        CHECK(resolve_ways(entry(), fib).error() == Refusal{FTCTL_R_DEVICE, "wan"});
    }
    SECTION("three tags")
    {
        add_vlan(22, 21, {ETH_P_8021Q, 5});
        fib.add_route("198.51.100.0/24", 22);
        refused("vlan20: more than two VLAN tags");
    }
    SECTION("a device in between is down")
    {
        outer.flags = 0;
        refused("vlan20: down");
    }
    SECTION("priorities")
    {
        inner.vlan->tag.pcp = 0x50000003;
        CHECK(resolve_ways(entry(), fib)->orig.tags[1].pcp == 0x50000003);
    }
    SECTION("a tag that stays")
    {
        inner.vlan->keeps_tag = true;
        refused("vlan21: reorder_hdr off");
    }
    SECTION("a MAC address of its own")
    {
        inner.mac = *Mac::parse("02:00:00:00:00:99");
        refused("vlan21: its MAC address is not the one that wan takes frames for");
        fib.upper_macs[3] = inner.mac;
        const auto own = resolve_ways(entry(), fib);
        REQUIRE(own);
        CHECK(own->orig.upper_mac);
        CHECK(own->orig.smac_dev == 21);
    }
    SECTION("the device below is in another namespace")
    {
        outer.lower = 0;
        refused("vlan20: its device is in another namespace");
    }
}
