// SPDX-License-Identifier: GPL-2.0-only
// Which TCP flags are taken, and what FIN, RST and SYN do to a connection.
#include <algorithm>

#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

namespace {

enum class Verdict { fast, closes, odd };

/// Flags without ECE and CWR. The valid sets are those of conntrack's tcp_valid_flags, PSH aside.
Verdict expected(unsigned flags)
{
    switch (flags & ~static_cast<unsigned>(kPsh)) {
    case kAck:
    case kAck | kUrg:
        return Verdict::fast;
    case kSyn:
    case kSyn | kUrg:
    case kSyn | kAck:
    case kRst:
    case kRst | kAck:
    case kFin | kAck:
    case kFin | kAck | kUrg:
        return Verdict::closes;
    default:
        return Verdict::odd;
    }
}

std::uint32_t state(const Scenario &s)
{
    return Rig::get().flow(s.key()).value().state;
}

bool has_closing_event(const Scenario &s, std::uint8_t flags)
{
    const std::vector<ftctl_event> events = Rig::get().events();
    return std::any_of(events.begin(), events.end(), [&](const ftctl_event &event) {
        return event.type == FTCTL_EV_CLOSING && event.id == s.sample_key().id && event.tcp_flags == flags &&
               event.flow_flags == s.flow().flow.flags;
    });
}

} // namespace

TEST_CASE("all 256 combinations of TCP flags", "[tcp]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none, Nat::both}, false)) {
        for (unsigned flags = 0; flags < 256; ++flags) {
            INFO(s.describe() << " flags " << flags);
            s.install();
            Packet in = s.packet(flags % 7);
            in.tcp().flags = static_cast<std::uint8_t>(flags);
            const Verdict want = expected(flags & 0x3f);
            if (want == Verdict::fast) {
                expect_fast(s, in);
                CHECK(state(s) == FTCTL_FLOW_LIVE);
                continue;
            }
            expect_pass(s, in, {FTCTL_R_TCP_FLAGS});
            if (want == Verdict::closes) {
                CHECK(state(s) == FTCTL_FLOW_CLOSING);
                CHECK(state(s.other_direction()) == FTCTL_FLOW_CLOSING);
                CHECK(has_closing_event(s, static_cast<std::uint8_t>(flags)));
            } else if ((flags & (kFin | kSyn | kRst)) == 0) {
                CHECK(state(s) == FTCTL_FLOW_LIVE);
                CHECK(state(s.other_direction()) == FTCTL_FLOW_LIVE);
                CHECK(Rig::get().events().empty());
            }
        }
    }
}

TEST_CASE("FIN, RST and SYN stop both directions, in every shape of flow", "[tcp]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none, Nat::snat, Nat::dnat_addr, Nat::both}, true)) {
        const Scenario other = s.other_direction();
        for (const unsigned flags : {kFin | kAck, kRst | 0, kRst | kAck, kSyn | 0}) {
            INFO(s.describe() << " flags " << flags);
            s.install();
            expect_fast(s, s.packet());
            expect_fast(other, other.packet());
            s.install();
            Packet closing = s.packet(0);
            closing.tcp().flags = static_cast<std::uint8_t>(flags);
            expect_pass(s, closing, {FTCTL_R_TCP_FLAGS});
            CHECK(has_closing_event(s, static_cast<std::uint8_t>(flags)));
            expect_pass(s, s.packet(), {FTCTL_R_CLOSING});
            expect_pass(other, other.packet(), {FTCTL_R_CLOSING});
            // The second FIN, and whatever else comes, does not bring it back.
            Packet fin = other.packet(0);
            fin.tcp().flags = kFin | kAck;
            expect_pass(other, fin, {FTCTL_R_TCP_FLAGS, FTCTL_R_CLOSING});
            expect_pass(s, s.packet(), {FTCTL_R_CLOSING});
        }
    }
}

TEST_CASE("a FIN before the witness came stops the flow as well", "[tcp]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none}, true)) {
        s.install();
        s.change_flow([](ftctl_flow &f) { f.state = FTCTL_FLOW_PENDING; });
        Packet fin = s.packet(0);
        fin.tcp().flags = kFin | kAck;
        expect_pass(s, fin, {FTCTL_R_TCP_FLAGS});
        CHECK(state(s) == FTCTL_FLOW_CLOSING);
        CHECK(state(s.other_direction()) == FTCTL_FLOW_CLOSING);
    }
}

TEST_CASE("a FIN stops its own direction when the other is not known", "[tcp]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::both}, true)) {
        s.install();
        Rig::get().reset(s.hook);
        ftctl_config config = Rig::get().config();
        config.tunnels = 2;
        Rig::get().set_config(config);
        Rig::get().set_path(s.path_index(), s.path());
        Rig::get().set_flow(s.key(), s.flow());
        Packet fin = s.packet(0);
        fin.tcp().flags = kFin | kAck;
        expect_pass(s, fin, {FTCTL_R_TCP_FLAGS});
        CHECK(state(s) == FTCTL_FLOW_CLOSING);
    }
}

TEST_CASE("a FIN that the stack would not believe does not stop a flow", "[tcp]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none}, true)) {
        s.install();
        Packet fin = s.packet(0);
        fin.tcp().flags = kFin | kAck;
        fin.ip.check_error = 1; // dropped by ip_rcv
        if (!s.v6)
            expect_pass(s, fin, {FTCTL_R_BAD_CHECKSUM});
        fin = s.packet(0);
        fin.tcp().flags = kFin | kAck;
        fin.dmac = device_mac(kDevC);
        expect_pass(s, fin, {FTCTL_R_OTHER_HOST});
        fin = s.packet(0);
        fin.tcp().flags = kFin | kAck;
        fin.tcp().doff = 4;
        expect_pass(s, fin, {FTCTL_R_BAD_LENGTH});
        expect_fast(s, s.packet());
    }
}

TEST_CASE("CLOSING and DIFFERS are not left for one another", "[tcp]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none}, false)) {
        s.install();
        s.change_flow([](ftctl_flow &f) {
            f.state = FTCTL_FLOW_DIFFERS;
            f.reason = FTCTL_R_MANGLED;
        });
        Packet fin = s.packet(0);
        fin.tcp().flags = kFin | kAck;
        expect_pass(s, fin, {FTCTL_R_TCP_FLAGS, FTCTL_R_REFUSED});
        CHECK(state(s) == FTCTL_FLOW_DIFFERS);
        expect_pass(s, s.packet(), {FTCTL_R_REFUSED});
    }
}
