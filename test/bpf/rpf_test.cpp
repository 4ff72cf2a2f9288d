// SPDX-License-Identifier: GPL-2.0-only
// The reverse path filter, against routes of the test's own. Sockets that skip it: test/net.
#include <catch2/catch.hpp>

#include <arpa/inet.h>

#include <fmt/format.h>

#include "routes.h"
#include "scenario.h"

using namespace ftctl::test;

namespace {

void filter(const Scenario &s, std::uint32_t mode)
{
    set_rpf(s.in_device(), mode);
}

/// A packet of the scenario that no flow knows; its source is on the way back to the device it comes in by.
Packet unknown(const Scenario &s)
{
    Packet p = s.packet();
    if (s.proto == kTcp)
        p.tcp().sport = p.tcp().dport = 4242;
    else
        p.udp().sport = p.udp().dport = 4242;
    return p;
}

Packet from(const Scenario &s, const char *src)
{
    Packet p = unknown(s);
    p.ip.src = ip4(src);
    if (p.ip.v6)
        p.ip.v6->src = addr6(p.ip.src);
    return p;
}

constexpr const char *kClient = "192.0.2.77", *kServer = "198.51.100.77", *kNowhere = "172.16.0.1";
constexpr std::uint32_t kStrict = FTCTL_RPF_STRICT, kLoose = FTCTL_RPF_LOOSE;

/// Without tunnel, at both hooks, both families, both directions.
std::vector<Scenario> plain()
{
    return scenarios({kTcp, kUdp}, {Nat::none}, false);
}

/// What takes the way back to kClient, and what gives it back.
using Change = std::pair<const char *, const char *>;

/// Changes a route or so; where that takes seconds (an emulated machine), the daemon's beat goes on.
void change(const std::string &words)
{
    ip(words);
    ftctl_config config = Rig::get().config();
    config.heartbeat_ns = now_ns();
    Rig::get().set_config(config);
}

/// Found a few times, then not any more, then found again: what was found before must not count.
void expect_noticed(const Scenario &s, const Change &what)
{
    const Packet packet = from(s, kClient);
    INFO(what.first);
    for (int i = 0; i < 3; ++i)
        expect_pass(s, packet, {FTCTL_R_NO_FLOW});
    change(what.first);
    expect_pass(s, packet, {FTCTL_R_RPF});
    expect_pass(s, packet, {FTCTL_R_RPF});
    change(what.second);
    expect_pass(s, packet, {FTCTL_R_NO_FLOW});
}

} // namespace

TEST_CASE("strict: the route back uses this device; loose: there is one", "[rpf]")
{
    const Routes routes;
    for (const Scenario &s : plain()) {
        s.install();
        const char *right = s.reply ? kServer : kClient, *wrong = s.reply ? kClient : kServer;
        filter(s, kStrict);
        expect_pass(s, from(s, right), {FTCTL_R_NO_FLOW});
        expect_pass(s, from(s, wrong), {FTCTL_R_RPF});
        expect_pass(s, from(s, kNowhere), {FTCTL_R_RPF});
        filter(s, kLoose);
        expect_pass(s, from(s, right), {FTCTL_R_NO_FLOW});
        expect_pass(s, from(s, wrong), {FTCTL_R_NO_FLOW});
        expect_pass(s, from(s, kNowhere), {FTCTL_R_RPF});
        filter(s, kStrict | FTCTL_RPF_LOG);
        expect_pass(s, from(s, right), {FTCTL_R_NO_FLOW});
        expect_pass(s, from(s, wrong), {FTCTL_R_RPF_LOG});
        filter(s, 0);
        expect_pass(s, from(s, wrong), {FTCTL_R_NO_FLOW});
    }
}

