// SPDX-License-Identifier: GPL-2.0-only
// Which frames are for the router at all.
#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

TEST_CASE("only frames for the device's own MAC address are taken", "[l2]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none}, true)) {
        s.install();
        Packet in = s.packet();
        for (unsigned byte = 0; byte < 6; ++byte) {
            in.dmac = device_mac(s.in_device());
            in.dmac[byte] ^= 0x80;
            expect_pass(s, in, {FTCTL_R_OTHER_HOST});
        }
        in.dmac = device_mac(kDevC);
        expect_pass(s, in, {FTCTL_R_OTHER_HOST});
        in.dmac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
        expect_pass(s, in, {FTCTL_R_GROUP});
        in.dmac = {0x01, 0x00, 0x5e, 0x00, 0x00, 0x01};
        expect_pass(s, in, {FTCTL_R_GROUP});
        in.dmac = device_mac(s.in_device());
        in.dmac[0] |= 1;
        expect_pass(s, in, {FTCTL_R_GROUP});
        expect_fast(s, s.packet());
    }
}

TEST_CASE("a device above with an address of its own has flows of its own", "[l2]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none, Nat::both}, true)) {
        s.install();
        const auto upper = device_mac(kDevC);
        const auto number = [](const auto &mac) {
            std::uint64_t value = 0;
            for (unsigned byte = 0; byte < 6; ++byte)
                value |= static_cast<std::uint64_t>(mac[byte]) << (8 * byte);
            return value;
        };
        ftctl_slot slot = Rig::get().slot(s.in_device());
        slot.upper = number(upper);
        Rig::get().set_slot(s.in_device(), slot);
        Packet above = s.packet();
        above.dmac = upper;
        expect_fast(s, s.packet());
        expect_pass(s, above, {FTCTL_R_OTHER_HOST}); // the flow is of packets to the device itself
        s.change_flow([](ftctl_flow &f) { f.flags |= FTCTL_F_UPPER; });
        expect_fast(s, above);
        expect_pass(s, s.packet(), {FTCTL_R_OTHER_HOST});
        above.dmac[5] ^= 1;
        expect_pass(s, above, {FTCTL_R_OTHER_HOST});
        slot.mac = ~0ULL;
        Rig::get().set_slot(s.in_device(), slot);
        above.dmac = upper;
        expect_pass(s, above, {FTCTL_R_OTHER_HOST});
    }
}

TEST_CASE("below a bridge only frames from stations are taken", "[l2]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none}, true)) {
        s.install();
        ftctl_slot slot = Rig::get().slot(s.in_device());
        slot.flags = FTCTL_S_PORT;
        Rig::get().set_slot(s.in_device(), slot);
        Packet in = s.packet();
        expect_fast(s, in);
        for (const auto &source :
             {ftctl::test::Mac{}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0x03, 0, 0, 0, 0, 1}}) {
            in.smac = source;
            expect_pass(s, in, {FTCTL_R_GROUP});
        }
    }
}

TEST_CASE("a slot that says so takes nothing", "[l2]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none}, false)) {
        s.install();
        ftctl_slot slot{};
        slot.mac = ~0ULL;
        slot.upper = ~0ULL;
        slot.ifindex = Rig::get().ifindex(s.in_device());
        slot.hook = s.hook == Hook::xdp ? FTCTL_HOOK_XDP : FTCTL_HOOK_TC;
        Rig::get().set_slot(s.in_device(), slot);
        expect_pass(s, s.packet(), {FTCTL_R_OTHER_HOST, FTCTL_R_DISABLED});
        Packet all_ones = s.packet();
        all_ones.dmac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
        expect_pass(s, all_ones, {FTCTL_R_GROUP, FTCTL_R_OTHER_HOST, FTCTL_R_DISABLED});
    }
}

TEST_CASE("other EtherTypes and tags go to the stack", "[l2]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none}, true)) {
        s.install();
        Packet in = s.packet();
        for (const std::uint16_t type : {0x0806, 0x86dd, 0x8847, 0x8864, 0x88cc, 0x0026, 0x0008, 0x0000}) {
            // the other family's: there is no such header then
            in.ethertype = type == 0x86dd && s.first_v6() ? 0x0800 : type;
            expect_pass(s, in, {FTCTL_R_NOT_IP, type == 0x86dd ? FTCTL_R_BAD_LENGTH : FTCTL_R_NOT_IP});
        }
        for (const std::uint8_t tpid : {0x81, 0x88}) {
            in = s.packet();
            in.tags = {tpid, static_cast<std::uint8_t>(tpid == 0x81 ? 0x00 : 0xa8), 0x00, 0x0a};
            expect_pass(s, in, {FTCTL_R_NO_FLOW});
            in.tag(0x8100, 11);
            expect_pass(s, in, {FTCTL_R_NO_FLOW});
            in.tag(0x8100, 12);
            expect_pass(s, in, {FTCTL_R_VLAN});
        }
    }
}

TEST_CASE("the source MAC address does not matter", "[l2]")
{
    for (const Scenario &s : scenarios({kUdp}, {Nat::none}, true)) {
        s.install();
        Packet in = s.packet();
        in.smac = {0, 0, 0, 0, 0, 0};
        expect_fast(s, in);
        in.smac = {0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54};
        expect_fast(s, in);
    }
}
