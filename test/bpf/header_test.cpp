// SPDX-License-Identifier: GPL-2.0-only
// What the IPv4, TCP and UDP headers must look like to be taken.
#include <catch2/catch.hpp>

#include "scenario.h"

using namespace ftctl::test;

namespace {

const std::vector<Scenario> &all()
{
    static const std::vector<Scenario> list = scenarios({kTcp, kUdp}, {Nat::none, Nat::both}, true);
    return list;
}

} // namespace

TEST_CASE("TTL 0 and 1 go to the stack, 2 and 255 do not", "[header]")
{
    for (const Scenario &s : all()) {
        s.install();
        Packet in = s.packet();
        for (const std::uint8_t ttl : {0, 1}) {
            in.ip.ttl = ttl;
            expect_pass(s, in, {FTCTL_R_TTL});
        }
        for (const std::uint8_t ttl : {2, 3, 128, 255}) {
            in.ip.ttl = ttl;
            expect_fast(s, in);
        }
    }
}

TEST_CASE("IP options go to the stack", "[header]")
{
    for (const Scenario &s : all()) {
        if (s.v6)
            continue;
        s.install();
        for (unsigned ihl = 6; ihl <= 15; ++ihl) {
            Packet in = s.packet();
            in.ip.options = Bytes((ihl - 5) * 4, 1); // no-operation
            expect_pass(s, in, {FTCTL_R_IP_OPTIONS});
        }
    }
}

TEST_CASE("a header length below 20 or another version goes to the stack", "[header]")
{
    for (const Scenario &s : all()) {
        if (s.v6)
            continue;
        s.install();
        for (unsigned ihl = 0; ihl < 5; ++ihl) {
            Packet in = s.packet();
            in.ip.ihl = static_cast<std::uint8_t>(ihl);
            expect_pass(s, in, {FTCTL_R_BAD_LENGTH, FTCTL_R_NOT_IP, FTCTL_R_IP_OPTIONS});
        }
        for (const std::uint8_t version : {0, 3, 5, 6, 15}) {
            Packet in = s.packet();
            in.ip.version = version;
            expect_pass(s, in, {FTCTL_R_NOT_IP, FTCTL_R_BAD_LENGTH});
        }
    }
}

TEST_CASE("fragments go to the stack", "[header]")
{
    for (const Scenario &s : all()) {
        if (s.v6)
            continue;
        s.install();
        for (const std::uint16_t frag : {0x2000, 0x0001, 0x1fff, 0x3fff, 0x6000, 0x4001, 0x00b9, 0xa000}) {
            Packet in = s.packet();
            in.ip.frag = frag;
            expect_pass(s, in, {FTCTL_R_FRAGMENT});
        }
    }
}

TEST_CASE("a total length that does not fit goes to the stack", "[header]")
{
    for (const Scenario &s : all()) {
        if (s.v6)
            continue;
        s.install();
        const auto right = static_cast<std::uint16_t>(s.packet().l3_len());
        for (const int wrong : {0, 1, 19, 20, 27, right + 1, right + 4, 0xffff}) {
            Packet in = s.packet();
            in.ip.tot_len = static_cast<std::uint16_t>(wrong);
            expect_pass(s, in, {FTCTL_R_BAD_LENGTH});
        }
    }
}

TEST_CASE("the UDP length must be the packet's", "[header]")
{
    for (const Scenario &s : all()) {
        if (s.proto != kUdp)
            continue;
        s.install();
        const unsigned right = 8 + 100;
        // A shorter one is valid to UDP, but conntrack sums what lies behind it, too.
        for (const unsigned wrong : {0U, 1U, 7U, 8U, right - 1, right + 1, 0xffffU}) {
            Packet in = s.packet();
            in.udp().len = static_cast<std::uint16_t>(wrong);
            expect_pass(s, in, {FTCTL_R_BAD_LENGTH});
        }
    }
}

TEST_CASE("the TCP header must fit", "[header]")
{
    for (const Scenario &s : all()) {
        if (s.proto != kTcp)
            continue;
        s.install();
        for (unsigned doff = 0; doff < 5; ++doff) {
            Packet in = s.packet();
            in.tcp().doff = static_cast<std::uint8_t>(doff);
            expect_pass(s, in, {FTCTL_R_BAD_LENGTH});
        }
        for (const unsigned payload : {0U, 3U, 39U}) {
            Packet in = s.packet(payload);
            in.tcp().doff = 15;
            expect_pass(s, in, {FTCTL_R_BAD_LENGTH});
        }
        Packet in = s.packet(40);
        in.tcp().doff = 15;
        expect_fast(s, in);
    }
}

TEST_CASE("frames cut short at every byte go to the stack", "[header]")
{
    for (const Scenario &s : all()) {
        s.install();
        const Bytes frame = s.packet(20).bytes();
        std::size_t refused = 0;
        for (std::size_t size = 0; size < frame.size(); ++size) {
            const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
            if (!Rig::get().ingress(s.hook, s.in_device(), cut)) {
                ++refused;
                continue;
            }
            expect_pass(s, cut, {FTCTL_R_BAD_LENGTH, FTCTL_R_NOT_IP});
        }
        // The kernel makes no test run with less than a MAC header (XDP) or an IP header (TC).
        CHECK(refused == (s.hook == Hook::xdp ? 14 : s.first_v6() ? 54 : 34));
    }
}

TEST_CASE("frames cut short whose lengths were adjusted go to the stack", "[header]")
{
    for (const Scenario &s : all()) {
        s.install();
        const std::size_t header = s.proto == kTcp ? 20 : 8;
        for (std::size_t left = 0; left < header; ++left) {
            Packet in = s.packet(0);
            Packet cut = in;
            cut.l4 = std::monostate{};
            cut.payload.clear();
            const Bytes full = in.bytes();
            cut.payload.assign(full.end() - static_cast<std::ptrdiff_t>(header),
                               full.end() - static_cast<std::ptrdiff_t>(header - left));
            expect_pass(s, cut, {FTCTL_R_BAD_LENGTH});
        }
    }
}

TEST_CASE("padding is trimmed", "[header]")
{
    for (const Scenario &s : all()) {
        s.install();
        Packet in = s.packet(0);
        expect_fast(s, in.pad_to_minimum());
        for (const std::size_t pad : {1U, 2U, 4U, 18U, 300U}) {
            in = s.packet(100);
            in.pad = pad;
            expect_fast(s, in);
        }
    }
}

TEST_CASE("protocols other than TCP and UDP go to the stack", "[header]")
{
    for (const Scenario &s : all()) {
        s.install();
        for (const std::uint8_t proto :
             {kIcmp, kGre, kEsp, kSctp, Proto{41}, Proto{0}, Proto{136}, Proto{255}}) {
            Packet in = s.packet();
            in.ip.proto = proto;
            // Admitted by mistake: the flow exists, and still the packet is not the fast path's.
            ftctl_tuple key = s.key();
            key.iif_proto = (key.iif_proto & 0xffffff) | static_cast<std::uint32_t>(proto) << 24;
            Rig::get().set_flow(key, s.flow());
            // 41 is a tunnel's, and what it holds here is no IPv6
            const unsigned other =
                proto == kIpv6 || (proto == 0 && s.v6) ? FTCTL_R_BAD_LENGTH : FTCTL_R_PROTOCOL;
            expect_pass(
                s, in, {FTCTL_R_PROTOCOL, other, proto == 0 && s.v6 ? FTCTL_R_IP_OPTIONS : FTCTL_R_PROTOCOL});
        }
    }
}