TEST_CASE("a change of routes, rules or addresses counts with the next packet", "[rpf]")
{
    // IPv6 loses its addresses then
    static constexpr Change kLink = {
        "link set bt0 down", "link set bt0 up && ip -6 addr add 2001:db8:0:1::c000:201/120 dev bt0 nodad"};
    static constexpr Change kChanges[] = {
        {"route add unreachable 192.0.2.77", "route del unreachable 192.0.2.77"},
        {"route add 192.0.2.64/26 dev bt1", "route del 192.0.2.64/26 dev bt1"},
        {"addr del 192.0.2.1/24 dev bt0", "addr add 192.0.2.1/24 dev bt0"},
        kLink,
    };
    static constexpr Change kChanges6[] = {
        {"-6 route add unreachable 2001:db8:0:1::c000:24d",
         "-6 route del unreachable 2001:db8:0:1::c000:24d"},
        {"-6 route add 2001:db8:0:1::c000:240/122 dev bt1",
         "-6 route del 2001:db8:0:1::c000:240/122 dev bt1"},
        {"-6 addr del 2001:db8:0:1::c000:201/120 dev bt0",
         "-6 addr add 2001:db8:0:1::c000:201/120 dev bt0 nodad"},
        kLink,
    };
    const Routes routes;
    for (const Scenario &s : plain()) {
        if (s.reply || s.proto != kTcp) // an ip command takes long on an emulated machine
            continue;
        s.install();
        filter(s, kStrict);
        if (s.v6) {
            for (const Change &what : kChanges6)
                expect_noticed(s, what);
            change("-6 route add 2001:db8:0:1::c000:24d dev bt0");
            expect_noticed(s, {"-6 route replace 2001:db8:0:1::c000:24d dev bt1",
                               "-6 route replace 2001:db8:0:1::c000:24d dev bt0"});
            change("-6 route add 2001:db8:0:1::c000:240/122 dev bt1");
            expect_noticed(
                s, {"-6 route del 2001:db8:0:1::c000:24d", "-6 route add 2001:db8:0:1::c000:24d dev bt0"});
            change("-6 route del 2001:db8:0:1::c000:240/122 dev bt1");
            change("-6 route del 2001:db8:0:1::c000:24d");
        } else {
            for (const Change &what : kChanges)
                expect_noticed(s, what);
        }
        // what was found for one packet counts for no other
        expect_pass(s, from(s, kClient), {FTCTL_R_NO_FLOW});
        expect_pass(s, from(s, kServer), {FTCTL_R_RPF});
    }
    // Last: once there has been a rule of IPv6, nothing is kept in that family.
    for (const Scenario &s : plain()) {
        if (s.reply || s.proto != kTcp)
            continue;
        s.install();
        filter(s, kStrict);
        const std::string to = s.v6 ? " to 2001:db8:0:1::c000:24d " : " to 192.0.2.77 ";
        const std::string add = (s.v6 ? "-6 rule add" : "rule add") + to,
                          del = (s.v6 ? "-6 rule del" : "rule del") + to;
        expect_noticed(s, {(add + "prohibit").c_str(), (del + "prohibit").c_str()});
        Packet packet = from(s, kClient);
        change(add + "tos 0x10 prohibit");
        expect_pass(s, packet, {FTCTL_R_NO_FLOW});
        packet.ip.tos = 0x10;
        expect_pass(s, packet, {FTCTL_R_RPF});
        change(del + "tos 0x10 prohibit");
    }
}

TEST_CASE("a packet of a flow needs no route back", "[rpf]")
{
    const Routes routes;
    for (const Scenario &s : scenarios({kTcp, kUdp}, {Nat::none, Nat::both}, true)) {
        s.install();
        filter(s, kStrict);
        expect_fast(s, s.packet());
        ip("route replace unreachable 192.0.2.2");
        ip("route replace unreachable 198.51.100.2");
        expect_fast(s, s.packet());
        ip("route del unreachable 192.0.2.2");
        ip("route del unreachable 198.51.100.2");
        s.change_flow([](ftctl_flow &f) { f.state = FTCTL_FLOW_PENDING; });
        expect_pass(s, s.packet(), {FTCTL_R_PENDING});
    }
}

