// SPDX-License-Identifier: GPL-2.0-only
// The largest packet, and aggregated ones.
#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

TEST_CASE("the MTU is a border to the byte, DF or not", "[mtu]")
{
    for (Scenario s : scenarios({kTcp, kUdp}, {Nat::none, Nat::both}, true)) {
        for (const std::uint16_t mtu : {68, 576, 1480, 1500}) {
            s.mtu = mtu;
            s.install();
            for (const std::uint16_t frag : {0x4000, 0x0000}) {
                for (const int over : {-1, 0, 1, 20, 21}) {
                    INFO("mtu " << mtu << " size " << mtu + over);
                    Packet in = s.packet(0);
                    in.resize(static_cast<std::size_t>(mtu + over));
                    in.ip.frag = frag;
                    if (over > 0)
                        expect_pass(s, in, {FTCTL_R_MTU});
                    else
                        expect_fast(s, in);
                }
            }
        }
    }
}

TEST_CASE("padding does not count for the MTU", "[mtu]")
{
    for (Scenario s : scenarios({kUdp}, {Nat::none}, true)) {
        s.mtu = static_cast<std::uint16_t>(s.ip_len() + 20);
        s.install();
        Packet in = s.packet(0);
        in.resize(s.mtu);
        in.pad = 30;
        expect_fast(s, in);
    }
}

TEST_CASE("an aggregate counts as its segments, and each must fit", "[mtu]")
{
    for (const Proto proto : {kTcp, kUdp}) {
        for (const bool reply : {false, true}) {
            for (const Nat nat : {Nat::none, Nat::both}) {
                Scenario s;
                s.hook = Hook::tc;
                s.proto = proto;
                s.nat = nat;
                s.reply = reply;
                s.mtu = 700;
                s.install();
                const auto header = static_cast<std::uint32_t>(s.packet(0).l3_len());
                const std::uint32_t fits = 700 - header;
                for (const std::uint32_t tail : {1U, fits - 1, fits}) {
                    const Packet in = s.packet(2 * fits + tail);
                    expect_fast(s, in, {fits, 3});
                    expect_fast(s, in, {fits, 0}); // TUN and virtio do not count segments
                }
                const Packet in = s.packet(2 * fits + 2);
                expect_pass(s, in, {FTCTL_R_MTU}, {fits + 1, 2});
                expect_pass(s, in, {FTCTL_R_MTU}, {fits + 1, 0});
                expect_pass(s, in, {FTCTL_R_MTU});
            }
        }
    }
}

TEST_CASE("TCP options count for each segment", "[mtu]")
{
    Scenario s;
    s.hook = Hook::tc;
    s.mtu = 700;
    s.install();
    Packet in = s.packet(1300);
    in.tcp().options = Bytes(12, 1);
    expect_fast(s, in, {648, 3});
    expect_pass(s, in, {FTCTL_R_MTU}, {649, 3});
}

TEST_CASE("an aggregate with padding or into a tunnel is right or the stack's", "[mtu]")
{
    for (Scenario s : scenarios({kTcp}, {Nat::none, Nat::both}, true)) {
        if (s.hook != Hook::tc)
            continue;
        s.install();
        Packet in = s.packet(2500);
        const Outcome out = observe(s, in.bytes(), {1000, 3});
        INFO(s.describe());
        if (out.fast)
            check_frame(s.forwarded(in), out.run.bytes);
        else // a test run has no GSO type, without which the kernel changes no tunnel header
            CHECK((s.in_tunnel() || s.out_tunnel()));
    }
}

TEST_CASE("frames in several buffers are right or the stack's", "[mtu]")
{
    for (Scenario s : scenarios({kTcp, kUdp}, {Nat::none, Nat::both}, true)) {
        if (s.hook != Hook::xdp)
            continue;
        s.mtu = 9000;
        s.install();
        for (const std::size_t pad : {0U, 5U}) {
            Packet in = s.packet(8000);
            in.pad = pad;
            expect_exact(s, in);
        }
    }
}
