// SPDX-License-Identifier: GPL-2.0-only
// The witness: a pending packet goes to the stack, the kernel sends it, and the frame is compared.
#include <algorithm>
#include <functional>

#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

namespace {

const std::vector<Scenario> &all()
{
    static const std::vector<Scenario> list =
        scenarios({kTcp, kUdp}, {Nat::none, Nat::snat, Nat::dnat_addr, Nat::both}, true);
    return list;
}

void set_pending(const Scenario &s)
{
    s.change_flow([](ftctl_flow &f) { f.state = FTCTL_FLOW_PENDING; });
}

/// What the kernel would put on the wire; the outer ID is its own.
Packet kernel_sends(const Scenario &s, const Packet &in)
{
    Packet out = s.forwarded(in);
    for (Ipv4 &outer : out.outer)
        outer.id = 0x5eed;
    return out;
}

/// The witness never changes or stops a packet.
void witness(const Scenario &s, const Packet &frame, Gso gso = {})
{
    const Bytes bytes = frame.bytes();
    const Run run = Rig::get().egress(s.out_device(), bytes, gso);
    CHECK(run.verdict == kTcUnspec);
    CHECK(mismatch(bytes, run.bytes) == "");
}

std::uint32_t state(const Scenario &s)
{
    return Rig::get().flow(s.key()).value().state;
}

bool has_event(const std::vector<ftctl_event> &events, const Scenario &s, std::uint32_t type, unsigned reason,
               unsigned detail)
{
    return std::any_of(events.begin(), events.end(), [&](const ftctl_event &event) {
        return event.type == type && event.id == s.sample_key().id && event.reason == reason &&
               event.detail == detail && event.flow_flags == s.flow().flow.flags;
    });
}

Packet pass_to_stack(const Scenario &s, const Packet &in)
{
    expect_pass(s, in, {FTCTL_R_PENDING, FTCTL_R_STALE, FTCTL_R_TRICKLE, FTCTL_R_BLANK});
    return kernel_sends(s, in);
}

using Mangle = std::function<void(Packet &)>;

/// The kernel does something else to a pending packet than was predicted.
void expect_differs(const Scenario &s, const char *what, unsigned detail, const Mangle &mangle)
{
    INFO(s.describe() << ": " << what);
    s.install();
    set_pending(s);
    Packet out = pass_to_stack(s, s.packet());
    mangle(out);
    witness(s, out);
    const ftctl_flow flow = Rig::get().flow(s.key()).value();
    CHECK(flow.state == FTCTL_FLOW_DIFFERS);
    CHECK(flow.reason == FTCTL_R_MANGLED);
    CHECK(flow.detail == detail);
    CHECK(has_event(Rig::get().events(), s, FTCTL_EV_DIFFERS, flow.reason, detail));
    expect_pass(s, s.packet(), {FTCTL_R_REFUSED});
    // A later frame as predicted does not bring it back.
    witness(s, kernel_sends(s, s.packet()));
    CHECK(state(s) == FTCTL_FLOW_DIFFERS);
}

/// ... or it sends a packet that cannot be told to be ours.
void expect_ignored(const Scenario &s, const char *what, const Mangle &mangle)
{
    INFO(s.describe() << ": " << what);
    s.install();
    set_pending(s);
    Packet out = pass_to_stack(s, s.packet());
    mangle(out);
    witness(s, out);
    CHECK(state(s) == FTCTL_FLOW_PENDING);
    CHECK(Rig::get().events().empty());
}

} // namespace

TEST_CASE("a packet sent as predicted makes its direction live", "[witness]")
{
    for (const Scenario &s : all()) {
        s.install();
        set_pending(s);
        const Scenario other = s.other_direction();
        set_pending(other);
        const Packet in = s.packet();
        witness(s, pass_to_stack(s, in));
        INFO(s.describe());
        CHECK(state(s) == FTCTL_FLOW_LIVE);
        CHECK(state(other) == FTCTL_FLOW_PENDING); // each direction on its own
        CHECK(has_event(Rig::get().events(), s, FTCTL_EV_LIVE, 0, 0));
        expect_fast(s, s.packet());
        witness(other, pass_to_stack(other, other.packet()));
        CHECK(state(other) == FTCTL_FLOW_LIVE);
        expect_fast(other, other.packet());
        CHECK(Rig::get().stats(s.out_device()).tx_failed == 0);
    }
}

TEST_CASE("the witness brings a stale flow to the present generation", "[witness]")
{
    for (const Scenario &s : all()) {
        s.install();
        ftctl_config config = Rig::get().config();
        config.gen = 7;
        Rig::get().set_config(config);
        witness(s, pass_to_stack(s, s.packet()));
        INFO(s.describe());
        CHECK(Rig::get().flow(s.key())->gen == 7);
        CHECK(state(s) == FTCTL_FLOW_LIVE);
        expect_fast(s, s.packet());
    }
}