TEST_CASE("whatever else makes a packet the stack's, its source is judged", "[rpf]")
{
    const Routes routes;
    for (const Scenario &s : plain()) {
        s.install();
        filter(s, kStrict);
        const char *wrong = s.reply ? kClient : kServer;
        Packet in = from(s, wrong);
        in.ip.ttl = 1;
        expect_pass(s, in, {FTCTL_R_RPF});
        in = from(s, wrong);
        in.dmac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
        expect_pass(s, in, {FTCTL_R_RPF});
        in = from(s, wrong);
        in.ip.proto = 99;
        in.l4 = std::monostate{};
        expect_pass(s, in, {FTCTL_R_RPF});
        if (s.proto == kTcp) {
            in = from(s, wrong);
            in.tcp().flags = kSyn;
            expect_pass(s, in, {FTCTL_R_RPF});
        }
        if (!s.v6) {
            in = from(s, wrong);
            in.ip.frag = 5;
            expect_pass(s, in, {FTCTL_R_RPF});
            in = from(s, wrong);
            in.ip.options = Bytes(4, 1);
            expect_pass(s, in, {FTCTL_R_RPF});
            // ip_rcv() throws these away before anything looks at the source
            in = from(s, wrong);
            in.ip.check_error = 1;
            expect_pass(s, in, {FTCTL_R_BAD_CHECKSUM});
        }
        in = from(s, wrong);
        in.dmac = device_mac(kDevC);
        expect_pass(s, in, {FTCTL_R_OTHER_HOST});
        // the daemon re-reads conntrack: routes are known all the same
        ftctl_config config = Rig::get().config();
        config.disabled = 1;
        Rig::get().set_config(config);
        expect_pass(s, from(s, wrong), {FTCTL_R_RPF});
        config.heartbeat_ns -= 60 * FTCTL_NSEC_PER_SEC;
        Rig::get().set_config(config);
        expect_pass(s, from(s, wrong), {FTCTL_R_HEARTBEAT});
    }
}

TEST_CASE("routes that lead nowhere, and addresses of this machine, are missing", "[rpf]")
{
    const Routes routes;
    for (const Scenario &s : plain()) {
        if (s.v6)
            continue;
        s.install();
        for (const std::uint32_t mode : {kStrict, kLoose}) {
            filter(s, mode);
            for (const char *src :
                 {"10.1.0.1", "10.2.0.1", "10.3.0.1", "192.0.2.1", "198.51.100.1", "127.0.0.1"})
                expect_pass(s, from(s, src), {FTCTL_R_RPF});
        }
    }
}

TEST_CASE("a broadcast address is a source at its own device", "[rpf]")
{
    const Routes routes;
    for (const Scenario &s : plain()) {
        if (s.v6)
            continue;
        s.install();
        filter(s, kStrict);
        const char *own = s.reply ? "198.51.100.255" : "192.0.2.255";
        expect_pass(s, from(s, own), {FTCTL_R_RPF});
        const ftctl_broadcast key{Rig::get().ifindex(s.in_device()), htonl(ip4(own))};
        Rig::get().set_broadcast(key, true);
        expect_pass(s, from(s, own), {FTCTL_R_NO_FLOW});
        expect_pass(s, from(s, s.reply ? "192.0.2.255" : "198.51.100.255"), {FTCTL_R_RPF});
        Rig::get().set_broadcast(key, false);
    }
}

