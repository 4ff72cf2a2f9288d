// SPDX-License-Identifier: GPL-2.0-only
// Bridges and PPPoE below the device that IP leaves by.
#include <catch2/catch.hpp>

#include <linux/if_ether.h>

#include "flow/forward_path.h"
#include "flow/plan.h"
#include "flow/pppoe_guess.h"
#include "flow_fakes.h"

using namespace ftctl;
using namespace ftctl::test;

namespace {

const Mac kStation = *Mac::parse("02:00:00:00:0a:01");
const Mac kBridgeMac = *Mac::parse("02:00:00:00:0b:00");
const IpAddr kHop = *IpAddr::parse("192.0.2.2");

/// br0 (10) with the ports p1 (11) and p2 (12), attached; the station is behind p1.
struct Bridged : FakeFib {
    Bridged()
    {
        Link &bridge = add_link(10, "br0");
        attached_to.erase(10);
        bridge.kind = "bridge";
        bridge.bridge = BridgeConfig{false, ETH_P_8021Q, false};
        bridge.mac = kBridgeMac;
        for (const std::uint32_t index : {11U, 12U}) {
            Link &port = add_link(index, index == 11 ? "p1" : "p2");
            port.master = 10;
            port.port = BridgePort{true, false, false};
            port.mac.bytes = {2, 0, 0, 0, 0, static_cast<std::uint8_t>(index)};
            upper_macs[index] = kBridgeMac;
        }
        neighbours[{10, kHop}] = kStation;
        stations[{10, kStation, 0}] = 11;
    }
    /// The bridge filters; the station is known in this VLAN only.
    void filter(std::uint16_t vid, BridgeVlan own, BridgeVlan at_port)
    {
        links[10].bridge->vlan_filtering = true;
        stations.clear();
        stations[{10, kStation, vid}] = 11;
        vlans[10] = {own};
        vlans[11] = {at_port};
    }
    Link &add_vlan(std::uint32_t index, std::uint32_t lower, VlanTag tag)
    {
        Link &link = add_link(index, links[lower].name + "." + std::to_string(tag.vid));
        attached_to.erase(index);
        link.lower = lower;
        link.mac = links[lower].mac;
        link.vlan = VlanConfig{tag, false};
        return link;
    }
    Decision<ForwardPath> path(std::uint32_t device = 10) { return forward_path(links[device], kHop, *this); }
    std::string refusal(std::uint32_t device = 10)
    {
        const auto found = path(device);
        REQUIRE_FALSE(found);
        return found.error().detail;
    }
};

} // namespace

TEST_CASE("a path over a bridge ends at the port that the FDB names", "[flow][path]")
{
    Bridged fib;
    auto path = fib.path();
    REQUIRE(path);
    CHECK(path->oif == 11);
    CHECK(path->smac_dev == 10);
    CHECK(path->upper_mac);
    CHECK(path->tags.empty());
    CHECK(path->station == kStation);
    CHECK(path->devices == std::vector<std::uint32_t>{10, 11});

    fib.stations[{10, kStation, 0}] = 12; // it has moved
    CHECK(fib.path()->oif == 12);
    fib.attached_to.erase(12);
    CHECK(fib.path().error() == Refusal{FTCTL_R_DEVICE, "p2"});
    fib.stations.clear();
    CHECK(fib.refusal() == "br0: no port is known for 02:00:00:00:0a:01");
    fib.neighbours.clear();
    CHECK(fib.refusal() == "br0: the next hop is not resolved");
}

TEST_CASE("a bridge's port has to be one that the slow path would use", "[flow][path]")
{
    Bridged fib;
    Link &port = fib.links[11];
    SECTION("blocked by the spanning tree")
    {
        port.port->forwarding = false;
        CHECK(fib.refusal() == "p1: not in forwarding state");
    }
    SECTION("locked")
    {
        port.port->locked = true;
        CHECK(fib.refusal() == "p1: a locked port");
    }
    SECTION("VLANs to tunnels")
    {
        port.port->vlan_tunnel = true;
        CHECK(fib.refusal() == "p1: maps VLANs to tunnels");
    }
    SECTION("a spanning tree per VLAN")
    {
        fib.links[10].bridge->mst = true;
        CHECK(fib.refusal() == "br0: a spanning tree per VLAN");
    }
    SECTION("not a port any more")
    {
        port.master = 0;
        CHECK(fib.refusal() == "br0: no port is known for 02:00:00:00:0a:01");
    }
    SECTION("the bridge is down")
    {
        fib.links[10].flags = 0;
        CHECK(fib.refusal() == "br0: down");
    }
    SECTION("another device's address is the one that the port takes frames for")
    {
        fib.upper_macs.clear();
        CHECK(fib.refusal() == "br0: its MAC address is not the one that p1 takes frames for");
    }
}

