// SPDX-License-Identifier: GPL-2.0-only
#include "tunnel/rules.h"

#include <array>

#include <catch2/catch.hpp>

#include "tunnel_packets.h"

using namespace ftctl;
using namespace tunnel_test;

namespace {

using Encap = EncapDecision::Verdict;
using Decap = DecapDecision::Verdict;

const std::string kLocal = "192.0.2.1", kRemote = "198.51.100.1";

TunnelConfig ipip()
{
    TunnelConfig c;
    c.local = *IpAddr::parse(kLocal);
    c.remote = *IpAddr::parse(kRemote);
    return c;
}

Bytes with_tos(std::uint8_t tos)
{
    Ipv4Fields f;
    f.tos = tos;
    return make_ipv4(f);
}

} // namespace

TEST_CASE("encapsulation keeps the DSCP asked for and carries ECN outwards", "[tunnel]")
{
    // Row: inner ECN; CE becomes ECT(0) (RFC 3168, full functionality).
    const std::array<std::uint8_t, 4> outer_ecn{0, 1, 2, 2};
    for (std::uint8_t ecn = 0; ecn < 4; ++ecn) {
        for (const int dscp : {0, 46}) {
            const Bytes inner = with_tos(static_cast<std::uint8_t>(dscp << 2 | ecn));
            TunnelConfig c = ipip();
            CHECK(encap_packet(c, inner, 0).tos == outer_ecn[ecn]);
            c.tos = 10 << 2;
            CHECK(encap_packet(c, inner, 0).tos == (10 << 2 | outer_ecn[ecn]));
            c.tos = 10 << 2 | 2; // ECN bits of a fixed TOS do not count
            CHECK(encap_packet(c, inner, 0).tos == (10 << 2 | outer_ecn[ecn]));
            c.tos = 1; // inherit
            CHECK(encap_packet(c, inner, 0).tos == (dscp << 2 | outer_ecn[ecn]));
        }
    }
}

TEST_CASE("the outer TTL is fixed or the inner one", "[tunnel]")
{
    TunnelConfig c = ipip();
    for (const int ttl : {1, 2, 63, 255}) {
        Ipv4Fields f;
        f.ttl = static_cast<std::uint8_t>(ttl);
        c.ttl = 0;
        CHECK(encap_packet(c, make_ipv4(f), 0).ttl == ttl);
        c.ttl = 17;
        CHECK(encap_packet(c, make_ipv4(f), 0).ttl == 17);
    }
    Ipv4Fields dead;
    dead.ttl = 0;
    c.ttl = 0;
    CHECK(encap_packet(c, make_ipv4(dead), 0).verdict == Encap::drop);
}

TEST_CASE("DF and the size check follow tnl_update_pmtu", "[tunnel]")
{
    for (const bool pmtudisc : {false, true}) {
        for (const bool inner_df : {false, true}) {
            for (const std::size_t length : {1379, 1380, 1381, 1480}) {
                CAPTURE(pmtudisc, inner_df, length);
                TunnelConfig c = ipip();
                c.pmtudisc = pmtudisc;
                Ipv4Fields f;
                f.frag = inner_df ? 0x4000 : 0;
                f.payload = Bytes(length - 20, 0x5a);
                const Bytes p = make_ipv4(f);

                const EncapDecision unknown = encap_packet(c, p, 0);
                CHECK(unknown.verdict == Encap::send);
                CHECK(unknown.df == (pmtudisc || inner_df));
                CHECK(unknown.inner_df == inner_df);
                CHECK(unknown.length == length);

                const EncapDecision d = encap_packet(c, p, 1400);
                CHECK(d.verdict == (inner_df && length > 1380 ? Encap::too_big : Encap::send));
                if (d.verdict == Encap::too_big)
                    CHECK(d.mtu == 1380);
            }
        }
    }
}

TEST_CASE("what is no IPv4 packet is not encapsulated", "[tunnel]")
{
    const TunnelConfig c = ipip();
    Ipv4Fields f;
    f.options = 8;
    const Bytes whole = make_ipv4(f);
    for (std::size_t n = 0; n < whole.size(); ++n) {
        CAPTURE(n);
        CHECK(encap_packet(c, std::span(whole).first(n), 0).verdict == Encap::drop);
    }
    CHECK(encap_packet(c, whole, 0).verdict == Encap::send);

    Bytes p = whole;
    p[0] = 0x67;
    CHECK(encap_packet(c, p, 0).verdict == Encap::drop); // IPv6's version
    p[0] = 0x44;
    CHECK(encap_packet(c, p, 0).verdict == Encap::drop); // header of 16 bytes
    p[0] = 0x4f;
    CHECK(encap_packet(c, p, 0).verdict == Encap::send); // 60 bytes: options to the end
    p = whole;
    put16(p, 2, 27);
    CHECK(encap_packet(c, p, 0).verdict == Encap::drop); // total length inside the header

    p = whole;
    p.resize(p.size() + 6); // bytes after the packet are not sent
    CHECK(encap_packet(c, p, 0).length == whole.size());
}