TEST_CASE("the trickle is checked again", "[witness]")
{
    for (const Scenario &s : all()) {
        s.install();
        const auto age = [&] {
            s.change_flow([](ftctl_flow &f) {
                f.trickle_s = 1;
                f.last_trickle = now_ticks() - 3000;
            });
        };
        age();
        witness(s, pass_to_stack(s, s.packet()));
        CHECK(state(s) == FTCTL_FLOW_LIVE);
        age();
        Rig::get().forget_samples(); // a young one would be held
        Packet out = pass_to_stack(s, s.packet());
        out.ip.tos = 0x20;
        witness(s, out);
        INFO(s.describe());
        CHECK(state(s) == FTCTL_FLOW_DIFFERS);
    }
}

TEST_CASE("what the kernel does otherwise refuses the flow", "[witness]")
{
    for (const Scenario &s : all()) {
        expect_differs(s, "dscp", FTCTL_D_DSCP, [](Packet &p) { p.ip.tos ^= 0x60; });
        expect_differs(s, "ecn", FTCTL_D_ECN, [](Packet &p) { p.ip.tos ^= 0x01; });
        expect_differs(s, "ttl kept", FTCTL_D_TTL, [](Packet &p) { p.ip.ttl += 1; });
        expect_differs(s, "ttl set", FTCTL_D_TTL, [](Packet &p) { p.ip.ttl = 200; });
        if (s.v6)
            expect_differs(s, "label", FTCTL_D_LABEL, [](Packet &p) { p.ip.v6->label ^= 0x10; });
        else
            expect_differs(s, "DF", FTCTL_D_DF, [](Packet &p) { p.ip.frag ^= kDf; });
        if (!s.out_tunnel())
            continue;
        expect_differs(s, "outer tos", FTCTL_D_OUTER_TOS, [](Packet &p) { p.outer.front().tos ^= 0x20; });
        expect_differs(s, "outer ttl", FTCTL_D_OUTER_TTL, [](Packet &p) { p.outer.front().ttl -= 1; });
        expect_differs(s, "outer DF", FTCTL_D_OUTER_DF, [](Packet &p) { p.outer.front().frag = 0; });
    }
}

TEST_CASE("other MAC addresses than the path's do not make a flow live", "[witness]")
{
    // The path may just be on its way to the neighbour's new address, so this need not refuse the flow.
    for (const Scenario &s : all()) {
        for (const bool source : {true, false}) {
            for (const std::size_t byte : {0U, 3U, 5U}) {
                INFO(s.describe() << " source " << source << " byte " << byte);
                s.install();
                set_pending(s);
                Packet out = pass_to_stack(s, s.packet());
                (source ? out.smac : out.dmac).at(byte) ^= 0x10;
                witness(s, out);
                CHECK(state(s) != FTCTL_FLOW_LIVE);
                if (state(s) != FTCTL_FLOW_PENDING)
                    continue;
                // ... and a live flow whose trickle shows it is not taken any further.
                s.change_flow([](ftctl_flow &f) {
                    f.state = FTCTL_FLOW_LIVE;
                    f.trickle_s = 1;
                    f.last_trickle = now_ticks() - 3000;
                });
                Rig::get().forget_samples();
                expect_pass(s, s.packet(), {FTCTL_R_TRICKLE});
                witness(s, out);
                CHECK(state(s) != FTCTL_FLOW_LIVE);
            }
        }
    }
}

TEST_CASE("frames of other packets say nothing about a flow", "[witness]")
{
    for (const Scenario &s : all()) {
        if (!s.v6)
            expect_ignored(s, "ip id", [](Packet &p) { p.ip.id ^= 1; });
        if (s.proto == kUdp)
            for (const std::size_t byte : {0U, 7U, 15U})
                expect_ignored(s, "payload", [byte](Packet &p) { p.payload.at(byte) ^= 1; });
        if (s.proto == kTcp)
            expect_ignored(s, "sequence number", [](Packet &p) { p.tcp().seq += 1; });
        else
            expect_ignored(s, "UDP length", [](Packet &p) { p.payload.push_back(0); });
        expect_ignored(s, "source address", [](Packet &p) { change_src(p.ip); });
        expect_ignored(s, "destination port",
                       [&](Packet &p) { (s.proto == kTcp ? p.tcp().dport : p.udp().dport) ^= 1; });
        if (s.out_tunnel()) {
            expect_ignored(s, "outer destination", [](Packet &p) { p.outer.front().dst ^= 1; });
            expect_ignored(s, "no outer header", [](Packet &p) { p.outer.clear(); });
        }
    }
}

TEST_CASE("a frame that leaves by another device does not make a flow live", "[witness]")
{
    for (const Scenario &s : all()) {
        s.install();
        set_pending(s);
        const Packet out = pass_to_stack(s, s.packet());
        const Run run = Rig::get().egress(kDevC, out.bytes());
        CHECK(run.verdict == kTcUnspec);
        INFO(s.describe());
        CHECK(state(s) != FTCTL_FLOW_LIVE);
    }
}