TEST_CASE("addresses that nft does not look up", "[rpf]")
{
    const Routes routes;
    for (const Scenario &s : plain()) {
        s.install();
        filter(s, kStrict);
        Packet in = from(s, "0.0.0.0");
        if (!s.v6) {
            for (const char *dst : {"255.255.255.255", "224.0.0.1", "224.0.0.255"}) {
                in.ip.dst = ip4(dst);
                expect_pass(s, in, {FTCTL_R_NO_FLOW});
            }
            in.ip.dst = ip4("224.0.1.1");
            expect_pass(s, in, {FTCTL_R_RPF});
            in.ip.src = ip4("0.1.2.3"); // an address like others since 5.3
            in.ip.dst = ip4("255.255.255.255");
            expect_pass(s, in, {FTCTL_R_RPF});
            // a source may be looked up although the destination is no address of a machine
            in = from(s, s.reply ? kServer : kClient);
            in.ip.dst = ip4("239.1.1.1");
            expect_pass(s, in, {FTCTL_R_NO_FLOW});
            continue;
        }
        in.ip.v6->src = {};
        in.ip.v6->dst = {0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1};
        expect_pass(s, in, {FTCTL_R_RPF});
        in.ip.proto = 58;
        in.l4 = std::monostate{};
        expect_pass(s, in, {FTCTL_R_PROTOCOL});
        in.ip.v6->dst = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
        expect_pass(s, in, {FTCTL_R_PROTOCOL});
        in.ip.v6->dst[0] = 0x20;
        expect_pass(s, in, {FTCTL_R_RPF});
        in = from(s, s.reply ? kServer : kClient);
        in.ip.v6->dst = {0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
        expect_pass(s, in, {FTCTL_R_NO_FLOW});
        in.ip.v6->dst = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
        expect_pass(s, in, {FTCTL_R_NO_FLOW});
    }
}

TEST_CASE("where the kernel would answer otherwise nothing is dropped", "[rpf]")
{
    const Routes routes;
    for (const Scenario &s : plain()) {
        s.install();
        filter(s, kStrict);
        const char *wrong = s.reply ? kClient : kServer;
        expect_pass(s, from(s, wrong), {FTCTL_R_RPF});
        Packet in = from(s, wrong);
        in.tag(0x8100, 7);
        expect_pass(s, in, {FTCTL_R_RPF_UNSURE});
        if (s.v6) {
            in = from(s, wrong);
            in.ip.v6->src = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9};
            expect_pass(s, in, {FTCTL_R_RPF_UNSURE});
        }
        filter(s, kStrict | FTCTL_RPF_UNSURE);
        expect_pass(s, from(s, wrong), {FTCTL_R_RPF_UNSURE});
        filter(s, kStrict);
        sysctl(s.v6 ? "ipv6/conf/lo/forwarding" : "ipv4/conf/lo/forwarding", 0);
        expect_pass(s, from(s, wrong), {FTCTL_R_RPF_UNSURE});
        sysctl(s.v6 ? "ipv6/conf/lo/forwarding" : "ipv4/conf/lo/forwarding", 1);
        expect_pass(s, from(s, wrong), {FTCTL_R_RPF});
    }
}

TEST_CASE("several next hops: the one that came out is not the only one", "[rpf]")
{
    const Routes routes;
    ip("route add 172.20.0.0/16 nexthop via 192.0.2.9 nexthop via 198.51.100.9");
    for (const Scenario &s : plain()) {
        if (s.v6)
            continue;
        s.install();
        filter(s, kStrict);
        ftctl_config config = Rig::get().config();
        config.multipath = FTCTL_MULTIPATH_4;
        Rig::get().set_config(config);
        unsigned found = 0, unsure = 0;
        for (unsigned i = 0; i < 32; i++) {
            const Outcome out = observe(s, from(s, fmt::format("172.20.1.{}", i).c_str()).bytes());
            found += out.reason == FTCTL_R_NO_FLOW ? 1 : 0;
            unsure += out.reason == FTCTL_R_RPF_UNSURE ? 1 : 0;
        }
        CHECK(found + unsure == 32);
        CHECK(unsure > 0);
        // no route by this device: that is for sure
        expect_pass(s, from(s, s.reply ? kClient : kServer), {FTCTL_R_RPF});
    }
}
