// SPDX-License-Identifier: GPL-2.0-only
// Random packets: both hooks agree, what is taken is right, what is not is untouched.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <random>

#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

namespace {

/// FTCTL_TEST_SEED repeats a run.
std::uint32_t seed()
{
    static const std::uint32_t value = [] {
        const char *given = std::getenv("FTCTL_TEST_SEED");
        return given != nullptr ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 0))
                                : std::random_device{}();
    }();
    return value;
}

class Random {
  public:
    explicit Random(std::uint32_t start) : engine_(start) {}
    std::uint32_t below(std::uint32_t limit) { return engine_() % limit; }
    bool one_in(std::uint32_t n) { return below(n) == 0; }
    template <typename T>
    T word()
    {
        return static_cast<T>(engine_());
    }

  private:
    std::mt19937 engine_;
};

Scenario random_scenario(Random &random)
{
    Scenario s;
    s.proto = random.one_in(2) ? kTcp : kUdp;
    s.nat = kNats[random.below(std::size(kNats))];
    s.reply = random.one_in(2);
    s.tunnel_a = random.one_in(3);
    s.tunnel_b = random.one_in(3);
    s.all_words = random.one_in(2);
    s.mtu = random.one_in(4) ? static_cast<std::uint16_t>(68 + random.below(500)) : 1480;
    s.tun_df = !random.one_in(4);
    s.tos_inherit = random.one_in(2);
    s.tun_tos = random.word<std::uint8_t>() & 0xfc;
    s.tun_ttl = random.one_in(2) ? 0 : random.word<std::uint8_t>();
    return s;
}

/// Mostly a packet of the flow, with a few fields off.
Packet random_packet(Random &random, const Scenario &s)
{
    Packet p = s.packet(random.below(random.one_in(2) ? 60 : 700));
    for (std::uint8_t &byte : p.payload)
        byte = random.word<std::uint8_t>();
    p.ip.tos = random.word<std::uint8_t>();
    p.ip.id = random.word<std::uint16_t>();
    p.ip.ttl = random.one_in(8) ? random.below(3) : random.word<std::uint8_t>();
    p.ip.frag = static_cast<std::uint16_t>(random.below(4) << 14);
    if (random.one_in(4))
        p.pad = random.below(40);
    for (Ipv4 &outer : p.outer) {
        outer.tos = random.word<std::uint8_t>();
        outer.id = random.word<std::uint16_t>();
        outer.ttl = random.word<std::uint8_t>();
    }
    if (s.proto == kTcp) {
        p.tcp().seq = random.word<std::uint32_t>();
        p.tcp().ack = random.word<std::uint32_t>();
        p.tcp().window = random.word<std::uint16_t>();
        p.tcp().reserved = random.one_in(8) ? random.below(16) : 0;
        p.tcp().options = Bytes(random.below(11) * 4, 1);
        if (random.one_in(4))
            p.tcp().flags = random.word<std::uint8_t>();
        if (random.one_in(8))
            p.tcp().check_error = random.word<std::uint16_t>();
    } else {
        p.udp().no_check = random.one_in(8);
        if (random.one_in(8))
            p.udp().check_error = random.word<std::uint16_t>();
    }
    return p;
}

/// Half of the frames get some bytes of their headers wrong.
Bytes damage(Random &random, Bytes frame)
{
    if (random.one_in(2))
        return frame;
    for (std::uint32_t n = random.below(3); n > 0; --n)
        frame[random.below(static_cast<std::uint32_t>(std::min<std::size_t>(frame.size(), 74)))] ^=
            static_cast<std::uint8_t>(1U << random.below(8));
    if (random.one_in(4))
        frame.resize(34 + random.below(static_cast<std::uint32_t>(frame.size() - 34)));
    return frame;
}

Bytes without_outer_id(const Scenario &s, Bytes frame)
{
    if (s.out_tunnel() && frame.size() >= 34)
        frame[18] = frame[19] = frame[24] = frame[25] = 0;
    return frame;
}

void compare_hooks(Scenario s, const Bytes &frame, const Packet *intact)
{
    s.hook = Hook::xdp;
    s.install();
    const Outcome xdp = observe(s, frame);
    const auto xdp_flow = Rig::get().flow(s.key());
    s.hook = Hook::tc;
    s.install();
    const Outcome tc = observe(s, frame);
    const auto tc_flow = Rig::get().flow(s.key());

    if (tc.reason == FTCTL_R_CSUM_UNKNOWN) { // only TC has this doubt
        CHECK(s.proto == kUdp);
        return;
    }
    CHECK(xdp.fast == tc.fast);
    CHECK(xdp.reason == tc.reason);
    CHECK(packets(*xdp_flow) == packets(*tc_flow));
    CHECK(bytes(*xdp_flow) == bytes(*tc_flow));
    CHECK(xdp_flow->state == tc_flow->state);
    if (!xdp.fast || !tc.fast)
        return;
    CHECK(mismatch(without_outer_id(s, xdp.run.bytes), without_outer_id(s, tc.run.bytes)) == "");
    if (intact != nullptr) {
        check_frame(s.forwarded(*intact), xdp.run.bytes);
        check_frame(s.forwarded(*intact), tc.run.bytes);
    }
}

} // namespace

TEST_CASE("2000 random packets through both hooks", "[property]")
{
    std::printf("property: FTCTL_TEST_SEED=%u\n", seed());
    unsigned taken = 0;
    for (std::uint32_t i = 0; i < 2000; ++i) {
        Random random(seed() + i);
        const Scenario s = random_scenario(random);
        const Packet packet = random_packet(random, s);
        const Bytes intact = packet.bytes();
        const Bytes frame = damage(random, intact);
        INFO("FTCTL_TEST_SEED=" << seed() << ", packet " << i << "\n" << hex(frame));
        compare_hooks(s, frame, frame == intact ? &packet : nullptr);
        taken += static_cast<unsigned>(packets(Rig::get().flow(s.key()).value()));
    }
    CHECK(taken > 400); // else the generator tests the refusals only
}
