// SPDX-License-Identifier: GPL-2.0-only
// What the tun driver does about packets that do not fit, and about encapsulation limits.
#include <catch2/catch.hpp>

#include "tunnel_lab6.h"

using namespace ftctl;
using namespace tunnel_test;

namespace {

/// From the machine behind `lan` to the one behind the tunnel, TTL and hop limit 64.
Bytes from_lan(Mode mode, std::size_t length, bool df = false)
{
    if (inner_family(mode) == AF_INET) {
        Ipv4Fields f;
        f.ttl = 64;
        f.frag = df ? 0x4000 : 0;
        f.payload = Bytes(length - 20, 0x77);
        return make_ipv4(f);
    }
    Ipv6Fields f;
    f.hops = 64;
    f.payload = Bytes(length - 40, 0x77);
    return make_ipv6(f);
}

/// The next ICMPv6 message of this type to `lan`.
std::optional<Frame> icmp6(Lab6 &lab, std::uint8_t type, std::chrono::milliseconds wait = 2000ms)
{
    return lab.lan->receive_if(
        [type](const Bytes &p) {
            return p[0] >> 4 == 6 && p[6] == IPPROTO_ICMPV6 && p.size() > 48 && p[40] == type;
        },
        wait);
}

/// An ICMPv6 error to `lan`'s machine about the packet it had sent.
void check_icmp6(const Frame &f, const Bytes &about, unsigned info)
{
    const Bytes &a = f.packet;
    CHECK(std::memcmp(a.data() + 8, IpAddr::parse("2001:db8:1::1")->bytes.data(), 16) == 0);
    CHECK(std::memcmp(a.data() + 24, IpAddr::parse("2001:db8:1::2")->bytes.data(), 16) == 0);
    CHECK(get16(a, 46) == info);
    Bytes quoted = about;
    quoted[7] = 63; // forwarded already
    quoted.resize(std::min<std::size_t>(quoted.size(), 1232));
    CHECK(Bytes(a.begin() + 48, a.end()) == quoted);
    CHECK(checksum(std::span(a).subspan(40), pseudo_sum6(a, IPPROTO_ICMPV6)) == 0);
}

} // namespace

TEST_CASE("a packet too big for the path is answered with the inner limit", "[live][tunnel]")
{
    Lab6 lab;
    struct Row {
        Mode mode;
        int limit;
        unsigned under;
        std::size_t largest;
    };
    const Row row = GENERATE(Row{Mode::ip6ip6, -1, 1400, 1360}, Row{Mode::ip6ip6, 4, 1400, 1352},
                             Row{Mode::ip4in6, -1, 1400, 1360}, Row{Mode::ip4in6, 4, 1400, 1352},
                             Row{Mode::ip4in6, -1, 1280, 1240}, Row{Mode::ip6in4, -1, 1400, 1380});
    CAPTURE(mode_name(row.mode), row.limit, row.under);
    TunnelConfig c = Lab6::config(row.mode);
    if (row.limit >= 0)
        c.encap_limit = static_cast<std::uint8_t>(row.limit);
    auto t = Lab6::tunnel(c);
    sh("ip link set wan mtu " + std::to_string(row.under));
    const Bytes p = from_lan(row.mode, row.largest + 1);
    lab.lan->send(p);
    REQUIRE(pump(*t, [&] { return t->counters().too_big == 1; }));
    if (row.mode == Mode::ip4in6) {
        const auto answer = lab.lan->receive(IPPROTO_ICMP); // although DF is clear
        REQUIRE(answer);
        CHECK(get16(answer->packet, 20) == 0x0304);
        CHECK(get16(answer->packet, 26) == row.largest);
        CHECK(checksum(std::span(answer->packet).subspan(20)) == 0);
    } else {
        const auto answer = icmp6(lab, 2);
        REQUIRE(answer);
        check_icmp6(*answer, p, static_cast<unsigned>(row.largest));
    }
    CHECK(t->counters().encap == 0);

    lab.lan->send(from_lan(row.mode, row.largest));
    REQUIRE(pump(*t, [&] { return t->counters().encap == 1; }));
    const auto out = lab.wan->receive_if([&](const Bytes &q) {
        return q.size() >= row.under && q[0] >> 4 == (row.mode == Mode::ip6in4 ? 4 : 6);
    });
    REQUIRE(out);
    CHECK(out->packet.size() == row.under);
    CHECK(t->counters().errors == 0);
    REQUIRE(t->destroy());
}

