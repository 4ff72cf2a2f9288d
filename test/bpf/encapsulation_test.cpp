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

TEST_CASE("a flow has exactly its own tags and session", "[encaps]")
{
    each_combination({Hook::xdp, Hook::tc}, {Nat::none}, [](const Scenario &s) {
        if (s.in_vlans().empty() && s.in_pppoe() == 0)
            return;
        s.install();
        const Packet own = s.packet();
        const auto other = [&](const char *what, const auto &change,
                               std::initializer_list<unsigned> reasons) {
            INFO(what);
            Packet in = own;
            change(in);
            expect_pass(s, in, reasons);
        };
        for (std::size_t at = 0; at < own.tags.size(); at += 4) {
            other("another VID", [at](Packet &p) { p.tags[at + 3] ^= 1; }, {FTCTL_R_NO_FLOW});
            other("a VID with another high bit", [at](Packet &p) { p.tags[at + 2] ^= 8; }, {FTCTL_R_NO_FLOW});
            other("the other TPID",
                  [at](Packet &p) {
                      const bool customer = p.tags[at] == 0x81;
                      p.tags[at] = customer ? 0x88 : 0x81;
                      p.tags[at + 1] = customer ? 0xa8 : 0x00;
                  },
                  {FTCTL_R_NO_FLOW});
        }
        if (own.tags.size() == 8)
            other("the tags in the other order",
                  [](Packet &p) {
                      p.tags = {p.tags[4], p.tags[5], p.tags[6], p.tags[7],
                                p.tags[0], p.tags[1], p.tags[2], p.tags[3]};
                  },
                  {FTCTL_R_NO_FLOW});
        if (!own.tags.empty())
            other("one tag less", [](Packet &p) { p.tags.resize(p.tags.size() - 4); }, {FTCTL_R_NO_FLOW});
        other("one tag more", [](Packet &p) { p.tag(0x8100, 5); }, {FTCTL_R_NO_FLOW, FTCTL_R_VLAN});
        if (own.pppoe) {
            other("another session", [](Packet &p) { *p.pppoe ^= 1; }, {FTCTL_R_NO_FLOW});
            other("another concentrator", [](Packet &p) { p.smac[5] ^= 1; }, {FTCTL_R_NO_FLOW});
            other("no session", [](Packet &p) { p.pppoe.reset(); }, {FTCTL_R_NO_FLOW});
        }
        expect_fast(s, own);
    });
}
