// SPDX-License-Identifier: GPL-2.0-only
// Plain forwarding and NAT: TTL, MAC addresses, addresses, ports, checksums, counters.
#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

TEST_CASE("a packet of a live flow leaves as the slow path would send it", "[forward]")
{
    for (const Scenario &s :
         scenarios({kTcp, kUdp}, {Nat::none, Nat::snat_addr, Nat::snat, Nat::dnat_addr, Nat::dnat, Nat::both},
                   true)) {
        s.install();
        for (const std::size_t payload : {0U, 1U, 2U, 99U, 1000U})
            expect_fast(s, s.packet(payload));
        CHECK(Rig::get().sample_count() == 0);
        CHECK(Rig::get().events().empty());
    }
}

TEST_CASE("the bytes of one NATed packet, written out", "[forward]")
{
    const Hook hook = GENERATE(Hook::xdp, Hook::tc);
    Scenario s;
    s.hook = hook;
    s.proto = kUdp;
    s.nat = Nat::both;
    s.install();
    Packet in = s.packet(0);
    in.payload = {'h', 'i'};
    // client 192.0.2.2:40000 -> 203.0.113.9:8080 becomes 203.0.113.7:61001 -> 198.51.100.2:80
    const Bytes want = {0x06, 0x00, 0x5e, 0x80, 0xff, 0xe1, 0x02, 0xf7, 0xc7, 0x10, 0x00, 0x0b,
                        0x08, 0x00,                                                             // Ethernet
                        0x45, 0x00, 0x00, 0x1e, 0x1c, 0x46, 0x40, 0x00, 0x3f, 0x11, 0xb9, 0x4b, // IPv4
                        0xcb, 0x00, 0x71, 0x07, 0xc6, 0x33, 0x64, 0x02,                         // addresses
                        0xee, 0x49, 0x00, 0x50, 0x00, 0x0a, 0x42, 0x99, 'h',  'i'};             // UDP
    const Outcome out = observe(s, in.bytes());
    REQUIRE(out.fast);
    CHECK(mismatch(want, out.run.bytes) == "");
}

TEST_CASE("deltas may run over all words or only over those that change", "[forward]")
{
    for (Scenario s :
         scenarios({kTcp, kUdp}, {Nat::snat_addr, Nat::snat, Nat::dnat_addr, Nat::both}, false)) {
        s.all_words = true;
        s.install();
        expect_fast(s, s.packet());
    }
}

TEST_CASE("a count is carried when its low part is full", "[forward]")
{
    constexpr std::uint64_t kFull = 1ULL << FTCTL_COUNT_PACKETS;
    for (Scenario s : scenarios({kTcp}, {Nat::snat}, false)) {
        for (const std::uint64_t before : {kFull - 2, kFull - 1, 5 * kFull - 1}) {
            s.install();
            s.change_flow([&](ftctl_flow &f) {
                f.carried = count_of(before, 0xfffffff0ULL);
                f.carried.low += 7ULL << 32; // bytes that are due for a carry, too
            });
            for (int i = 0; i < 3; ++i)
                expect_fast(s, s.packet(1000)); // checks what was added
            const ftctl_flow f = Rig::get().flow(s.key()).value();
            CHECK(packets(f) == before + 3);
            CHECK(f.carried.high >> 32 == (before + 3) / kFull);
            CHECK(f.carried.low >> 63 == 0);
            CHECK((f.carried.high & 0xffffffff) >= 7);
        }
    }
}

TEST_CASE("the flow counts packets and L3 bytes, and when it was last used", "[forward]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::snat}, true)) {
        s.install();
        s.change_flow([](ftctl_flow &f) {
            f.carried = count_of(0xfffffffffULL, 0xfffffffff00ULL);
            f.last_seen -= 5000;
        });
        expect_fast(s, s.packet(0));
        expect_fast(s, s.packet(1000));
        const ftctl_flow f = Rig::get().flow(s.key()).value();
        CHECK(packets(f) == 0xfffffffffULL + 2);
        CHECK(bytes(f) == 0xfffffffff00ULL + 2 * (s.ip_len() + 20) + 1000);
        CHECK(f.state == FTCTL_FLOW_LIVE);
        CHECK(f.gen == 1);
    }
}

TEST_CASE("TOS and ID are kept", "[forward]")
{
    for (const Scenario &s : scenarios({kTcp, kUdp}, {Nat::none, Nat::both}, false)) {
        s.install();
        for (unsigned tos = 0; tos < 256; tos += 5) {
            Packet in = s.packet(10);
            in.ip.tos = static_cast<std::uint8_t>(tos);
            in.ip.id = static_cast<std::uint16_t>(tos * 257);
            expect_fast(s, in);
        }
    }
}

TEST_CASE("TCP options, urgent data and reserved bits pass through", "[forward]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none, Nat::both}, true)) {
        s.install();
        for (unsigned words = 0; words <= 10; ++words) {
            Packet in = s.packet(33);
            in.tcp().options = Bytes(words * 4, 1);
            in.tcp().urgent = 7;
            in.tcp().flags = kAck | kUrg | kPsh;
            expect_fast(s, in);
        }
        Packet in = s.packet(33);
        in.tcp().reserved = 0x0f;
        expect_exact(s, in);
    }
}

TEST_CASE("the reserved bit of the fragment word and DF are kept", "[forward]")
{
    for (const Scenario &s : scenarios({kTcp, kUdp}, {Nat::none, Nat::snat}, false)) {
        s.install();
        for (const std::uint16_t frag : {0x0000, 0x4000, 0x8000, 0xc000}) {
            Packet in = s.packet();
            in.ip.frag = frag;
            expect_fast(s, in);
        }
    }
}

TEST_CASE("an XDP packet needs an egress device that takes frames; TC does not", "[forward]")
{
    Scenario s;
    s.install();
    Rig::get().set_egress(s.out_device(), false);
    expect_pass(s, s.packet(), {FTCTL_R_EGRESS});
    Rig::get().set_egress(s.out_device(), true);
    expect_fast(s, s.packet());
    s.change_path([](ftctl_path_body &body) { body.flags &= ~FTCTL_P_XDP; });
    expect_pass(s, s.packet(), {FTCTL_R_EGRESS});

    s.hook = Hook::tc;
    s.install();
    Rig::get().set_egress(s.out_device(), false);
    s.change_path([](ftctl_path_body &body) { body.flags &= ~FTCTL_P_XDP; });
    expect_fast(s, s.packet());
}
