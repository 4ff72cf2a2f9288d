// SPDX-License-Identifier: GPL-2.0-only
// Every encapsulation with every other: tags and PPPoE outside, tunnels inside, NAT in the middle.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

namespace {

struct Link {
    const char *name;
    std::vector<std::uint16_t> vlans;
    std::uint16_t pppoe;
};

const std::vector<Link> kLinks = {
    {"plain", {}, 0},
    {"VLAN", {10}, 0},
    {"QinQ", {100, 20}, 0},
    {"PPPoE", {}, 0x1234},
    {"PPPoE over VLAN", {7}, 0x0a0b},
};

struct Tunnel {
    const char *name;
    bool on;
    bool outer6;
};

const std::vector<Tunnel> kTunnels = {
    {"none", false, false}, {"over IPv4", true, false}, {"over IPv6", true, true}};

/// Calls body(scenario) for the product of both sides' links and tunnels, families, NAT and directions.
template <typename Body>
void each_combination(std::initializer_list<Hook> hooks, std::initializer_list<Nat> nats, Body &&body)
{
    for (const Hook hook : hooks)
        for (const bool v6 : {false, true})
            for (const Link &link_a : kLinks)
                for (const Link &link_b : kLinks)
                    for (const Tunnel &tunnel_a : kTunnels)
                        for (const Tunnel &tunnel_b : kTunnels)
                            for (const Nat nat : nats) {
                                Scenario s;
                                s.hook = hook;
                                s.v6 = v6;
                                s.nat = nat;
                                s.proto = nat == Nat::snat ? kUdp : kTcp;
                                s.vlans_a = link_a.vlans;
                                s.vlans_b = link_b.vlans;
                                s.pppoe_a = link_a.pppoe;
                                s.pppoe_b = link_b.pppoe;
                                s.tunnel_a = tunnel_a.on;
                                s.outer6_a = tunnel_a.outer6;
                                s.tunnel_b = tunnel_b.on;
                                s.outer6_b = tunnel_b.outer6;
                                s.mtu = 1400;
                                body(s);
                            }
}

} // namespace

TEST_CASE("every link with every tunnel and NAT", "[encaps]")
{
    each_combination({Hook::xdp, Hook::tc}, {Nat::none, Nat::snat, Nat::dnat}, [](Scenario s) {
        for (const bool reply : {false, true}) {
            s.reply = reply;
            s.install();
            expect_fast(s, s.packet());
        }
    });
}

TEST_CASE("the encapsulation limit comes and goes", "[encaps]")
{
    for (const Hook hook : {Hook::xdp, Hook::tc})
        for (const bool v6 : {false, true})
            for (const bool reply : {false, true})
                for (const std::uint8_t limit : {0, 4, 255}) {
                    Scenario s;
                    s.hook = hook;
                    s.v6 = v6;
                    s.reply = reply;
                    s.nat = Nat::both;
                    s.tunnel_b = true;
                    s.outer6_b = true;
                    s.tun_limit = limit;
                    s.mtu = 1400;
                    s.install();
                    expect_fast(s, s.packet());
                    if (!reply)
                        continue;
                    // Of an option that is not the limit as the kernel lays it out nothing is known.
                    Bytes frame = s.packet().bytes();
                    for (const std::size_t at : {15 + 40, 16 + 40, 17 + 40, 19 + 40, 20 + 40, 21 + 40}) {
                        Bytes other = frame;
                        other[at] ^= 0x01;
                        expect_pass(s, other, {FTCTL_R_IP_OPTIONS, FTCTL_R_BAD_LENGTH});
                    }
                }
}
