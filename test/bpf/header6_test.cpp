// SPDX-License-Identifier: GPL-2.0-only
// What the fast path asks of an IPv6 header, alone, inside a tunnel and outside of one.
#include <vector>

#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

namespace {

/// IPv6 inside; with and without tunnels over IPv4 and IPv6 on the way in.
std::vector<Scenario> inner6()
{
    std::vector<Scenario> out;
    for (Scenario s : scenarios({kTcp, kUdp}, {Nat::none, Nat::both}, true)) {
        if (!s.v6)
            continue;
        out.push_back(s);
        if (!s.in_tunnel())
            continue;
        (s.reply ? s.outer6_b : s.outer6_a) = true;
        out.push_back(s);
    }
    return out;
}

/// A tunnel over IPv6 on the way out, or with `in` on the way in; either family inside.
std::vector<Scenario> over6(bool in)
{
    std::vector<Scenario> out;
    for (Scenario s : scenarios({kTcp, kUdp}, {Nat::none, Nat::both}, true)) {
        if (!(in ? s.in_tunnel() : s.out_tunnel()))
            continue;
        (s.reply == in ? s.outer6_b : s.outer6_a) = true;
        s.mtu = 1400;
        out.push_back(s);
    }
    return out;
}

constexpr std::uint8_t kDecap[4][4] = {{0, 0, 0, 9}, {1, 1, 1, 3}, {2, 1, 2, 3}, {3, 3, 3, 3}};

} // namespace

TEST_CASE("extension headers, fragments and no next header go to the stack", "[header6]")
{
    for (const Scenario &s : inner6()) {
        s.install();
        for (const std::uint8_t next : {0, 43, 60, 51, 135}) {
            Packet in = s.packet();
            in.ip.proto = next;
            expect_pass(s, in, {FTCTL_R_IP_OPTIONS, FTCTL_R_BAD_LENGTH});
        }
        Packet in = s.packet();
        in.ip.proto = 44;
        expect_pass(s, in, {FTCTL_R_FRAGMENT});
        for (const std::uint8_t next : {58, 59, 50, 132, 255}) {
            in.ip.proto = next;
            expect_pass(s, in, {FTCTL_R_PROTOCOL});
        }
        // The limit of a packet that is in no tunnel is an option like any other.
        in = s.packet();
        in.ip.v6->limit = 4;
        expect_pass(s, in, {FTCTL_R_IP_OPTIONS});
    }
}

TEST_CASE("an IPv6 payload length that does not fit goes to the stack", "[header6]")
{
    for (const Scenario &s : inner6()) {
        s.install();
        const auto right = static_cast<int>(s.packet().l3_len() - 40);
        for (const int wrong : {0, 1, 7, right - 1, right + 1, right + 4, 0xffff}) {
            // One byte less is a shorter packet with padding behind it, which is fine for TCP.
            if (wrong == right - 1 && s.proto == kTcp && !s.in_tunnel())
                continue;
            INFO("payload length " << wrong);
            Packet in = s.packet();
            in.ip.v6->payload_len = static_cast<std::uint16_t>(wrong);
            expect_pass(s, in, {FTCTL_R_BAD_LENGTH});
        }
    }
}

TEST_CASE("another version in an IPv6 header goes to the stack", "[header6]")
{
    for (const Scenario &s : inner6()) {
        if (s.in_tunnel())
            continue;
        s.install();
        for (const std::uint8_t version : {0, 4, 5, 7, 15}) {
            Bytes frame = s.packet().bytes();
            frame[14] = static_cast<std::uint8_t>(version << 4 | (frame[14] & 15));
            expect_pass(s, frame, {FTCTL_R_BAD_LENGTH});
        }
    }
}

TEST_CASE("traffic class and flow label are kept", "[header6]")
{
    for (const Scenario &s : inner6()) {
        s.install();
        for (const std::uint8_t tos : {0x00, 0x02, 0xb8, 0xfd, 0xff})
            for (const std::uint32_t label : {0x00000U, 0x00001U, 0x80000U, 0xfffffU}) {
                Packet in = s.packet();
                in.ip.tos = tos;
                in.ip.v6->label = label;
                if (s.in_tunnel())
                    in.outer.front().tos = 0;
                expect_fast(s, in);
            }
    }
}

TEST_CASE("ECN comes out of a tunnel over IPv6 as RFC 6040 says", "[header6]")
{
    for (const Scenario &s : over6(true)) {
        s.install();
        for (std::uint8_t inner = 0; inner < 4; ++inner)
            for (std::uint8_t outer = 0; outer < 4; ++outer) {
                INFO("inner " << +inner << " outer " << +outer);
                Packet in = s.packet();
                in.ip.tos = static_cast<std::uint8_t>(0x48 | inner);
                in.outer.front().tos = static_cast<std::uint8_t>(0x90 | outer);
                if (kDecap[inner][outer] == 9)
                    expect_pass(s, in, {FTCTL_R_ECN});
                else
                    expect_fast(s, in);
            }
    }
}

