// SPDX-License-Identifier: GPL-2.0-only
// Stripping IPIP: which tunnels count, ECN, and outer headers that the stack must see.
#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

namespace {

/// Scenarios whose packets arrive in a tunnel.
std::vector<Scenario> tunneled(std::initializer_list<Nat> nats)
{
    std::vector<Scenario> out;
    for (const Scenario &s : scenarios({kTcp, kUdp}, nats, true)) {
        if (s.in_tunnel())
            out.push_back(s);
    }
    return out;
}

} // namespace

TEST_CASE("ECN on decapsulation, all 16 pairs, DSCP kept", "[decap]")
{
    for (const Scenario &s : tunneled({Nat::none, Nat::both})) {
        s.install();
        for (unsigned inner = 0; inner < 4; ++inner) {
            for (unsigned outer = 0; outer < 4; ++outer) {
                for (const unsigned dscp : {0x00U, 0xb8U, 0xfcU}) {
                    INFO("inner " << inner << " outer " << outer << " dscp " << dscp);
                    Packet in = s.packet();
                    in.ip.tos = static_cast<std::uint8_t>(dscp | inner);
                    in.outer.front().tos = static_cast<std::uint8_t>(0x48 | outer);
                    if (inner == 0 && outer == 3)
                        expect_pass(s, in, {FTCTL_R_ECN});
                    else
                        expect_fast(s, in);
                }
            }
        }
    }
}

TEST_CASE("the bytes of one decapsulated packet, written out", "[decap]")
{
    const Hook hook = GENERATE(Hook::xdp, Hook::tc);
    Scenario s;
    s.hook = hook;
    s.proto = kUdp;
    s.tunnel_a = true;
    s.install();
    Packet in = s.packet(0);
    in.payload = {'h', 'i'};
    in.ip.tos = 0x02;
    in.outer.front().tos = 0x03;
    const Bytes want = {0x06, 0x00, 0x5e, 0x80, 0xff, 0xe1, 0x02, 0xf7, 0xc7, 0x10, 0x00, 0x0b,
                        0x08, 0x00,                                                             // Ethernet
                        0x45, 0x03, 0x00, 0x1e, 0x1c, 0x46, 0x40, 0x00, 0x3f, 0x11, 0x33, 0x4e, // IPv4, CE
                        0xc0, 0x00, 0x02, 0x02, 0xc6, 0x33, 0x64, 0x02,                         // addresses
                        0x9c, 0x40, 0x00, 0x50, 0x00, 0x0a, 0x0e, 0xa8, 'h',  'i'};             // UDP
    const Outcome out = observe(s, in.bytes());
    REQUIRE(out.fast);
    CHECK(mismatch(want, out.run.bytes) == "");
}

TEST_CASE("both outer addresses are part of the flow", "[decap]")
{
    for (const Scenario &s : tunneled({Nat::none})) {
        s.install();
        Packet in = s.packet();
        for (const std::uint32_t bit : {1U, 0x80000000U, 0x100U}) {
            in = s.packet();
            in.outer.front().src ^= bit;
            expect_pass(s, in, {FTCTL_R_NO_FLOW});
            in = s.packet();
            in.outer.front().dst ^= bit;
            expect_pass(s, in, {FTCTL_R_NO_FLOW});
        }
        in = s.packet();
        std::swap(in.outer.front().src, in.outer.front().dst);
        expect_pass(s, in, {FTCTL_R_NO_FLOW});
        // The inner packet alone is another flow.
        in = s.packet();
        in.outer.clear();
        expect_pass(s, in, {FTCTL_R_NO_FLOW});
        CHECK(Rig::get().sample_count() == 0);
    }
}

TEST_CASE("a forged outer header does not reach a plain flow", "[decap]")
{
    for (const Scenario &s : scenarios({kTcp, kUdp}, {Nat::none, Nat::both}, true)) {
        if (s.in_tunnel())
            continue;
        s.install();
        ftctl_config config = Rig::get().config();
        config.tunnels = 1;
        Rig::get().set_config(config);
        Packet in = s.packet();
        Ipv4 outer;
        outer.proto = s.v6 ? kIpv6 : kIpip;
        outer.src = ip4("203.0.113.66");
        outer.dst = ip4("203.0.113.1");
        in.outer.push_back(outer);
        expect_pass(s, in, {FTCTL_R_NO_FLOW});
        in.outer.front().src = in.outer.front().dst = 0;
        expect_pass(s, in, {FTCTL_R_NO_FLOW});
        if (s.proto == kTcp) { // not even to close it
            in.tcp().flags = kRst;
            expect_pass(s, in, {FTCTL_R_NO_FLOW, FTCTL_R_TCP_FLAGS});
        }
        expect_fast(s, s.packet());
        config.tunnels = 0;
        Rig::get().set_config(config);
        expect_pass(s, in, {FTCTL_R_PROTOCOL});
    }
}