TEST_CASE("a tunnel does not carry its own outer packets", "[tunnel]")
{
    const TunnelConfig c = ipip();
    const Bytes inner = make_ipv4({});
    CHECK(encap_packet(c, make_outer(kLocal, kRemote, inner), 0).verdict == Encap::drop);
    CHECK(encap_packet(c, make_outer("10.9.0.1", kRemote, inner), 0).verdict == Encap::drop); // masqueraded
    CHECK(encap_packet(c, make_outer(kLocal, "198.51.100.2", inner), 0).verdict == Encap::send);
    Ipv4Fields f;
    f.dst = kRemote;
    CHECK(encap_packet(c, make_ipv4(f), 0).verdict == Encap::send); // another protocol
}

TEST_CASE("decapsulation follows RFC 6040 as the kernel does it", "[tunnel]")
{
    constexpr int kDrop = -1;
    // [inner][outer]
    const std::array<std::array<int, 4>, 4> expected{{
        {0, 0, 0, kDrop}, // Not-ECT
        {1, 1, 1, 3},     // ECT(1)
        {2, 1, 2, 3},     // ECT(0)
        {3, 3, 3, 3},     // CE
    }};
    const TunnelConfig c = ipip();
    for (std::uint8_t in = 0; in < 4; ++in) {
        for (std::uint8_t out = 0; out < 4; ++out) {
            CAPTURE(int{in}, int{out});
            Bytes inner = with_tos(static_cast<std::uint8_t>(46 << 2 | in));
            const DecapDecision d =
                decap_packet(c, make_outer(kRemote, kLocal, inner, static_cast<std::uint8_t>(8 << 2 | out)));
            if (expected[in][out] == kDrop) {
                CHECK(d.verdict == Decap::drop_ecn);
                continue;
            }
            REQUIRE(d.verdict == Decap::deliver);
            CHECK(d.tos == (46 << 2 | expected[in][out]));
            CHECK(d.offset == 20);
            CHECK(d.length == inner.size());

            Bytes want = inner;
            want[1] = d.tos;
            fix_checksum(want);
            set_tos(inner, d.tos);
            CHECK(inner == want);
        }
    }
}

TEST_CASE("the checksum is corrected like csum16_add, zero included", "[tunnel]")
{
    // ECT(1) to CE adds 0xfffd, ECT(0) to CE 0xfffe, ECT(0) to ECT(1) 1.
    struct Row {
        std::uint8_t from, to;
        unsigned check, want;
    };
    for (const Row &row : {Row{1, 3, 0x0002, 0xffff}, Row{1, 3, 0x0000, 0xfffd}, Row{1, 3, 0xffff, 0xfffd},
                           Row{2, 3, 0x0001, 0xffff}, Row{2, 3, 0x0002, 0x0001}, Row{2, 1, 0xfffe, 0xffff},
                           Row{2, 1, 0xffff, 0x0001}, Row{2, 2, 0x1111, 0x1111}}) {
        CAPTURE(int{row.from}, int{row.to}, row.check);
        Bytes p = with_tos(row.from);
        put16(p, 10, row.check);
        set_tos(p, row.to);
        CHECK(get16(p, 10) == row.want);
        CHECK(p[1] == row.to);
    }
    // A wrong checksum stays exactly as wrong.
    Bytes bad = with_tos(2);
    put16(bad, 10, get16(bad, 10) ^ 0x0100);
    set_tos(bad, 3);
    CHECK(checksum(std::span(bad).first(20)) != 0);
}

