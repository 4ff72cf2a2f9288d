// SPDX-License-Identifier: GPL-2.0-only
// When a known packet is still the stack's: states, generations, heartbeat, paths, trickle.
#include <arpa/inet.h>
#include <utility>

#include <catch2/catch.hpp>

#include "ftctl/flow4.h"
#include "scenario.h"

using namespace ftctl::test;

namespace {

const std::vector<Scenario> &all()
{
    static const std::vector<Scenario> list = scenarios({kTcp, kUdp}, {Nat::none, Nat::both}, true);
    return list;
}

/// The sample that a packet leaves behind when it goes to the stack to be witnessed.
void check_sample(const Scenario &s, const Packet &in)
{
    INFO(s.describe());
    const auto sample = Rig::get().sample(s.sample_key());
    REQUIRE(sample);
    CHECK(now_ns() - sample->ts_ns < 10 * FTCTL_NSEC_PER_SEC);
    CHECK(ntohs(sample->ip_id) == (s.v6 ? 0 : in.ip.id));
    CHECK(ntohl(sample->label) == (s.v6 ? in.ip.v6->label : 0));
    CHECK(sample->len == in.l3_len());
    CHECK(sample->ttl == in.ip.ttl);
    CHECK(sample->tos == s.forwarded(in).ip.tos);
    CHECK(ntohs(sample->frag_off) == (s.v6 ? 0 : in.ip.frag));
    if (const Tcp *tcp = std::get_if<Tcp>(&in.l4); tcp && !s.v6)
        CHECK(ntohl(sample->l4_tag) == tcp->seq);
}

Packet marked_packet(const Scenario &s)
{
    Packet in = s.packet(77);
    in.ip.id = 0xbeef;
    in.ip.tos = 0x2a; // ECT(0), under ECT(1) outside: becomes ECT(1)
    in.ip.ttl = 33;
    for (Ipv4 &outer : in.outer)
        outer.tos = 0x01;
    return in;
}

void set_age(const Scenario &s, std::uint32_t seconds)
{
    s.change_flow([&](ftctl_flow &f) {
        f.last_trickle =
            now_ticks() - static_cast<std::uint32_t>(seconds * FTCTL_NSEC_PER_SEC >> FTCTL_TICK_SHIFT);
    });
}

} // namespace

TEST_CASE("where no flow of a shape has come yet there is no map of it", "[state]")
{
    for (const Scenario &s : all()) {
        s.install();
        Rig::get().set_flow_maps(false);
        const ftctl_tuple key = s.key();
        if (ftctl_shape_of(&key) == FTCTL_SHAPE_4)
            expect_fast(s, s.packet());
        else
            expect_pass(s, s.packet(), {FTCTL_R_NO_FLOW});
        Rig::get().set_flow_maps(true);
    }
}

TEST_CASE("the flow of another tuple with the same digest is not this packet's", "[state]")
{
    unsigned tried = 0;
    for (const Scenario &s : all()) {
        const ftctl_tuple key = s.key();
        if (ftctl_shape_of(&key) != FTCTL_SHAPE_X)
            continue;
        s.install();
        const ftctl_flow6 flow = Rig::get().flow6(key).value();
        expect_fast(s, s.packet());
        for (std::size_t byte = 0; byte < sizeof(key); ++byte) {
            ftctl_tuple other = key;
            reinterpret_cast<std::uint8_t *>(&other)[byte] ^= 0x10;
            Rig::get().set_stranger(key, other, flow);
            expect_pass(s, s.packet(), {FTCTL_R_NO_FLOW});
        }
        Rig::get().set_stranger(key, key, flow);
        expect_fast(s, s.packet());
        ++tried;
    }
    CHECK(tried > 0);
}

