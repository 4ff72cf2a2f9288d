// SPDX-License-Identifier: GPL-2.0-only
#include <algorithm>
#include <array>
#include <cstring>

#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <linux/if_ether.h>

#include "flow/lifetime.h"
#include "flow/plan.h"
#include "flow_fakes.h"

using namespace ftctl;
using namespace ftctl::test;

TEST_CASE("keys and rewrites of both directions", "[flow][plan]")
{
    FakeFib fib;
    const CtEntry e = entry();
    const auto ways = resolve_ways(e, fib);
    REQUIRE(ways);
    const FlowPlan orig = plan_flow(e, *ways, false);
    CHECK(orig.key.src.w[0] == ip("192.0.2.2").v4());
    CHECK(orig.key.dst.w[0] == ip("198.51.100.2").v4());
    CHECK(orig.key.sport == htons(40000));
    CHECK(orig.key.dport == htons(80));
    CHECK(ftctl_iif(&orig.key) == 2);
    CHECK(ftctl_proto(&orig.key) == IPPROTO_TCP);
    CHECK(orig.new_src.w[0] == ip("198.51.100.1").v4());
    CHECK(orig.new_dst.w[0] == ip("198.51.100.2").v4());
    CHECK(orig.new_sport == htons(61000));
    CHECK(orig.new_dport == htons(80));
    CHECK(orig.nat);
    const FlowPlan reply = plan_flow(e, *ways, true);
    CHECK(reply.key.src.w[0] == ip("198.51.100.2").v4());
    CHECK(reply.key.dst.w[0] == ip("198.51.100.1").v4());
    CHECK(ftctl_iif(&reply.key) == 3);
    CHECK(reply.new_src.w[0] == ip("198.51.100.2").v4());
    CHECK(reply.new_dst.w[0] == ip("192.0.2.2").v4());
    CHECK(reply.new_dport == htons(40000));
}

TEST_CASE("the deltas turn an old checksum into the new one", "[flow][plan]")
{
    FakeFib fib;
    const CtEntry e = entry();
    const FlowPlan plan = plan_flow(e, *resolve_ways(e, fib), false);
    // The sums of the old words plus the delta is the sum of the new words, in one's complement.
    const auto sum = [](std::uint32_t src, std::uint32_t dst) {
        return csum_add(csum_add(static_cast<std::uint16_t>(src), static_cast<std::uint16_t>(src >> 16)),
                        csum_add(static_cast<std::uint16_t>(dst), static_cast<std::uint16_t>(dst >> 16)));
    };
    CHECK(csum_add(sum(plan.key.src.w[0], plan.key.dst.w[0]), plan.addr_delta) ==
          sum(plan.new_src.w[0], plan.new_dst.w[0]));
    CHECK(csum_add(csum_add(plan.key.sport, plan.key.dport), plan.port_delta) ==
          csum_add(plan.new_sport, plan.new_dport));
    CHECK(csum_delta16(0x1234, 0x1234) == 0xffff);
}

TEST_CASE("without NAT nothing is rewritten", "[flow][plan]")
{
    FakeFib fib;
    CtEntry e = entry();
    e.reply = e.orig.reversed();
    CHECK_FALSE(plan_flow(e, *resolve_ways(e, fib), false).nat);
    CHECK_FALSE(plan_flow(e, *resolve_ways(e, fib), true).nat);
}

TEST_CASE("a direction that comes in by a tunnel has the outer tuple in its key", "[flow][plan]")
{
    FakeFib fib;
    Ways ways = *resolve_ways(entry(), fib);
    TunnelConfig tunnel;
    tunnel.local = ip("203.0.113.1");
    tunnel.remote = ip("203.0.113.2");
    ways.orig.tunnel = tunnel;
    CHECK(plan_flow(entry(), ways, false).key.tunnel == FTCTL_TUNNEL_NONE);
    const FlowPlan reply = plan_flow(entry(), ways, true);
    CHECK(reply.key.tunnel == FTCTL_TUNNEL_IPV4);
    CHECK(reply.key.outer_src.w[0] == tunnel.remote.v4());
    CHECK(reply.key.outer_dst.w[0] == tunnel.local.v4());
}