TEST_CASE("tags at the ports of a bridge that filters VLANs", "[flow][path]")
{
    Bridged fib;
    SECTION("PVID on both sides: no tag")
    {
        fib.filter(1, {1, true, true}, {1, true, true});
        CHECK(fib.path()->tags.empty());
    }
    SECTION("the bridge's PVID leaves tagged")
    {
        fib.filter(7, {7, true, true}, {7, false, false});
        CHECK(fib.path()->tags == std::vector<VlanTag>{{ETH_P_8021Q, 7}});
    }
    SECTION("a VLAN device above: popped at an access port, kept at a trunk")
    {
        fib.add_vlan(20, 10, {ETH_P_8021Q, 10, 0x33333333});
        fib.neighbours[{20, kHop}] = kStation;
        fib.filter(10, {10, false, false}, {10, true, true});
        auto path = fib.path(20);
        REQUIRE(path);
        CHECK(path->tags.empty());
        CHECK(path->devices == std::vector<std::uint32_t>{20, 10, 11});
        fib.vlans[11] = {{10, false, false}};
        CHECK(fib.path(20)->tags == std::vector<VlanTag>{{ETH_P_8021Q, 10, 0x33333333}});
        fib.vlans[10] = {{10, false, true}}; // would hand up untagged
        CHECK(fib.refusal(20) == "br0: VLAN 10 is not its own");
        fib.vlans[10] = {{11, false, false}};
        CHECK(fib.refusal(20) == "br0: VLAN 10 is not its own");
    }
    SECTION("a service tag above a bridge of customer tags")
    {
        fib.add_vlan(20, 10, {ETH_P_8021AD, 10});
        fib.neighbours[{20, kHop}] = kStation;
        fib.filter(10, {10, false, false}, {10, false, false});
        CHECK(fib.refusal(20) == "br0: VLAN 10 is not its own");
    }
    SECTION("the port is not in the VLAN")
    {
        fib.filter(1, {1, true, true}, {2, true, true});
        CHECK(fib.refusal() == "p1: not in VLAN 1");
    }
    SECTION("frames leave and come in differently")
    {
        fib.filter(1, {1, true, true}, {1, false, true});
        CHECK(fib.refusal() == "p1: VLAN 1 leaves untagged, but is not its PVID");
    }
    SECTION("the bridge has no VLAN of its own")
    {
        fib.filter(1, {1, false, true}, {1, true, true});
        CHECK(fib.refusal() == "br0: no untagged PVID of its own");
    }
    SECTION("without filtering the tag passes")
    {
        fib.add_vlan(20, 10, {ETH_P_8021Q, 10});
        fib.neighbours[{20, kHop}] = kStation;
        CHECK(fib.path(20)->tags == std::vector<VlanTag>{{ETH_P_8021Q, 10}});
    }
}

TEST_CASE("a port that is a VLAN device", "[flow][path]")
{
    Bridged fib;
    Link &low = fib.add_link(30, "eth0");
    low.mac = *Mac::parse("02:00:00:00:00:30");
    Link &port = fib.links[11];
    fib.attached_to.erase(11);
    port.lower = 30;
    port.vlan = VlanConfig{{ETH_P_8021Q, 5}, false};
    fib.upper_macs[30] = kBridgeMac;
    const auto path = fib.path();
    REQUIRE(path);
    CHECK(path->oif == 30);
    CHECK(path->tags == std::vector<VlanTag>{{ETH_P_8021Q, 5}});
    CHECK(path->devices == std::vector<std::uint32_t>{10, 11, 30});
}

