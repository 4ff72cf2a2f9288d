// SPDX-License-Identifier: GPL-2.0-only
// What the tun driver decides where IPv6 is inside, outside or both.
#include "tunnel/rules.h"

#include <array>

#include <catch2/catch.hpp>

#include "tunnel/icmp_error.h"
#include "tunnel/offload.h"
#include "tunnel_packets6.h"

using namespace ftctl;
using namespace tunnel_test;

namespace {

using Mode = TunnelConfig::Mode;
using Encap = EncapDecision::Verdict;
using Decap = DecapDecision::Verdict;

TunnelConfig tunnel(Mode mode)
{
    TunnelConfig c;
    c.mode = mode;
    const bool four = outer_family(mode) == AF_INET;
    c.local = *IpAddr::parse(four ? "192.0.2.1" : "2001:db8:f::1");
    c.remote = *IpAddr::parse(four ? "198.51.100.1" : "2001:db8:e::1");
    return c;
}

/// A packet for the inside of this mode.
Bytes inner(Mode mode, std::uint8_t tos = 0, std::uint8_t ttl = 63, std::size_t length = 100)
{
    if (inner_family(mode) == AF_INET) {
        Ipv4Fields f;
        f.tos = tos;
        f.ttl = ttl;
        f.payload = Bytes(length - 20, 0x5a);
        return make_ipv4(f);
    }
    Ipv6Fields f;
    f.tclass = tos;
    f.hops = ttl;
    f.label = 0x54321;
    f.payload = Bytes(length - 40, 0x5a);
    return make_ipv6(f);
}

OuterHeader from_peer(std::uint8_t tclass = 0)
{
    return {*IpAddr::parse("2001:db8:e::1"), *IpAddr::parse("2001:db8:f::1"), tclass};
}

} // namespace

TEST_CASE("class, hop limit and flow label of each mode", "[tunnel]")
{
    const Mode mode = GENERATE(Mode::ip6ip6, Mode::ip4in6, Mode::ip6in4);
    CAPTURE(mode_name(mode));
    TunnelConfig c = tunnel(mode);
    const std::array<std::uint8_t, 4> outer_ecn{0, 1, 2, 2};
    for (std::uint8_t ecn = 0; ecn < 4; ++ecn) {
        const Bytes p = inner(mode, static_cast<std::uint8_t>(46 << 2 | ecn));
        c.tos = 0;
        CHECK(encap_packet(c, p, 0).tos == outer_ecn[ecn]);
        c.tos = 10 << 2;
        CHECK(encap_packet(c, p, 0).tos == (10 << 2 | outer_ecn[ecn]));
        c.tos = 1; // inherit
        CHECK(encap_packet(c, p, 0).tos == (46 << 2 | outer_ecn[ecn]));
    }
    for (const int hops : {1, 2, 63, 255}) {
        const Bytes p = inner(mode, 0, static_cast<std::uint8_t>(hops));
        c.ttl = 0;
        CHECK(encap_packet(c, p, 0).ttl == hops);
        c.ttl = 64;
        CHECK(encap_packet(c, p, 0).ttl == 64);
    }
    c.ttl = 0;
    CHECK(encap_packet(c, inner(mode, 0, 0), 0).verdict == Encap::drop);

    EncapDecision d = encap_packet(c, inner(mode), 0);
    CHECK(d.verdict == Encap::send);
    CHECK(d.length == 100);
    CHECK(d.flow_label == 0);
    CHECK_FALSE(d.encap_limit);
    CHECK(d.df == (mode == Mode::ip6in4));
    c.pmtudisc = false;
    CHECK_FALSE(encap_packet(c, inner(mode), 0).df); // ipip alone adds the inner packet's DF
    if (mode == Mode::ip6in4)
        return;
    c.flow_label = 0x12345;
    CHECK(encap_packet(c, inner(mode), 0).flow_label == 0x12345);
    c.flow_label_inherit = true;
    CHECK(encap_packet(c, inner(mode), 0).flow_label == (mode == Mode::ip6ip6 ? 0x54321U : 0U));
    c.encap_limit = 4;
    CHECK(encap_packet(c, inner(mode), 0).encap_limit == 4);
}