namespace {

ftctl_key4 &plain(ftctl_flow4 &entry)
{
    return entry.key;
}

ftctl_key4 &plain(ftctl_flow4t &entry)
{
    return entry.key.in;
}

/// What stands before a flow in its map: another one, of the same home, or one that is gone.
template <typename Entry>
Entry other_entry(const Entry &mine, std::size_t place)
{
    Entry other = mine;
    if (place % 2 == 0)
        plain(other).iif_proto = FTCTL_FLOW4_GONE;
    else
        plain(other).dport ^= static_cast<std::uint16_t>(1U << place);
    return other;
}

/// `at`: the flow's home, where it stands, and what is behind it.
template <typename Entry>
void check_places(const Scenario &s, Entry *at)
{
    const ftctl_tuple key = s.key();
    Entry mine = at[0];
    REQUIRE(plain(mine).iif_proto == key.iif_proto);
    for (std::size_t place = 0; place < FTCTL_FLOW4_PROBES; ++place) {
        CAPTURE(place);
        for (std::size_t i = 0; i < FTCTL_FLOW4_PROBES; ++i)
            at[i] = i < place ? other_entry(mine, i) : Entry{};
        at[place] = mine;
        expect_fast(s, s.packet());
        CHECK(ftctl_count_packets(&at[place].flow.carried) == ftctl_count_packets(&mine.flow.carried) + 1);
        for (std::size_t byte = 0; byte < sizeof(mine.key); ++byte) {
            reinterpret_cast<std::uint8_t *>(&at[place].key)[byte] ^= 0x10;
            expect_pass(s, s.packet(), {FTCTL_R_NO_FLOW});
            at[place] = mine;
        }
        if (place == 0)
            continue;
        at[0] = Entry{}; // nobody's: nothing stands behind
        expect_pass(s, s.packet(), {FTCTL_R_NO_FLOW});
    }
    for (std::size_t i = 0; i < FTCTL_FLOW4_PROBES; ++i)
        at[i] = other_entry(mine, i);
    at[FTCTL_FLOW4_PROBES] = mine; // too far
    expect_pass(s, s.packet(), {FTCTL_R_NO_FLOW});
    at[FTCTL_FLOW4_PROBES] = Entry{};
    Rig::get().set_stranger(key, key, {mine.flow, {}, {}});
    expect_fast(s, s.packet());
    ftctl_tuple whose = key;
    whose.dport ^= 1;
    Rig::get().set_stranger(key, whose, {mine.flow, {}, {}});
    expect_pass(s, s.packet(), {FTCTL_R_NO_FLOW});
    Rig::get().set_stranger(key, key, {mine.flow, {}, {}});
    at[0] = Entry{};
    expect_pass(s, s.packet(), {FTCTL_R_NO_FLOW});
}

} // namespace

TEST_CASE("a flow is found in its home, behind it, and in flowx when there is no room", "[state]")
{
    unsigned plain_flows = 0, ipip = 0;
    for (const Scenario &s : all()) {
        const ftctl_tuple key = s.key();
        s.install();
        if (ftctl_shape_of(&key) == FTCTL_SHAPE_4) {
            check_places(s, Rig::get().flow4_entries(key));
            ++plain_flows;
        } else if (ftctl_shape_of(&key) == FTCTL_SHAPE_4T) {
            check_places(s, Rig::get().flow4t_entries(key));
            ++ipip;
        }
    }
    CHECK(plain_flows > 0);
    CHECK(ipip > 0);
}

TEST_CASE("a flow is looked for where the Bloom filter has its bit", "[state]")
{
    for (const Scenario &s : all()) {
        s.install();
        Rig::get().set_bloom(s.key(), false);
        expect_pass(s, s.packet(), {FTCTL_R_NO_FLOW});
        Rig::get().set_bloom(s.key(), true);
        expect_fast(s, s.packet());
    }
}

TEST_CASE("a packet of no flow goes to the stack", "[state]")
{
    for (const Scenario &s : all()) {
        s.install();
        Packet in = s.packet();
        change_src(in.ip);
        expect_pass(s, in, {FTCTL_R_NO_FLOW});
        in = s.packet();
        change_dst(in.ip);
        expect_pass(s, in, {FTCTL_R_NO_FLOW});
        for (const bool source : {true, false}) {
            in = s.packet();
            if (s.proto == kTcp)
                (source ? in.tcp().sport : in.tcp().dport) += 1;
            else
                (source ? in.udp().sport : in.udp().dport) += 1;
            expect_pass(s, in, {FTCTL_R_NO_FLOW});
        }
        Scenario twin = s;
        twin.proto = s.proto == kTcp ? kUdp : kTcp;
        expect_pass(twin, twin.packet(), {FTCTL_R_NO_FLOW});
        CHECK(Rig::get().sample_count() == 0);
    }
}

TEST_CASE("a flow belongs to the device its packets come in on", "[state]")
{
    for (const Scenario &s : all()) {
        s.install();
        Packet in = s.packet();
        in.dmac = device_mac(kDevC);
        const auto run = Rig::get().ingress(s.hook, kDevC, in.bytes());
        REQUIRE(run);
        CHECK(run->verdict == (s.hook == Hook::xdp ? kXdpPass : kTcUnspec));
        CHECK(mismatch(in.bytes(), run->bytes) == "");
        CHECK(Rig::get().stats(kDevC).reasons[FTCTL_R_NO_FLOW] == 1);
    }
}