TEST_CASE("1280 bytes of IPv6 are not refused; what the path does not take is lost", "[live][tunnel]")
{
    Lab6 lab;
    auto t = Lab6::tunnel(Lab6::config(Mode::ip6ip6));
    sh("ip link set wan mtu 1300");
    lab.lan->send(from_lan(Mode::ip6ip6, 1280));
    REQUIRE(pump(*t, [&] { return t->counters().too_big == 1; }));
    CHECK_FALSE(icmp6(lab, 2, 50ms));
    lab.lan->send(from_lan(Mode::ip6ip6, 1281));
    REQUIRE(pump(*t, [&] { return t->counters().too_big == 2; }));
    const auto answer = icmp6(lab, 2);
    REQUIRE(answer);
    CHECK(get16(answer->packet, 46) == 1280);
}

TEST_CASE("6in4 over a small path is fragmented outside", "[live][tunnel]")
{
    Lab6 lab;
    auto t = Lab6::tunnel(Lab6::config(Mode::ip6in4));
    sh("ip link set wan mtu 1000");
    Bytes inner = from_lan(Mode::ip6in4, 1280);
    lab.lan->send(inner);
    REQUIRE(pump(*t, [&] { return t->counters().encap == 1; }));
    const auto outer = [&] {
        return lab.wan->receive_if([](const Bytes &p) { return p[0] >> 4 == 4 && p[9] == IPPROTO_IPV6; });
    };
    const auto first = outer(), second = outer();
    REQUIRE(first);
    REQUIRE(second);
    CHECK(get16(first->packet, 6) == 0x2000);
    Bytes joined(first->packet.begin() + 20, first->packet.end());
    joined.insert(joined.end(), second->packet.begin() + 20, second->packet.end());
    inner[7] = 63;
    CHECK(joined == inner);

    lab.lan->send(from_lan(Mode::ip6in4, 1281));
    REQUIRE(pump(*t, [&] { return t->counters().too_big == 1; }));
    const auto answer = icmp6(lab, 2);
    REQUIRE(answer);
    CHECK(get16(answer->packet, 46) == 1280);
}

TEST_CASE("a path MTU learnt from ICMPv6 reaches the inner source", "[live][tunnel]")
{
    Lab6 lab;
    const Mode mode = GENERATE(Mode::ip6ip6, Mode::ip4in6);
    const bool limit = GENERATE(false, true);
    CAPTURE(mode_name(mode), limit);
    TunnelConfig c = Lab6::config(mode);
    if (limit)
        c.encap_limit = 4;
    auto t = Lab6::tunnel(c);
    const std::size_t header = outer_bytes(c);
    lab.lan->send(from_lan(mode, 1500 - header));
    REQUIRE(pump(*t, [&] { return t->counters().encap == 1; }));
    const auto sent = lab.wan->receive_if([](const Bytes &p) { return p.size() == 1500; });
    REQUIRE(sent);

    // A router on the underlay says what its next link takes, about the packet it got.
    Ipv6Fields f;
    f.src = "2001:db8:f::9";
    f.dst = "2001:db8:f::1";
    f.next = IPPROTO_ICMPV6;
    f.payload = Bytes(8);
    f.payload[0] = 2;
    put16(f.payload, 6, 1400);
    f.payload.insert(f.payload.end(), sent->packet.begin(), sent->packet.begin() + 1232);
    Bytes answer = make_ipv6(f);
    put16(answer, 42, checksum(std::span(answer).subspan(40), pseudo_sum6(answer, IPPROTO_ICMPV6)));
    lab.wan->send(answer);

    const auto encap = t->counters().encap;
    REQUIRE(pump(*t, [&] {
        if (t->counters().too_big == 0)
            lab.lan->send(from_lan(mode, 1500 - header));
        return t->counters().too_big != 0;
    }));
    CHECK(t->counters().encap <= encap + 50); // those sent before the kernel had read the answer
    if (mode == Mode::ip4in6) {
        const auto told = lab.lan->receive(IPPROTO_ICMP);
        REQUIRE(told);
        CHECK(get16(told->packet, 26) == 1400 - header);
    } else {
        const auto told = icmp6(lab, 2);
        REQUIRE(told);
        CHECK(get16(told->packet, 46) == 1400 - header);
    }
    // One that fits goes, although the answer was still reported to the socket.
    const auto before = t->counters().encap;
    lab.lan->send(from_lan(mode, 1400 - header));
    CHECK(pump(*t, [&] { return t->counters().encap == before + 1; }));
    CHECK(t->counters().errors == 0);
    REQUIRE(t->destroy());
}