TEST_CASE("the size check of each mode", "[tunnel]")
{
    struct Row {
        Mode mode;
        int limit; ///< encapsulation limit, or -1
        std::uint32_t path;
        std::uint32_t largest; ///< inner packet that goes
        bool df;
    };
    const Row row =
        GENERATE(Row{Mode::ip6ip6, -1, 1500, 1460, false}, Row{Mode::ip6ip6, 4, 1500, 1452, false},
                 // 1280 is never refused: what does not fit then is lost, as in ip6_output()
                 Row{Mode::ip6ip6, -1, 1300, 1280, false}, Row{Mode::ip6ip6, 4, 1280, 1280, false},
                 Row{Mode::ip4in6, -1, 1500, 1460, false}, Row{Mode::ip4in6, 4, 1500, 1452, false},
                 Row{Mode::ip4in6, -1, 1280, 1240, false}, Row{Mode::ip6in4, -1, 1500, 1480, true},
                 Row{Mode::ip6in4, -1, 1300, 1280, true}, Row{Mode::ip6in4, -1, 1299, 1280, false},
                 Row{Mode::ip6in4, -1, 576, 1280, false});
    CAPTURE(mode_name(row.mode), row.limit, row.path);
    TunnelConfig c = tunnel(row.mode);
    if (row.limit >= 0)
        c.encap_limit = static_cast<std::uint8_t>(row.limit);
    EncapDecision d = encap_packet(c, inner(row.mode, 0, 63, row.largest), row.path);
    CHECK(d.verdict == Encap::send);
    CHECK(d.df == row.df);
    d = encap_packet(c, inner(row.mode, 0, 63, row.largest + 1), row.path); // IPv4: DF is clear, no matter
    CHECK(d.verdict == Encap::too_big);
    CHECK(d.mtu == row.largest);
    if (row.mode == Mode::ip6in4) { // without path MTU discovery nothing is refused
        c.pmtudisc = false;
        CHECK(encap_packet(c, inner(row.mode, 0, 63, 1500), row.path).verdict == Encap::send);
    }
}

TEST_CASE("6in4 over a path too small for IPv4 itself", "[tunnel]")
{
    CHECK(encap_packet(tunnel(Mode::ip6in4), inner(Mode::ip6in4), 87).verdict == Encap::drop);
}

TEST_CASE("what a tunnel does not carry", "[tunnel]")
{
    const Mode mode = GENERATE(Mode::ip6ip6, Mode::ip4in6, Mode::ip6in4);
    CAPTURE(mode_name(mode));
    const TunnelConfig c = tunnel(mode);
    const Bytes whole = inner(mode);
    for (std::size_t n = 0; n < whole.size(); ++n)
        CHECK(encap_packet(c, std::span(whole).first(n), 0).verdict == Encap::drop);
    Bytes p = whole;
    p.resize(p.size() + 6);
    CHECK(encap_packet(c, p, 0).length == whole.size());
    // the other family
    const Mode other = inner_family(mode) == AF_INET ? Mode::ip6ip6 : Mode::ip4in6;
    CHECK(encap_packet(c, inner(other), 0).verdict == Encap::drop);
}

TEST_CASE("ip6ip6 carries neither its own packets nor its peer's", "[tunnel]")
{
    const TunnelConfig c = tunnel(Mode::ip6ip6);
    const Bytes p = inner(Mode::ip6ip6);
    CHECK(encap_packet(c, make_outer6("2001:db8:f::1", "2001:db8:e::1", p), 0).verdict == Encap::drop);
    CHECK(encap_packet(c, make_outer6("2001:db8:f::1", "2001:db8:e::1", p, 0, 4), 0).verdict == Encap::drop);
    CHECK(encap_packet(c, make_outer6("2001:db8:f::1", "2001:db8:e::2", p), 0).verdict == Encap::send);
    Ipv6Fields f;
    f.src = "2001:db8:e::1"; // ip6_tnl_addr_conflict()
    CHECK(encap_packet(c, make_ipv6(f), 0).verdict == Encap::drop);
    f.src = "2001:db8:1::2";
    f.dst = "2001:db8:e::1"; // to the peer, but no tunnel packet
    CHECK(encap_packet(c, make_ipv6(f), 0).verdict == Encap::send);
}

TEST_CASE("an inner encapsulation limit counts down", "[tunnel]")
{
    TunnelConfig c = tunnel(Mode::ip6ip6);
    for (const bool own : {false, true}) {
        c.encap_limit = own ? std::optional<std::uint8_t>(4) : std::nullopt;
        for (const int limit : {255, 4, 1}) {
            const Bytes p = make_outer6("2001:db8:1::2", "2001:db8:2::2", inner(Mode::ip6ip6), 0, limit);
            const EncapDecision d = encap_packet(c, p, 0);
            CHECK(d.verdict == Encap::send);
            CHECK(d.encap_limit == limit - 1); // also where the tunnel itself sends none
        }
        const Bytes p = make_outer6("2001:db8:1::2", "2001:db8:2::2", inner(Mode::ip6ip6), 0, 0);
        const EncapDecision d = encap_packet(c, p, 0);
        CHECK(d.verdict == Encap::too_deep);
        CHECK(d.pointer == 44);
    }
}