TEST_CASE("a sample is held longer each time that nothing came of one", "[witness]")
{
    constexpr std::uint64_t kMs = 1000000;
    // Ages are far from what they are compared with: jiffies may be late, and a machine slow, by many ticks.
    constexpr std::uint64_t kFar = 500 * kMs;
    const auto sampled = [](const Scenario &s) { return Rig::get().sample(s.sample_key()).value(); };
    const auto set = [](const Scenario &s, ftctl_sample sample, std::uint64_t age) {
        sample.ts_ns = now_ns() - age;
        Rig::get().set_sample(s.sample_key(), sample);
    };
    for (const Scenario &s : all()) {
        INFO(s.describe());
        s.install();
        set_pending(s);
        std::size_t payload = 100;
        pass_to_stack(s, s.packet(payload));
        CHECK(sampled(s).hold_ns == 5 * kMs);
        for (const std::uint64_t hold : {5, 10, 20, 40, 80, 160, 320, 320}) {
            const ftctl_sample sample = sampled(s);
            CHECK(sample.hold_ns == hold * kMs);
            ftctl_sample held = sample;
            held.hold_ns = 1900 * kMs;
            set(s, held, kFar);
            pass_to_stack(s, s.packet(++payload));
            CHECK(sampled(s).len == sample.len);
            set(s, sample, hold * kMs + kFar);
            pass_to_stack(s, s.packet(++payload));
            CHECK(sampled(s).len == sample.len + 2);
        }
        set(s, sampled(s), 3000 * kMs); // of a time long ago
        const Packet out = pass_to_stack(s, s.packet());
        CHECK(sampled(s).hold_ns == 5 * kMs);
        witness(s, out);
        CHECK(state(s) == FTCTL_FLOW_LIVE);
        CHECK(Rig::get().sample_count() == 0);
    }
}

TEST_CASE("without sample, after its time, or closing: no witness", "[witness]")
{
    for (const Scenario &s : all()) {
        INFO(s.describe());
        s.install();
        set_pending(s);
        witness(s, kernel_sends(s, s.packet()));
        CHECK(state(s) == FTCTL_FLOW_PENDING);

        const Packet out = pass_to_stack(s, s.packet());
        ftctl_config config = Rig::get().config();
        config.watch_until_ns = now_ns() - FTCTL_NSEC_PER_SEC;
        Rig::get().set_config(config);
        witness(s, out);
        CHECK(state(s) == FTCTL_FLOW_PENDING);

        config.watch_until_ns = now_ns() + FTCTL_NSEC_PER_SEC * 60;
        Rig::get().set_config(config);
        s.change_flow([](ftctl_flow &f) { f.state = FTCTL_FLOW_CLOSING; });
        witness(s, out);
        CHECK(state(s) == FTCTL_FLOW_CLOSING);
        CHECK(Rig::get().events().empty());
    }
}

TEST_CASE("a packet of ftctl's own is not taken for one of the stack's", "[witness]")
{
    for (const bool v6 : {false, true}) {
        Scenario s;
        s.hook = Hook::tc;
        s.v6 = v6;
        s.nat = Nat::snat;
        INFO(s.describe());
        s.install();
        const auto run = Rig::get().ingress(Hook::tc, s.in_device(), s.packet().bytes());
        REQUIRE(run);
        CHECK(run->verdict == kTcRedirect);
        CHECK(run->marked);

        set_pending(s);
        const Packet out = pass_to_stack(s, s.packet());
        Rig::get().mark_next();
        witness(s, out);
        CHECK(state(s) == FTCTL_FLOW_PENDING);
        witness(s, out);
        CHECK(state(s) == FTCTL_FLOW_LIVE);
    }
}

TEST_CASE("aggregated packets are witnessed as their segments", "[witness]")
{
    for (const bool aggregated_out : {true, false}) {
        Scenario s;
        s.hook = Hook::tc;
        s.nat = Nat::both;
        s.install();
        set_pending(s);
        const Packet in = s.packet(2500);
        expect_pass(s, in.bytes(), {FTCTL_R_PENDING}, {1000, 3});
        Packet out = kernel_sends(s, in);
        if (!aggregated_out)
            out.payload.resize(1000);
        witness(s, out, aggregated_out ? Gso{1000, 3} : Gso{});
        CHECK(state(s) == FTCTL_FLOW_LIVE);
    }
}

TEST_CASE("the witness survives every truncated frame", "[witness]")
{
    for (const Scenario &s : all()) {
        if (s.nat != Nat::none)
            continue;
        s.install();
        set_pending(s);
        const Bytes full = pass_to_stack(s, s.packet(0)).bytes();
        // TC frames are never shorter here
        for (std::size_t size = s.other_direction().first_v6() ? 54 : 34; size < full.size(); ++size) {
            const Bytes cut(full.begin(), full.begin() + static_cast<std::ptrdiff_t>(size));
            const Run run = Rig::get().egress(s.out_device(), cut);
            CHECK(run.verdict == kTcUnspec);
            CHECK(run.bytes == cut);
            if (size + (s.proto == kTcp ? 12 : 1) < full.size()) // sequence number or length are not there
                CHECK(state(s) == FTCTL_FLOW_PENDING);
        }
    }
}