TEST_CASE("path bodies", "[flow][plan]")
{
    Way way;
    way.oif = 3;
    way.mtu = 1400;
    const Mac mine = *Mac::parse("02:00:00:00:00:01"), theirs = *Mac::parse("02:00:00:00:00:02");
    ftctl_path_body body = plan_path(way, mine, &theirs, {true, false, 1500});
    CHECK(body.flags == FTCTL_P_VALID);
    CHECK(body.l2_len == 14);
    CHECK(body.l2[5] == 2);  // destination
    CHECK(body.l2[11] == 1); // source
    CHECK(body.l2[12] == 0x08);
    CHECK(body.l2[13] == 0x00);
    CHECK(body.family == 4);
    CHECK(body.mtu == 1400);
    CHECK(plan_path(way, mine, nullptr, {true, false, 1500}).reason == FTCTL_R_NO_NEIGH);
    CHECK((plan_path(way, mine, nullptr, {true, false, 1500}).flags & FTCTL_P_VALID) == 0);
    CHECK(plan_path(way, mine, &theirs, {false, true, 1500}).reason == FTCTL_R_PATH_DOWN);

    TunnelConfig tunnel;
    tunnel.local = ip("203.0.113.1");
    tunnel.remote = ip("203.0.113.2");
    tunnel.tos = 0xb8;
    tunnel.ttl = 64;
    way.tunnel = tunnel;
    body = plan_path(way, mine, &theirs, {true, true, 1500});
    CHECK(body.flags == (FTCTL_P_VALID | FTCTL_P_XDP | FTCTL_P_DF));
    CHECK(body.tunnel == FTCTL_TUNNEL_IPV4);
    CHECK(body.outer[9] == IPPROTO_IPIP);
    CHECK(std::memcmp(body.outer + 12, tunnel.local.bytes.data(), 4) == 0);
    CHECK(std::memcmp(body.outer + 16, tunnel.remote.bytes.data(), 4) == 0);
    CHECK(body.tun_tos == 0xb8);
    CHECK(body.tun_ttl == 64);
    way.tunnel->tos = 1;
    way.tunnel->pmtudisc = false;
    body = plan_path(way, mine, &theirs, {true, false, 1500});
    CHECK(body.flags == (FTCTL_P_VALID | FTCTL_P_TOS_INHERIT));
    CHECK(body.tun_tos == 0);
}

TEST_CASE("tags stand in the key and before the packet, outermost first", "[flow][plan]")
{
    FakeFib fib;
    Ways ways = *resolve_ways(entry(), fib);
    ways.orig.tags = {{ETH_P_8021AD, 100}, {ETH_P_8021Q, 20}};
    ways.orig.mtu = 1500;
    const FlowPlan reply = plan_flow(entry(), ways, true); // comes in where the original direction leaves
    CHECK(reply.key.vlan[0].proto == htons(ETH_P_8021AD));
    CHECK(reply.key.vlan[0].vid == htons(100));
    CHECK(reply.key.vlan[1].vid == htons(20));
    CHECK(plan_flow(entry(), ways, false).key.vlan[0].proto == 0);
    const Mac mac = *Mac::parse("02:00:00:00:00:01");
    const ftctl_path_body body = plan_path(ways.orig, mac, &mac, {true, false, 1500});
    CHECK(body.l2_len == 22);
    CHECK(body.vlans == 2);
    const std::array<std::uint8_t, 10> want = {0x88, 0xa8, 0, 100, 0x81, 0, 0, 20, 0x08, 0};
    CHECK(std::equal(want.begin(), want.end(), body.l2 + 12));
    CHECK(body.mtu == 1500);
    CHECK(plan_path(ways.orig, mac, &mac, {true, true, 1500}).mtu == 1496); // what the devmap lets through
}

TEST_CASE("the trickle is often enough for short timeouts", "[flow][lifetime]")
{
    CHECK(trickle_seconds(10, 432000) == 10);
    CHECK(trickle_seconds(10, 30) == 10);
    CHECK(trickle_seconds(10, 10) == 3);
    CHECK(trickle_seconds(10, 1) == 1);
    CHECK(trickle_seconds(10, 0) == 10);
    CHECK(trickle_seconds(0, 10) == 0);
    CHECK(trickle_seconds(1000, 432000) == 255);
}

TEST_CASE("an idle connection expires when it would have without us", "[flow][lifetime]")
{
    // timeout 120; conntrack saw a packet 10 s ago (110 left), the last one there was 2 s ago
    CHECK(corrected_timeout({2, 10, 110, 120}) == 118);
    // the full timeout is not known: the same by difference
    CHECK(corrected_timeout({2, 10, 110, 0}) == 118);
    // conntrack saw the last packet
    CHECK_FALSE(corrected_timeout({10, 10, 110, 120}));
    CHECK_FALSE(corrected_timeout({10, 10.5, 110, 120}));
    // never beyond what is left of the full timeout
    CHECK(corrected_timeout({30, 40, 85, 120}) == 90);
    // never shorter than it is
    CHECK_FALSE(corrected_timeout({100, 110, 110, 120}));
}