TEST_CASE("finding the encapsulation limit", "[tunnel]")
{
    const auto find = [](std::uint8_t next, Bytes headers) {
        Ipv6Fields f;
        f.next = next;
        headers.resize(headers.size() + 16);
        f.payload = headers;
        return find_encap_limit(make_ipv6(f));
    };
    const Bytes option = limit_option(IPPROTO_UDP, 7);
    CHECK(find(IPPROTO_DSTOPTS, option) == 42);
    CHECK_FALSE(find(IPPROTO_UDP, option));
    CHECK_FALSE(find(IPPROTO_HOPOPTS, option)); // the option counts in destination options only
    const auto behind = [&](Bytes first) {
        first.insert(first.end(), option.begin(), option.end());
        return first;
    };
    CHECK(find(IPPROTO_HOPOPTS, behind({IPPROTO_DSTOPTS, 0, 1, 4, 0, 0, 0, 0})) == 50);
    CHECK(find(IPPROTO_ROUTING, behind({IPPROTO_DSTOPTS, 0, 0, 0, 0, 0, 0, 0})) == 50);
    CHECK(find(IPPROTO_AH, behind({IPPROTO_DSTOPTS, 0, 0, 0, 0, 0, 0, 0})) == 50);
    CHECK(find(IPPROTO_FRAGMENT, behind({IPPROTO_DSTOPTS, 0, 0, 0, 0, 0, 0, 1})) == 50); // atomic
    CHECK_FALSE(find(IPPROTO_FRAGMENT, behind({IPPROTO_DSTOPTS, 0, 0, 8, 0, 0, 0, 1})));
    CHECK(find(IPPROTO_DSTOPTS, {IPPROTO_UDP, 0, 0, 0, 4, 1, 9, 0}) == 44);   // Pad1 before
    CHECK_FALSE(find(IPPROTO_DSTOPTS, {IPPROTO_UDP, 0, 1, 4, 4, 1, 9, 0}));   // inside a PadN
    CHECK_FALSE(find(IPPROTO_DSTOPTS, {IPPROTO_UDP, 0, 1, 2, 0, 0, 4, 1}));   // cut off by the header's end
    CHECK_FALSE(find(IPPROTO_DSTOPTS, {IPPROTO_UDP, 0, 4, 2, 0, 0, 0, 0}));   // of another length
    CHECK_FALSE(find(IPPROTO_DSTOPTS, {IPPROTO_UDP, 255, 4, 1, 7, 1, 1, 0})); // longer than the packet
    CHECK(find(IPPROTO_DSTOPTS, behind({IPPROTO_DSTOPTS, 0, 1, 4, 0, 0, 0, 0})) == 50); // a second header

    // Whatever the bytes are: no read outside, and what is found is there.
    Ipv6Fields f;
    f.next = IPPROTO_HOPOPTS;
    f.payload = behind({IPPROTO_DSTOPTS, 0, 1, 4, 0, 0, 0, 0});
    const Bytes good = make_ipv6(f);
    for (std::size_t at = 4; at < good.size(); ++at) {
        for (int value = 0; value < 256; ++value) {
            const auto exact = std::make_unique<std::uint8_t[]>(good.size());
            std::copy(good.begin(), good.end(), exact.get());
            exact[at] = static_cast<std::uint8_t>(value);
            if (const auto found = find_encap_limit(std::span(exact.get(), good.size())))
                CHECK(*found + 3U <= good.size());
        }
    }
}