TEST_CASE("PPPoE, over VLANs and over a bridge", "[flow][path]")
{
    Bridged fib;
    const Mac peer = *Mac::parse("02:00:00:00:0c:01");
    Link &ppp = fib.add_link(40, "ppp0");
    fib.attached_to.erase(40);
    ppp.kind = "ppp";
    ppp.type = 512; // ARPHRD_PPP
    ppp.mtu = 1492;
    SECTION("no session")
    {
        CHECK(fib.refusal(40) == "ppp0: no PPPoE session known to be its own");
    }
    SECTION("over a VLAN")
    {
        fib.add_vlan(20, 3, {ETH_P_8021Q, 7});
        fib.links[20].name = "wan.7";
        fib.sessions[40] = {0x1234, peer, "wan.7"};
        const auto path = fib.path(40);
        REQUIRE(path);
        CHECK(path->oif == 3);
        CHECK(path->smac_dev == 20);
        CHECK(path->pppoe == PppoeSession{0x1234, peer, "wan.7"});
        CHECK(path->devices == std::vector<std::uint32_t>{40, 20, 3});

        fib.add_route("198.51.100.0/24", 40);
        const auto ways = resolve_ways(entry(), fib);
        REQUIRE(ways);
        CHECK(ways->orig.mtu == 1492);
        const FlowPlan back = plan_flow(entry(), *ways, true);
        CHECK(back.key.pppoe == htons(0x1234));
        CHECK(std::equal(peer.bytes.begin(), peer.bytes.end(), back.key.peer));
        CHECK(back.key.vlan[0].vid == htons(7));
        CHECK(plan_flow(entry(), *ways, false).key.pppoe == 0);

        const Mac mine = *Mac::parse("02:00:00:00:00:03");
        const ftctl_path_body body = plan_path(ways->orig, mine, &peer, {true, false, 1500});
        const std::uint8_t expected[] = {2,    0, 0, 0,    0xc,  1,    2, 0,    0,    0, 0, 3,    0x81,
                                         0x00, 0, 7, 0x88, 0x64, 0x11, 0, 0x12, 0x34, 0, 0, 0x00, 0x21};
        REQUIRE(body.l2_len == sizeof(expected));
        CHECK(std::equal(std::begin(expected), std::end(expected), body.l2));
        CHECK(body.pppoe == htons(0x1234));
        CHECK(body.vlans == 1);
    }
    SECTION("over a bridge: the concentrator's port")
    {
        fib.sessions[40] = {1, peer, "br0"};
        CHECK(fib.refusal(40) == "br0: no port is known for 02:00:00:00:0c:01");
        fib.stations[{10, peer, 0}] = 12;
        const auto path = fib.path(40);
        REQUIRE(path);
        CHECK(path->oif == 12);
        CHECK(path->smac_dev == 10);
        CHECK(path->station == peer);
    }
}

TEST_CASE("priorities of tags, by TOS where ip_forward() sets them", "[flow][plan]")
{
    Way way;
    way.tags = {{ETH_P_8021AD, 100, 0x00000005}, {ETH_P_8021Q, 10, 0x06040201}};
    const Mac mac;
    ftctl_path_body body = plan_path(way, mac, &mac, {true, false, 1500, true});
    CHECK(body.pcp[0] == 0x00000005);
    CHECK(body.pcp[1] == 0x06040201);
    body = plan_path(way, mac, &mac, {true, false, 1500, false}); // what it came with: none
    CHECK(body.pcp[0] == 0x55555555);
    CHECK(body.pcp[1] == 0x11111111);
    way.family = AF_INET6;
    body = plan_path(way, mac, &mac, {true, false, 1500, true});
    CHECK(body.pcp[1] == 0x11111111);
}

TEST_CASE("which session is whose is found out", "[flow][pppoe]")
{
    PppoeGuess guess;
    CHECK_FALSE(guess.session(40));
    const PppoeSession a{1, kStation, "eth1"};
    const PppoeSession b{2, kStation, "eth1"};
    CHECK(guess.update({a}));
    CHECK_FALSE(guess.update({a}));
    CHECK(guess.session(40) == a);
    CHECK_FALSE(guess.next(40)); // there is no other
    CHECK_FALSE(guess.ambiguous());

    CHECK(guess.update({a, b}));
    CHECK(guess.ambiguous());
    CHECK(guess.session(41) == a);
    CHECK(guess.next(41));
    CHECK(guess.session(41) == b);
    guess.confirm(41, b);
    CHECK_FALSE(guess.next(41));
    CHECK(guess.session(41) == b);
    CHECK(guess.session(40) == a); // the only one left
    CHECK_FALSE(guess.next(40));

    guess.update({a, {3, kStation, "eth1"}}); // reconnected: another session
    CHECK(guess.session(41)->id != 2);
    guess.forget(41);
    std::vector<PppoeSession> many;
    for (std::uint16_t id = 1; id <= PppoeGuess::kMaxCandidates + 1; id++)
        many.push_back({id, kStation, "eth1"});
    guess.update(many);
    CHECK_FALSE(guess.session(40));
}

TEST_CASE("sessions as /proc/net/pppoe has them", "[netlink]")
{
    const auto found = parse_pppoe("Id       Address              Device\n"
                                   "00123400 02:00:00:00:0A:01     eth1\n" // more than 16 bits: no session
                                   "00003412 02:00:00:00:0a:01     eth1\n"
                                   "00000100 02:00:00:00:0c:01     eth0.7\n"
                                   "00000000 02:00:00:00:0c:01     eth0\n"
                                   "00000200 nonsense     eth0\n"
                                   "00000200\n");
    CHECK(found == std::vector<PppoeSession>{{1, *Mac::parse("02:00:00:00:0c:01"), "eth0.7"},
                                             {0x1234, kStation, "eth1"}});
    CHECK(parse_pppoe("").empty());
}
