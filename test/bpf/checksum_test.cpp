// SPDX-License-Identifier: GPL-2.0-only
// The corners of one's-complement arithmetic.
#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

namespace {

constexpr std::size_t kEth = 14;

std::uint16_t ip_check(const Packet &packet)
{
    return get16(packet.bytes(), kEth + 10);
}

std::uint16_t l4_check(const Packet &packet)
{
    std::size_t l4 = kEth + (packet.ip.v6 ? 40 : 20);
    for (const Ipv4 &outer : packet.outer)
        l4 += outer.v6 ? 40 : 20;
    return get16(packet.bytes(), l4 + (packet.ip.proto == kTcp ? 16 : 6));
}

/// The searches below may take longer than a heartbeat counts, on a slow machine.
Packet found(const Packet &packet)
{
    ftctl_config config = Rig::get().config();
    config.heartbeat_ns = now_ns();
    Rig::get().set_config(config);
    return packet;
}

/// A packet whose last payload word makes `check` give the wanted checksum.
template <typename Check>
Packet aim(const Scenario &s, std::uint16_t wanted, Check &&check)
{
    Packet in = s.packet(64);
    const auto set = [&](std::uint16_t word) {
        in.payload[62] = static_cast<std::uint8_t>(word >> 8);
        in.payload[63] = static_cast<std::uint8_t>(word);
    };
    set(0);
    // The checksum is the complement of a sum: what is missing from the sum goes into the word.
    set(add16(static_cast<std::uint16_t>(~wanted), check(in)));
    if (check(in) != wanted)
        throw std::logic_error("the payload does not give this checksum");
    return found(in);
}

/// Sets the last payload word so that the packet leaves with the wanted (unfinished) L4 checksum.
Packet aim_out(const Scenario &s, std::uint16_t wanted)
{
    return aim(s, wanted, [&](const Packet &in) { return l4_check(s.forwarded(in)); });
}

Packet aim_in(const Scenario &s, std::uint16_t wanted)
{
    return aim(s, wanted, l4_check);
}

} // namespace

TEST_CASE("a UDP checksum that comes out as 0 is sent as 0xffff, a TCP checksum as 0", "[checksum]")
{
    for (const Scenario &s :
         scenarios({kTcp, kUdp}, {Nat::snat_addr, Nat::snat, Nat::dnat, Nat::both}, false)) {
        s.install();
        const std::uint16_t zero = s.proto == kUdp ? 0xffff : 0;
        const Packet in = aim_out(s, zero);
        REQUIRE(l4_check(s.forwarded(in)) == zero);
        expect_fast(s, in);
        expect_fast(s, aim_in(s, zero));
        for (const std::uint16_t value : {0x0001, 0xfffe, 0x00ff, 0xff00, 0x0100}) {
            expect_fast(s, aim_out(s, value));
            expect_fast(s, aim_in(s, value));
        }
    }
}

TEST_CASE("without NAT the L4 checksum is not touched, whatever it is", "[checksum]")
{
    for (const Scenario &s : scenarios({kTcp, kUdp}, {Nat::none}, true)) {
        s.install();
        Packet in = s.packet();
        const std::size_t at = in.bytes().size() - in.payload.size() - (s.proto == kTcp ? 4 : 2);
        for (const std::uint16_t check : {0x0000, 0xffff, 0x1234}) {
            Bytes frame = in.bytes();
            frame[at] = static_cast<std::uint8_t>(check >> 8);
            frame[at + 1] = static_cast<std::uint8_t>(check);
            const Outcome out = observe(s, frame);
            INFO(s.describe() << " check " << check);
            if (!out.fast) { // only what may be an unfinished checksum
                CHECK(s.hook == Hook::tc);
                CHECK(!kernel_at_least(6, 2));
                CHECK(s.proto == kUdp);
                CHECK(check == 0);
                CHECK(out.reason == FTCTL_R_CSUM_UNKNOWN);
                continue;
            }
            const std::size_t moved =
                s.forwarded(in).bytes().size() - in.payload.size() - (s.proto == kTcp ? 4 : 2);
            CHECK(get16(out.run.bytes, moved) == check);
        }
    }
}

TEST_CASE("into PPPoE a checksum must not be one that a device is to finish", "[checksum]")
{
    for (const Hook hook : {Hook::tc, Hook::xdp})
        for (const Proto proto : {kTcp, kUdp})
            for (const Nat nat : {Nat::none, Nat::both}) {
                Scenario s;
                s.hook = hook;
                s.proto = proto;
                s.nat = nat;
                s.pppoe_b = 7;
                s.mtu = 1400;
                s.install();
                const Packet in = s.packet();
                const Tuple t = s.arrives();
                const std::size_t l4 = in.l3_len() - 20;
                std::uint32_t pseudo = (t.src >> 16) + (t.src & 0xffff) + (t.dst >> 16) + (t.dst & 0xffff) +
                                       proto + static_cast<std::uint32_t>(l4);
                while (pseudo > 0xffff)
                    pseudo = (pseudo & 0xffff) + (pseudo >> 16);
                const std::size_t at = in.bytes().size() - in.payload.size() - (proto == kTcp ? 4 : 2);
                Bytes frame = in.bytes();
                frame[at] = static_cast<std::uint8_t>(pseudo >> 8);
                frame[at + 1] = static_cast<std::uint8_t>(pseudo);
                if (hook == Hook::tc && !kernel_at_least(6, 2)) // it does not tell which it is
                    expect_pass(s, frame, {FTCTL_R_CSUM_UNKNOWN});
                else // a packet whose checksum is wrong
                    CHECK(observe(s, frame).fast);
                frame[at + 1] ^= 1;
                CHECK(observe(s, frame).fast);
                expect_fast(s, in);
            }
}