TEST_CASE("an answer from the underlay costs no packet", "[live][tunnel]")
{
    Lab6 lab;
    auto t = Lab6::tunnel(Lab6::config(Mode::ip4in6));
    lab.lan->send(from_lan(Mode::ip4in6, 100));
    REQUIRE(pump(*t, [&] { return t->counters().encap == 1; }));
    const auto sent = lab.wan->receive(IPPROTO_IPIP);
    REQUIRE(sent);
    Ipv6Fields f;
    f.src = "2001:db8:f::9";
    f.dst = "2001:db8:f::1";
    f.next = IPPROTO_ICMPV6;
    f.payload = Bytes(8);
    f.payload[0] = 1; // unreachable
    f.payload.insert(f.payload.end(), sent->packet.begin(), sent->packet.end());
    Bytes answer = make_ipv6(f);
    put16(answer, 42, checksum(std::span(answer).subspan(40), pseudo_sum6(answer, IPPROTO_ICMPV6)));
    lab.wan->send(answer);
    for (unsigned i = 2; i < 6; ++i) {
        lab.lan->send(from_lan(Mode::ip4in6, 100));
        REQUIRE(pump(*t, [&] { return t->counters().encap == i; }));
    }
    CHECK(t->counters().errors == 0);
}

TEST_CASE("a used-up encapsulation limit is answered with a parameter problem", "[live][tunnel]")
{
    Lab6 lab;
    auto t = Lab6::tunnel(Lab6::config(Mode::ip6ip6));
    const Bytes deepest = from_lan(Mode::ip6ip6, 100);
    Bytes p = make_outer6("2001:db8:1::2", "2001:db8:2::2", deepest, 0, 0);
    p[7] = 64;
    lab.lan->send(p);
    REQUIRE(pump(*t, [&] { return t->counters().errors == 1; }));
    const auto answer = icmp6(lab, 4);
    REQUIRE(answer);
    CHECK(int{answer->packet[41]} == 0);
    check_icmp6(*answer, p, 44);

    p[44] = 3;
    lab.lan->send(p);
    REQUIRE(pump(*t, [&] { return t->counters().encap == 1; }));
    const auto out = lab.wan->receive(IPPROTO_DSTOPTS);
    REQUIRE(out);
    CHECK(Bytes(out->packet.begin() + 40, out->packet.begin() + 48) == limit_option(IPPROTO_IPV6, 2));
}

TEST_CASE("this machine's own sockets learn what a tunnel takes", "[live][tunnel]")
{
    Lab6 lab;
    auto t = Lab6::tunnel(Lab6::config(Mode::ip6ip6));
    sh("ip link set wan mtu 1400");
    Udp6 udp("2001:db8:9::1", 5000, "2001:db8:2::2");
    udp.set(IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE); // whole, whatever is known
    udp.send(1412);
    REQUIRE(pump(*t, [&] { return t->counters().too_big == 1; }));
    CHECK(pump(*t, [&] { return udp.path_mtu() == 1360; }));
}