TEST_CASE("decapsulation follows RFC 6040 in every mode", "[tunnel]")
{
    const Mode mode = GENERATE(Mode::ip6ip6, Mode::ip4in6, Mode::ip6in4);
    CAPTURE(mode_name(mode));
    const TunnelConfig c = tunnel(mode);
    constexpr int kDrop = -1;
    const std::array<std::array<int, 4>, 4> expected{{
        // outer: Not-ECT, ECT(1), ECT(0), CE
        {0, 0, 0, kDrop}, // inner Not-ECT
        {1, 1, 1, 3},     // ECT(1)
        {2, 1, 2, 3},     // ECT(0)
        {3, 3, 3, 3},     // CE
    }};
    for (std::uint8_t in = 0; in < 4; ++in) {
        for (std::uint8_t out = 0; out < 4; ++out) {
            CAPTURE(int{in}, int{out});
            const auto tos = static_cast<std::uint8_t>(46 << 2 | in);
            const auto outer_tos = static_cast<std::uint8_t>(8 << 2 | out);
            Bytes p = inner(mode, tos);
            DecapDecision d;
            if (mode == Mode::ip6in4) {
                Bytes outer = make_outer("198.51.100.1", "192.0.2.1", p, outer_tos);
                outer[9] = IPPROTO_IPV6;
                fix_checksum(outer);
                d = decap_packet(c, outer);
                CHECK(d.offset == 20);
            } else {
                d = decap_payload(c, from_peer(outer_tos), p);
                CHECK(d.offset == 0);
            }
            if (expected[in][out] == kDrop) {
                CHECK(d.verdict == Decap::drop_ecn);
                continue;
            }
            REQUIRE(d.verdict == Decap::deliver);
            CHECK(d.tos == (46 << 2 | expected[in][out]));
            CHECK(d.length == p.size());
            const Bytes want = inner(mode, d.tos);
            set_tos(p, d.tos);
            CHECK(p == want);
        }
    }
}

TEST_CASE("only the peer's IPv6 packets are decapsulated", "[tunnel]")
{
    TunnelConfig c = tunnel(Mode::ip4in6);
    const Bytes p = inner(Mode::ip4in6);
    OuterHeader outer = from_peer();
    CHECK(decap_payload(c, outer, p).verdict == Decap::deliver);
    outer.src = *IpAddr::parse("2001:db8:e::2");
    CHECK(decap_payload(c, outer, p).verdict == Decap::drop);
    outer = from_peer();
    outer.dst = *IpAddr::parse("2001:db8:f::2");
    CHECK(decap_payload(c, outer, p).verdict == Decap::drop);
    CHECK(decap_payload(c, {}, p).verdict == Decap::drop);
    CHECK(decap_payload(c, from_peer(), inner(Mode::ip6ip6)).verdict == Decap::drop); // IPv6 under 4
    for (std::size_t n = 0; n < p.size(); ++n)
        CHECK(decap_payload(c, from_peer(), std::span(p).first(n)).verdict == Decap::drop);
    Bytes padded = p;
    padded.resize(p.size() + 5);
    CHECK(decap_payload(c, from_peer(), padded).length == p.size());

    // 6in4 wants protocol 41, and a plain IPv4 header before it.
    const TunnelConfig six = tunnel(Mode::ip6in4);
    Bytes outer4 = make_outer("198.51.100.1", "192.0.2.1", inner(Mode::ip6in4));
    CHECK(decap_packet(six, outer4).verdict == Decap::drop); // protocol 4
    outer4[9] = IPPROTO_IPV6;
    fix_checksum(outer4);
    CHECK(decap_packet(six, outer4).verdict == Decap::deliver);
    outer4[19] = 9;
    CHECK(decap_packet(six, outer4).verdict == Decap::drop);
}

TEST_CASE("IPv6 tunnels that cannot be are refused with what to do", "[tunnel]")
{
    for (const Mode mode : {Mode::ip6ip6, Mode::ip4in6, Mode::ip6in4}) {
        CAPTURE(mode_name(mode));
        CHECK(validate_tunnel(tunnel(mode)));
        const auto why = [&](auto change) {
            TunnelConfig c = tunnel(mode);
            change(c);
            const auto r = validate_tunnel(c);
            REQUIRE_FALSE(r);
            CHECK_FALSE(r.error().hint.empty());
            return r.error().why;
        };
        CHECK(why([](auto &c) { c.any = true; }) != "");
        CHECK(why([](auto &c) { c.dscp_copy = true; }) != "");
        CHECK(why([](auto &c) { c.fwmark_inherit = true; }) != "");
        CHECK(why([](auto &c) { c.isatap = true; }) != "");
        TunnelConfig no_local = tunnel(mode);
        no_local.local = {};
        CHECK(validate_tunnel(no_local).has_value() == (mode == Mode::ip6in4));
        if (mode == Mode::ip6in4)
            continue;
        CHECK_THAT(why([](auto &c) { c.flow_label = 0x100000; }), Catch::Contains("20 bits"));
        for (const char *bad : {"::", "::1", "ff02::1"})
            CHECK_THAT(why([&](auto &c) { c.remote = *IpAddr::parse(bad); }), Catch::Contains("no unicast"));
        CHECK_THAT(why([](auto &c) { c.remote = *IpAddr::parse("192.0.2.1"); }), Catch::Contains("IPv6"));
    }
    // Same ends, other protocol: they take different packets.
    CHECK_FALSE(tunnels_overlap(tunnel(Mode::ip6ip6), tunnel(Mode::ip4in6)));
    CHECK(tunnels_overlap(tunnel(Mode::ip6ip6), tunnel(Mode::ip6ip6)));
    TunnelConfig ipip = tunnel(Mode::ip6in4);
    ipip.mode = Mode::ipip;
    CHECK_FALSE(tunnels_overlap(tunnel(Mode::ip6in4), ipip));
}

