// SPDX-License-Identifier: GPL-2.0-only
// Pushing IPIP: every field of the outer header.
#include <algorithm>

#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

namespace {

std::vector<Scenario> into_tunnels(std::initializer_list<Nat> nats)
{
    std::vector<Scenario> out;
    for (const Scenario &s : scenarios({kTcp, kUdp}, nats, true)) {
        if (s.out_tunnel())
            out.push_back(s);
    }
    return out;
}

} // namespace

TEST_CASE("the outer header, byte for byte", "[encap]")
{
    const Hook hook = GENERATE(Hook::xdp, Hook::tc);
    Scenario s;
    s.hook = hook;
    s.proto = kUdp;
    s.tunnel_b = true;
    s.install();
    Packet in = s.packet(0);
    in.payload = {'h', 'i'};
    in.ip.tos = 0xbb;
    const Outcome out = observe(s, in.bytes());
    REQUIRE(out.fast);
    const Bytes &got = out.run.bytes;
    REQUIRE(got.size() == 14 + 20 + 30);
    const Bytes ethernet = {0x06, 0x00, 0x5e, 0x80, 0xff, 0xe1, 0x02,
                            0xf7, 0xc7, 0x10, 0x00, 0x0b, 0x08, 0x00};
    CHECK(hex(Bytes(got.begin(), got.begin() + 14)) == hex(ethernet));
    Bytes outer(got.begin() + 14, got.begin() + 34);
    CHECK(sum16(outer.data(), outer.size()) == 0xffff); // verifies, with whatever ID
    outer[4] = outer[5] = outer[10] = outer[11] = 0;
    // DSCP 0 and ECT(0) for the inner CE, 50 bytes, DF, TTL 64, protocol 4
    const Bytes want = {0x45, 0x02, 0x00, 0x32, 0x00, 0x00, 0x40, 0x00, 0x40, 0x04,
                        0x00, 0x00, 0xc6, 0x12, 0x00, 0x01, 0xc6, 0x12, 0xff, 0xfe};
    CHECK(hex(outer) == hex(want));
    const Bytes inner = {0x45, 0xbb, 0x00, 0x1e, 0x1c, 0x46, 0x40, 0x00, 0x3f, 0x11,
                         0x32, 0x96, 0xc0, 0x00, 0x02, 0x02, 0xc6, 0x33, 0x64, 0x02};
    CHECK(hex(Bytes(got.begin() + 34, got.begin() + 54)) == hex(inner));
}

TEST_CASE("outer TOS: fixed or inherited, ECN by the rule", "[encap]")
{
    for (Scenario s : into_tunnels({Nat::none, Nat::both})) {
        for (const unsigned mode : {0U, 1U, 2U}) {
            s.tos_inherit = mode == 2;
            s.tun_tos = mode == 1 ? 0xb8 : 0;
            s.install();
            for (const unsigned tos :
                 {0x00U, 0x01U, 0x02U, 0x03U, 0x28U, 0x29U, 0x2aU, 0x2bU, 0xfcU, 0xffU}) {
                INFO("mode " << mode << " inner TOS " << tos);
                Packet in = s.packet();
                in.ip.tos = static_cast<std::uint8_t>(tos);
                expect_fast(s, in);
            }
        }
    }
}

TEST_CASE("outer TTL: fixed or the inner one after the decrement", "[encap]")
{
    for (Scenario s : into_tunnels({Nat::none, Nat::both})) {
        for (const std::uint8_t fixed : {0, 1, 64, 255}) {
            s.tun_ttl = fixed;
            s.install();
            for (const std::uint8_t ttl : {2, 3, 64, 255}) {
                Packet in = s.packet();
                in.ip.ttl = ttl;
                expect_fast(s, in);
            }
        }
    }
}

TEST_CASE("outer DF: always, or as inside; a clear outer DF is the stack's", "[encap]")
{
    for (Scenario s : into_tunnels({Nat::none, Nat::both})) {
        for (const bool always : {true, false}) {
            s.tun_df = always;
            s.install();
            for (const std::uint16_t frag : {0x4000, 0x0000, 0xc000, 0x8000}) {
                INFO("always " << always << " inner " << frag);
                Packet in = s.packet();
                in.ip.frag = frag;
                if (!always && (s.v6 || (frag & kDf) == 0))
                    expect_pass(s, in, {FTCTL_R_DF});
                else
                    expect_fast(s, in);
            }
        }
    }
}

TEST_CASE("the outer length comes from the header, not from the frame", "[encap]")
{
    for (const Scenario &s : into_tunnels({Nat::none, Nat::both})) {
        s.install();
        Packet in = s.packet(0);
        expect_fast(s, in.pad_to_minimum());
        for (const std::size_t payload : {0U, 1U, 200U, 1400U}) {
            in = s.packet(payload);
            in.pad = 3;
            expect_fast(s, in);
        }
    }
}

TEST_CASE("ECN through a router between two tunnels", "[encap]")
{
    for (Scenario s : into_tunnels({Nat::none})) {
        if (!s.in_tunnel())
            continue;
        for (const bool inherit : {false, true}) {
            s.tos_inherit = inherit;
            s.install();
            for (unsigned pair = 0; pair < 16; ++pair) {
                Packet in = s.packet();
                in.ip.tos = static_cast<std::uint8_t>(0x50 | (pair & 3));
                in.outer.front().tos = static_cast<std::uint8_t>(0x88 | (pair >> 2));
                if (pair == 12)
                    expect_pass(s, in, {FTCTL_R_ECN});
                else
                    expect_fast(s, in);
            }
        }
    }
}

TEST_CASE("the next packets of a tunnel draw other IDs", "[encap]")
{
    const Hook hook = GENERATE(Hook::xdp, Hook::tc);
    Scenario s;
    s.hook = hook;
    s.tunnel_b = true;
    s.install();
    std::vector<std::uint16_t> ids;
    for (int i = 0; i < 64; ++i) {
        const Outcome out = observe(s, s.packet().bytes());
        REQUIRE(out.fast);
        ids.push_back(get16(out.run.bytes, 18));
    }
    std::sort(ids.begin(), ids.end());
    const auto distinct = std::unique(ids.begin(), ids.end()) - ids.begin();
    CHECK(distinct > 32);
}

TEST_CASE("without room for the outer header a frame goes to the stack as it came", "[encap]")
{
    for (const Scenario &s : into_tunnels({Nat::none, Nat::both})) {
        if (s.hook != Hook::xdp || s.in_tunnel())
            continue;
        INFO(s.describe());
        s.install();
        const Packet in = s.packet();
        const auto tight = Rig::get().ingress_with_metadata(s.in_device(), in.bytes(), 204);
        if (!tight) {
            WARN("not checked: this kernel's test runs take no such amount of metadata");
            return;
        }
        CHECK(tight->verdict == kXdpPass);
        CHECK(mismatch(in.bytes(), tight->bytes) == "");
        CHECK(Rig::get().stats(s.in_device()).reasons[FTCTL_R_HEADROOM] == 1);
        CHECK(packets(Rig::get().flow(s.key()).value()) == 0);
        const auto enough = Rig::get().ingress_with_metadata(s.in_device(), in.bytes(), 100);
        REQUIRE(enough);
        CHECK(enough->verdict == kXdpRedirect);
        check_frame(s.forwarded(in), enough->bytes);
    }
}