TEST_CASE("a pending flow leaves samples and stays pending", "[state]")
{
    for (const Scenario &s : all()) {
        s.install();
        s.change_flow([](ftctl_flow &f) { f.state = FTCTL_FLOW_PENDING; });
        const Packet in = marked_packet(s);
        expect_pass(s, in, {FTCTL_R_PENDING});
        check_sample(s, in);
        // A young sample may be held while its packet is on its way; without one the next packet is it.
        expect_pass(s, s.packet(), {FTCTL_R_PENDING});
        CHECK(Rig::get().sample_count() == 1);
        Rig::get().forget_samples();
        expect_pass(s, s.packet(), {FTCTL_R_PENDING});
        check_sample(s, s.packet());
        CHECK(Rig::get().sample_count() == 1);
        CHECK(Rig::get().flow(s.key())->state == FTCTL_FLOW_PENDING);
        // The other direction does not care.
        const Scenario other = s.other_direction();
        expect_fast(other, other.packet());
    }
}

TEST_CASE("a flow of another generation is stale and is sampled", "[state]")
{
    for (const Scenario &s : all()) {
        for (const std::uint32_t gen : {0U, 2U, 0xffffffffU}) {
            s.install();
            s.change_flow([&](ftctl_flow &f) { f.gen = gen; });
            const Packet in = marked_packet(s);
            expect_pass(s, in, {FTCTL_R_STALE});
            check_sample(s, in);
        }
    }
}

TEST_CASE("closing and refused flows go to the stack without sample", "[state]")
{
    for (const Scenario &s : all()) {
        s.install();
        s.change_flow([](ftctl_flow &f) { f.state = FTCTL_FLOW_CLOSING; });
        expect_pass(s, s.packet(), {FTCTL_R_CLOSING});
        s.change_flow([](ftctl_flow &f) {
            f.state = FTCTL_FLOW_DIFFERS;
            f.reason = FTCTL_R_MANGLED;
        });
        expect_pass(s, s.packet(), {FTCTL_R_REFUSED});
        s.change_flow([](ftctl_flow &f) { f.state = 77; });
        expect_pass(s, s.packet(), {FTCTL_R_REFUSED, FTCTL_R_CLOSING, FTCTL_R_PENDING, FTCTL_R_STALE});
        CHECK(Rig::get().events().empty());
    }
}

TEST_CASE("without heartbeat everything goes to the stack", "[state]")
{
    for (const Scenario &s : all()) {
        s.install();
        ftctl_config config = Rig::get().config();
        config.heartbeat_ns = now_ns() - 4 * FTCTL_NSEC_PER_SEC;
        Rig::get().set_config(config);
        expect_fast(s, s.packet());
        const auto late = static_cast<std::uint64_t>(now_ns() - FTCTL_HEARTBEAT_NS - FTCTL_NSEC_PER_SEC / 10);
        for (const std::uint64_t beat : {late, std::uint64_t{1}, std::uint64_t{0}}) {
            config.heartbeat_ns = beat;
            Rig::get().set_config(config);
            expect_pass(s, s.packet(), {FTCTL_R_HEARTBEAT});
        }
        config.heartbeat_ns = now_ns();
        Rig::get().set_config(config);
        expect_fast(s, s.packet());
        // A beat may be written between the packet's look at the clock and its look at the beat.
        config.heartbeat_ns = now_ns() + FTCTL_NSEC_PER_SEC;
        Rig::get().set_config(config);
        expect_fast(s, s.packet());
    }
}

TEST_CASE("a disabled datapath passes everything", "[state]")
{
    for (const Scenario &s : all()) {
        s.install();
        ftctl_config config = Rig::get().config();
        config.disabled = 1;
        Rig::get().set_config(config);
        expect_pass(s, s.packet(), {FTCTL_R_DISABLED});
        config.disabled = 0;
        Rig::get().set_config(config);
        expect_fast(s, s.packet());
    }
}

TEST_CASE("a path that is not valid says why", "[state]")
{
    for (const Scenario &s : all()) {
        s.install();
        for (const std::uint16_t reason : {FTCTL_R_NO_NEIGH, FTCTL_R_PATH_DOWN}) {
            s.change_path([&](ftctl_path_body &body) {
                body.flags &= ~FTCTL_P_VALID;
                body.reason = reason;
            });
            expect_pass(s, s.packet(), {reason});
        }
        // Whatever stands there, the packet is passed and no counter but this device's moves.
        for (const std::uint16_t reason : {0, FTCTL_PACKET_REASONS + 0, 0xffff}) {
            s.change_path([&](ftctl_path_body &body) {
                body.flags &= ~FTCTL_P_VALID;
                body.reason = reason;
            });
            const Packet in = s.packet();
            const auto run = Rig::get().ingress(s.hook, s.in_device(), in.bytes());
            CHECK(run->verdict == (s.hook == Hook::xdp ? kXdpPass : kTcUnspec));
            CHECK(run->bytes == in.bytes());
            CHECK(Rig::get().stats(s.in_device()).fast_packets == 0);
            CHECK(Rig::get().stats(s.out_device()).rx_packets == 0);
        }
        s.change_flow([](ftctl_flow &f) { f.path = FTCTL_MAX_PATHS; });
        expect_pass(s, s.packet(), {FTCTL_R_PATH_DOWN, FTCTL_R_NO_NEIGH});
    }
}