TEST_CASE("what a tunnel over IPv6 inherits and what it sets", "[header6]")
{
    for (Scenario s : over6(false)) {
        for (const bool inherit : {false, true})
            for (const std::uint8_t ttl : {0, 1, 64, 255}) {
                s.tos_inherit = inherit;
                s.label_inherit = inherit;
                s.tun_tos = inherit ? 0 : 0x58;
                s.tun_label = inherit ? 0 : 0x12345;
                s.tun_ttl = ttl;
                s.install();
                for (const std::uint8_t tos : {0x00, 0x01, 0x02, 0x03, 0xb9, 0xff}) {
                    INFO("inherit " << inherit << " ttl " << +ttl << " tos " << +tos);
                    Packet in = s.packet();
                    in.ip.tos = tos;
                    if (s.in_tunnel())
                        in.outer.front().tos = 0;
                    expect_fast(s, in);
                }
            }
    }
}

TEST_CASE("a drawn flow label is the flow's own, and never 0", "[header6]")
{
    for (Scenario s : over6(false)) {
        if (s.changes_family_in_vain())
            continue;
        s.install();
        s.change_path([](ftctl_path_body &body) { body.flags |= FTCTL_P_DRAWN; });
        const auto label = [&](const Packet &in) {
            const Outcome out = observe(s, in.bytes());
            REQUIRE(out.fast);
            Packet want = s.forwarded(in);
            want.outer.front().v6->label =
                (static_cast<std::uint32_t>(out.run.bytes[15] & 15) << 16) | get16(out.run.bytes, 16);
            CHECK(mismatch(want.bytes(), out.run.bytes) == "");
            return want.outer.front().v6->label;
        };
        const std::uint32_t first = label(s.packet());
        CHECK(first != 0);
        CHECK(label(s.packet(3)) == first);
        // A label that the tunnel has is not replaced.
        s.tun_label = 0x54321;
        s.install();
        s.change_path([](ftctl_path_body &body) { body.flags |= FTCTL_P_DRAWN; });
        expect_fast(s, s.packet());
    }
}

TEST_CASE("outer addresses of IPv6 must be the flow's", "[header6]")
{
    for (const Scenario &s : over6(true)) {
        s.install();
        for (std::size_t byte = 0; byte < 16; ++byte) {
            Packet in = s.packet();
            in.outer.front().v6->src[byte] ^= 0x10;
            expect_pass(s, in, {FTCTL_R_NO_FLOW});
            in = s.packet();
            in.outer.front().v6->dst[byte] ^= 0x01;
            expect_pass(s, in, {FTCTL_R_NO_FLOW});
        }
        Packet in = s.packet();
        in.outer.front().v6->payload_len = static_cast<std::uint16_t>(in.l3_len() - 1);
        expect_pass(s, in, {FTCTL_R_BAD_LENGTH});
        in.outer.front().v6->payload_len = static_cast<std::uint16_t>(in.l3_len() + 1);
        expect_pass(s, in, {FTCTL_R_BAD_LENGTH});
        in = s.packet();
        in.outer.front().ttl = 0; // delivered here: it does not matter
        expect_fast(s, in);
    }
}

TEST_CASE("what the kernel puts outside otherwise refuses the flow", "[header6]")
{
    for (const Scenario &base : over6(false)) {
        if (base.hook != Hook::tc)
            continue;
        struct Case {
            const char *what;
            unsigned detail;
            void (*mangle)(Packet &);
        };
        const Case cases[] = {
            {"nothing", FTCTL_D_NONE, [](Packet &) {}},
            {"label", FTCTL_D_OUTER_LABEL, [](Packet &p) { p.outer.front().v6->label ^= 1; }},
            {"class", FTCTL_D_OUTER_TOS, [](Packet &p) { p.outer.front().tos ^= 0x20; }},
            {"hop limit", FTCTL_D_OUTER_TTL, [](Packet &p) { p.outer.front().ttl -= 1; }},
            {"limit", FTCTL_D_ENCAP, [](Packet &p) { p.outer.front().v6->limit = 4; }},
        };
        for (const Case &c : cases) {
            INFO(base.describe() << ": " << c.what);
            base.install();
            base.change_flow([](ftctl_flow &f) { f.state = FTCTL_FLOW_PENDING; });
            expect_pass(base, base.packet(), {FTCTL_R_PENDING});
            Packet out = base.forwarded(base.packet());
            c.mangle(out);
            Rig::get().egress(base.out_device(), out.bytes());
            const ftctl_flow flow = Rig::get().flow(base.key()).value();
            CHECK(flow.state == (c.detail == FTCTL_D_NONE ? FTCTL_FLOW_LIVE : FTCTL_FLOW_DIFFERS));
            CHECK(flow.detail == c.detail);
        }
    }
}