TEST_CASE("a UDP packet without checksum stays without", "[checksum]")
{
    for (const Scenario &s :
         scenarios({kUdp}, {Nat::none, Nat::snat_addr, Nat::snat, Nat::dnat, Nat::both}, true)) {
        s.install();
        Packet in = s.packet();
        in.udp().no_check = true;
        if (s.hook == Hook::xdp || s.nat == Nat::none) {
            expect_fast(s, in);
        } else {
            // At TC a zero may also be a checksum that the egress device is to finish, and an old kernel does
            // not tell.
            const Outcome out = expect_exact(s, in);
            if (!out.fast) {
                CHECK(!kernel_at_least(6, 2));
                CHECK(out.reason == FTCTL_R_CSUM_UNKNOWN);
            }
        }
    }
}

TEST_CASE("a wrong L4 checksum stays wrong by the same amount", "[checksum]")
{
    for (const Scenario &s :
         scenarios({kTcp, kUdp}, {Nat::none, Nat::snat_addr, Nat::snat, Nat::both}, true)) {
        s.install();
        for (const std::uint16_t error : {0x0001, 0x8000, 0xfffe, 0x1234}) {
            Packet in = s.packet();
            if (s.proto == kTcp)
                in.tcp().check_error = error;
            else
                in.udp().check_error = error;
            expect_fast(s, in);
        }
    }
}

TEST_CASE("every IPv4 ID, so that the header checksum passes through all its values", "[checksum]")
{
    const Hook hook = GENERATE(Hook::xdp, Hook::tc);
    const Nat nat = GENERATE(Nat::none, Nat::both);
    Scenario s;
    s.hook = hook;
    s.nat = nat;
    Rig &rig = Rig::get();
    unsigned wrong = 0;
    bool low = false;
    bool high = false;
    for (unsigned id = 0; id < 0x10000; ++id) {
        if (id % 0x1000 == 0)
            s.install(); // again: its heartbeat is good for five seconds
        // The borders one by one, the rest sampled.
        Packet in = s.packet(0);
        in.ip.id = static_cast<std::uint16_t>(id);
        const Packet out = s.forwarded(in);
        const std::uint16_t before = ip_check(in);
        const std::uint16_t after = ip_check(out);
        const bool border = before < 0x0200 || before >= 0xfe00 || after < 0x0200 || after >= 0xfe00;
        if (!border && id % 61 != 0)
            continue;
        low = low || after == 0;
        high = high || before == 0xfeff;
        const auto run = rig.ingress(hook, s.in_device(), in.bytes());
        if (mismatch(out.bytes(), run->bytes) != "" && wrong++ < 3)
            CHECK(mismatch(out.bytes(), run->bytes) == "");
    }
    CHECK(wrong == 0);
    CHECK(low);
    CHECK(high);
}

TEST_CASE("an IPv4 header checksum of 0xffff is as right as 0", "[checksum]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none, Nat::both}, false)) {
        if (s.v6)
            continue;
        s.install();
        Packet in = s.packet(0);
        unsigned id = 0;
        while (ip_check(in) != 0 && id < 0xffff)
            in.ip.id = static_cast<std::uint16_t>(++id);
        REQUIRE(ip_check(in) == 0);
        expect_fast(s, in);
        Bytes frame = in.bytes();
        frame[kEth + 10] = frame[kEth + 11] = 0xff;
        const Outcome out = observe(s, frame);
        if (out.fast)
            CHECK(mismatch(s.forwarded(in).bytes(), out.run.bytes) == "");
    }
}

TEST_CASE("a wrong IPv4 header checksum goes to the stack", "[checksum]")
{
    for (const Scenario &s : scenarios({kTcp, kUdp}, {Nat::none, Nat::both}, true)) {
        s.install();
        for (unsigned i = 0; i < 32; ++i) { // each bit, and all the others
            const auto error = static_cast<std::uint16_t>(1U << i % 16 ^ (i < 16 ? 0 : 0xffff));
            Packet in = s.packet();
            in.ip.check_error = error;
            if (!s.v6)
                expect_pass(s, in, {FTCTL_R_BAD_CHECKSUM});
            if (!s.in_tunnel())
                continue;
            in = s.packet();
            in.outer.front().check_error = error;
            expect_pass(s, in, {FTCTL_R_BAD_CHECKSUM});
        }
    }
}