TEST_CASE("a tunnel's flow belongs to its device", "[decap]")
{
    for (const Scenario &s : tunneled({Nat::none})) {
        s.install();
        Packet in = s.packet();
        in.dmac = device_mac(kDevC);
        const auto run = Rig::get().ingress(s.hook, kDevC, in.bytes());
        REQUIRE(run);
        CHECK(Rig::get().stats(kDevC).reasons[FTCTL_R_NO_FLOW] == 1);
        CHECK(mismatch(in.bytes(), run->bytes) == "");
    }
}

TEST_CASE("outer headers that only the stack understands", "[decap]")
{
    for (const Scenario &s : tunneled({Nat::none, Nat::both})) {
        s.install();
        for (const std::uint16_t frag : {0x2000, 0x0001, 0x1fff, 0x6000}) {
            Packet in = s.packet();
            in.outer.front().frag = frag;
            expect_pass(s, in, {FTCTL_R_FRAGMENT});
        }
        for (unsigned words = 1; words <= 10; ++words) {
            Packet in = s.packet();
            in.outer.front().options = Bytes(words * 4, 1);
            expect_pass(s, in, {FTCTL_R_IP_OPTIONS});
        }
        Packet in = s.packet();
        in.outer.front().ihl = 4;
        expect_pass(s, in, {FTCTL_R_BAD_LENGTH, FTCTL_R_NOT_IP, FTCTL_R_IP_OPTIONS});
        in = s.packet();
        in.outer.front().version = 6;
        expect_pass(s, in, {FTCTL_R_NOT_IP, FTCTL_R_BAD_LENGTH});
        in = s.packet();
        in.outer.front().proto = s.v6 ? kIpip : kIpv6; // not what is inside
        expect_pass(s, in, {FTCTL_R_BAD_LENGTH});
    }
}

TEST_CASE("the outer length must hold the inner packet", "[decap]")
{
    for (const Scenario &s : tunneled({Nat::none, Nat::both})) {
        s.install();
        const auto right = static_cast<std::uint16_t>(s.packet().l3_len() + 20);
        for (const int wrong : {0, 19, 20, 39, 40, 60, right - 1, right + 1, 0xffff}) {
            INFO("outer length " << wrong);
            Packet in = s.packet();
            in.outer.front().tot_len = static_cast<std::uint16_t>(wrong);
            expect_pass(s, in, {FTCTL_R_BAD_LENGTH});
        }
        // Bytes between the end of the inner packet and the end of the outer one: ip_rcv trims them.
        Packet in = s.packet();
        in.pad = 8;
        in.outer.front().tot_len = static_cast<std::uint16_t>(right + 8);
        expect_exact(s, in);
        in.outer.front().tot_len = static_cast<std::uint16_t>(right + 4);
        expect_exact(s, in);
        // Padding that hides a cut: the frame is long enough, the outer packet is not.
        in.outer.front().tot_len = static_cast<std::uint16_t>(right - 4);
        expect_pass(s, in, {FTCTL_R_BAD_LENGTH});
    }
}

TEST_CASE("tunnels in tunnels go to the stack", "[decap]")
{
    for (const Scenario &s : tunneled({Nat::none})) {
        s.install();
        Packet in = s.packet();
        for (int i = 0; i < 2; i++) {
            in.outer.insert(in.outer.begin(), in.outer.front());
            in.outer.front().proto = kIpip;
            expect_pass(s, in, {FTCTL_R_PROTOCOL, FTCTL_R_NO_FLOW});
        }
        expect_pass(s, in, {FTCTL_R_PROTOCOL, FTCTL_R_NO_FLOW});
    }
}

TEST_CASE("the outer TTL does not matter, the inner does", "[decap]")
{
    for (const Scenario &s : tunneled({Nat::none, Nat::both})) {
        s.install();
        for (const std::uint8_t ttl : {0, 1, 2, 255}) {
            Packet in = s.packet();
            in.outer.front().ttl = ttl;
            const Outcome out = expect_exact(s, in);
            if (ttl > 1)
                CHECK(out.fast);
        }
        Packet in = s.packet();
        in.ip.ttl = 1;
        expect_pass(s, in, {FTCTL_R_TTL});
        in.ip.ttl = 2;
        expect_fast(s, in);
    }
}

TEST_CASE("outer ID, DF and reserved bit are of no account", "[decap]")
{
    for (const Scenario &s : tunneled({Nat::none})) {
        s.install();
        Packet in = s.packet();
        in.outer.front().frag = 0;
        in.outer.front().id = 0xffff;
        expect_fast(s, in);
        in.outer.front().frag = kReserved;
        expect_exact(s, in);
    }
}

TEST_CASE("with no tunnel known IPIP is just another protocol", "[decap]")
{
    for (const Scenario &s : tunneled({Nat::none})) {
        s.install();
        ftctl_config config = Rig::get().config();
        config.tunnels = 0;
        Rig::get().set_config(config);
        expect_pass(s, s.packet(), {FTCTL_R_PROTOCOL});
    }
}

TEST_CASE("a padded tunnel packet leaves without its padding", "[decap]")
{
    for (const Scenario &s : tunneled({Nat::none, Nat::both})) {
        s.install();
        Packet in = s.packet(0);
        in.pad = 46;
        expect_fast(s, in);
    }
}