TEST_CASE("ICMPv6 errors quote up to the minimum MTU", "[tunnel]")
{
    for (const std::size_t payload : {0, 8, 1191, 1192, 1193, 1460}) {
        CAPTURE(payload);
        Ipv6Fields f;
        f.payload = Bytes(payload, 0x3c);
        const Bytes p = make_ipv6(f);
        IcmpError e;
        build_packet_too_big(p, 1452, e);
        REQUIRE(e.length == 8 + std::min<std::size_t>(p.size(), 1232));
        const auto m = std::span(e.bytes).first(e.length);
        CHECK(int{m[0]} == 2);
        CHECK(int{m[1]} == 0);
        CHECK(get16(m, 4) == 0);
        CHECK(get16(m, 6) == 1452);
        CHECK(std::equal(m.begin() + 8, m.end(), p.begin()));
        CHECK(e.destination == *IpAddr::parse(f.src));
    }
    IcmpError e;
    build_parameter_problem(make_ipv6({}), 44, e);
    CHECK(int{e.bytes[0]} == 4);
    CHECK(int{e.bytes[1]} == 0);
    CHECK(get16(e.bytes, 6) == 44);
}

TEST_CASE("no ICMPv6 error about what may not have one", "[tunnel]")
{
    IcmpError e;
    const auto sent = [&](const Ipv6Fields &f) {
        build_packet_too_big(make_ipv6(f), 1452, e);
        return e.length != 0;
    };
    CHECK(sent({}));
    Ipv6Fields f;
    for (const char *bad : {"::", "ff02::1"}) {
        f.src = bad;
        CHECK_FALSE(sent(f));
    }
    f = {};
    f.dst = "ff0e::1";
    CHECK(sent(f)); // a packet too big to a group has an answer ...
    build_parameter_problem(make_ipv6(f), 44, e);
    CHECK(e.length == 0); // ... this has none
    f = {};
    f.next = IPPROTO_ICMPV6;
    for (int type = 0; type < 256; ++type) {
        f.payload = Bytes(16);
        f.payload[0] = static_cast<std::uint8_t>(type);
        CHECK(sent(f) == (type >= 128));
    }
    f.next = IPPROTO_HOPOPTS; // the error is behind an extension header
    f.payload = {IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0};
    CHECK_FALSE(sent(f));
    f.payload[8] = 128;
    CHECK(sent(f));
    f.payload[1] = 255; // beyond the end
    CHECK(sent(f));
}

TEST_CASE("unfinished checksums and aggregates of IPv6", "[tunnel]")
{
    VnetHeader h;
    REQUIRE(fill_vnet_header(make_udp6({}, 1, 2, Bytes(40, 7)), 1460, h));
    CHECK(int{h.flags} == 0);
    REQUIRE(fill_vnet_header(make_udp6({}, 1, 2, Bytes(40, 7), true), 1460, h));
    CHECK(h.flags == kVnetNeedsCsum);
    CHECK(h.csum_start == 40);
    CHECK(h.csum_offset == 6);
    REQUIRE(fill_vnet_header(make_tcp6({}, 0x10, Bytes(1400, 7), true), 1460, h));
    CHECK(h.csum_offset == 16);
    CHECK(int{h.gso_type} == 0); // fits
    REQUIRE(fill_vnet_header(make_tcp6({}, 0x10, Bytes(60000, 7), true), 1460, h));
    CHECK(h.gso_type == kVnetGsoTcp6);
    CHECK(h.gso_size == 1400);
    CHECK(h.hdr_len == 60);
    REQUIRE(fill_vnet_header(make_tcp6({}, 0x90, Bytes(60000, 7), true), 1460, h));
    CHECK(h.gso_type == (kVnetGsoTcp6 | kVnetGsoEcn));
    CHECK_FALSE(fill_vnet_header(make_udp6({}, 1, 2, Bytes(3000, 7), true), 1460, h));
    Ipv6Fields f;
    f.next = IPPROTO_DSTOPTS;
    const Bytes p = make_ipv6(f);
    REQUIRE(fill_vnet_header(p, 1460, h));
    CHECK(int{h.flags} == 0);
    CHECK_FALSE(fill_vnet_header(std::span(p).first(39), 1460, h));
}