TEST_CASE("the body in use is the active one", "[state]")
{
    for (const Scenario &s : all()) {
        s.install();
        ftctl_path path = s.path();
        std::swap(path.body[0], path.body[1]);
        path.active ^= 1;
        Rig::get().set_path(s.path_index(), path);
        expect_fast(s, s.packet());
    }
}

TEST_CASE("trickle: one packet in a while goes to the stack, with a sample", "[state]")
{
    for (const Scenario &s : all()) {
        s.install();
        s.change_flow([](ftctl_flow &f) { f.trickle_s = 10; });
        set_age(s, 8);
        expect_fast(s, s.packet());
        set_age(s, 11);
        const Packet in = marked_packet(s);
        expect_pass(s, in, {FTCTL_R_TRICKLE});
        check_sample(s, in);
        CHECK(Rig::get().flow(s.key())->state == FTCTL_FLOW_LIVE);
        CHECK(now_ticks() - Rig::get().flow(s.key())->last_trickle < 2000);
        for (int i = 0; i < 5; ++i)
            expect_fast(s, s.packet());

        s.change_flow([](ftctl_flow &f) { f.trickle_s = 255; });
        set_age(s, 250);
        expect_fast(s, s.packet());
        set_age(s, 256);
        expect_pass(s, s.packet(), {FTCTL_R_TRICKLE});

        s.change_flow([](ftctl_flow &f) { f.trickle_s = 0; });
        set_age(s, 100000);
        expect_fast(s, s.packet());
    }
}

TEST_CASE("a dry run tells the bytes and leaves no trace", "[state]")
{
    for (Scenario s : scenarios({kTcp, kUdp}, {Nat::both}, false)) {
        if (s.reply)
            continue; // dry programs are loaded for device a
        s.install();
        const Packet in = s.packet();
        const ftctl_flow before = Rig::get().flow(s.key()).value();
        const Run taken = Rig::get().dry(s.hook, in.bytes());
        CHECK(taken.verdict == (s.hook == Hook::xdp ? kXdpRedirect : kTcRedirect));
        check_frame(s.forwarded(in), taken.bytes);
        ftctl_flow after = Rig::get().flow(s.key()).value();
        CHECK(packets(after) == packets(before));
        CHECK(after.last_seen == before.last_seen);

        s.change_flow([](ftctl_flow &f) { f.state = FTCTL_FLOW_PENDING; });
        const Run passed = Rig::get().dry(s.hook, in.bytes());
        CHECK(passed.verdict == (s.hook == Hook::xdp ? kXdpPass : kTcUnspec));
        CHECK(Rig::get().sample_count() == 0);
        if (s.proto == kTcp) {
            Packet fin = in;
            fin.tcp().flags = kFin | kAck;
            Rig::get().dry(s.hook, fin.bytes());
            CHECK(Rig::get().flow(s.key())->state == FTCTL_FLOW_PENDING);
            CHECK(Rig::get().events().empty());
        }
        CHECK(Rig::get().stats(kDevA).rx_packets == 0);
    }
}

TEST_CASE("a pending flow says when its packets are too short to be told apart", "[state]")
{
    for (Scenario s : scenarios({kUdp}, {Nat::none}, false)) {
        s.install();
        s.change_flow([](ftctl_flow &f) { f.state = FTCTL_FLOW_PENDING; });
        for (const std::size_t payload : {0U, 3U, 4U}) {
            Packet in = s.packet(payload);
            in.ip.id = 0;
            expect_pass(s, in, {payload < 4 ? FTCTL_R_BLANK : FTCTL_R_PENDING});
        }
        if (!s.v6) { // an ID is enough
            Packet in = s.packet(0);
            in.ip.id = 7;
            expect_pass(s, in, {FTCTL_R_PENDING});
        }
        s.change_flow([](ftctl_flow &f) { f.state = FTCTL_FLOW_LIVE; });
        Packet in = s.packet(0);
        in.ip.id = 0;
        expect_fast(s, in);
    }
}