TEST_CASE("only the peer's packets are decapsulated", "[tunnel]")
{
    TunnelConfig c = ipip();
    const Bytes inner = make_ipv4({});
    CHECK(decap_packet(c, make_outer(kRemote, kLocal, inner)).verdict == Decap::deliver);
    CHECK(decap_packet(c, make_outer("198.51.100.2", kLocal, inner)).verdict == Decap::drop);
    CHECK(decap_packet(c, make_outer(kRemote, "192.0.2.3", inner)).verdict == Decap::drop);
    CHECK(decap_packet(c, make_outer(kLocal, kRemote, inner)).verdict == Decap::drop);

    Bytes p = make_outer(kRemote, kLocal, inner);
    p[9] = IPPROTO_IPV6;
    CHECK(decap_packet(c, p).verdict == Decap::drop);
    for (const unsigned frag : {0x2000U, 0x0001U, 0x1fffU}) {
        p = make_outer(kRemote, kLocal, inner);
        put16(p, 6, frag);
        CHECK(decap_packet(c, p).verdict == Decap::drop);
    }
    p = make_outer(kRemote, kLocal, inner);
    put16(p, 6, 0x4000);
    CHECK(decap_packet(c, p).verdict == Decap::deliver);

    c.local = {};
    CHECK(decap_packet(c, make_outer(kRemote, "192.0.2.3", inner)).verdict == Decap::deliver);
}

TEST_CASE("truncated and inconsistent outer packets are dropped", "[tunnel]")
{
    const TunnelConfig c = ipip();
    Ipv4Fields f;
    f.options = 4;
    const Bytes inner = make_ipv4(f);
    const Bytes whole = make_outer(kRemote, kLocal, inner);
    for (std::size_t n = 0; n < whole.size(); ++n) {
        CAPTURE(n);
        CHECK(decap_packet(c, std::span(whole).first(n)).verdict == Decap::drop);
        // ... and when the outer header agrees with the cut, the inner one does not.
        if (n >= 20) {
            Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
            put16(cut, 2, static_cast<unsigned>(n));
            CHECK(decap_packet(c, cut).verdict == Decap::drop);
        }
    }
    Bytes p = whole;
    p[20] = 0x66;
    CHECK(decap_packet(c, p).verdict == Decap::drop); // IPv6 under protocol 4
    p = whole;
    put16(p, 22, 19);
    CHECK(decap_packet(c, p).verdict == Decap::drop); // inner total length below its header

    // Outer options are processed before; inner padding is cut off.
    Ipv4Fields o;
    o.src = kRemote;
    o.dst = kLocal;
    o.protocol = IPPROTO_IPIP;
    o.options = 12;
    o.payload = inner;
    o.payload.resize(inner.size() + 3);
    const DecapDecision d = decap_packet(c, make_ipv4(o));
    REQUIRE(d.verdict == Decap::deliver);
    CHECK(d.offset == 32);
    CHECK(d.length == inner.size());
}

TEST_CASE("tunnels that cannot be are refused with what to do", "[tunnel]")
{
    CHECK(validate_tunnel(ipip()));
    CHECK(validate_tunnel(ipip())->declared);
    const auto refuse = [](auto change, const char *why) {
        TunnelConfig c = ipip();
        change(c);
        const auto r = validate_tunnel(c);
        REQUIRE_FALSE(r);
        CHECK_THAT(r.error().why, Catch::Contains(why));
        CHECK_FALSE(r.error().hint.empty());
    };
    refuse([](auto &c) { c.remote = {}; }, "no remote");
    refuse([](auto &c) { c.remote = *IpAddr::parse("2001:db8::1"); }, "not an IPv4 address");
    refuse([](auto &c) { c.local = *IpAddr::parse("2001:db8::1"); }, "not an IPv4 address");
    refuse([](auto &c) { c.local = c.remote; }, "both");
    for (const char *bad : {"224.0.0.5", "255.255.255.255", "0.0.0.0", "127.0.0.1"}) {
        refuse([&](auto &c) { c.remote = *IpAddr::parse(bad); }, "no unicast");
        refuse([&](auto &c) { c.local = *IpAddr::parse(bad); }, "no unicast");
    }
    refuse([](auto &c) { c.ttl = 64, c.pmtudisc = false; }, "path MTU discovery");
    refuse([](auto &c) { c.fou = true; }, "FOU");
    TunnelConfig any = ipip();
    any.local = {};
    CHECK(validate_tunnel(any));
}

TEST_CASE("tunnels that would take each other's packets overlap", "[tunnel]")
{
    const TunnelConfig a = ipip();
    TunnelConfig b = ipip();
    CHECK(tunnels_overlap(a, b));
    b.local = {};
    CHECK(tunnels_overlap(a, b));
    b.local = *IpAddr::parse("192.0.2.77");
    CHECK_FALSE(tunnels_overlap(a, b));
    b = ipip();
    b.remote = *IpAddr::parse("198.51.100.2");
    CHECK_FALSE(tunnels_overlap(a, b));
    b = ipip();
    b.link = 3;
    CHECK(tunnels_overlap(a, b));
    TunnelConfig c = ipip();
    c.link = 4;
    CHECK_FALSE(tunnels_overlap(c, b));
}
