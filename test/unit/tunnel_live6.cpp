// SPDX-License-Identifier: GPL-2.0-only
// The tun driver with IPv6 inside, outside or both, against this kernel: bytes out, bytes in.
#include <catch2/catch.hpp>

#include "tunnel/tun_device.h"
#include "tunnel_lab6.h"

using namespace ftctl;
using namespace tunnel_test;

namespace {

const std::string kLocal6 = "2001:db8:f::1", kRemote6 = "2001:db8:e::1";

/// An inner datagram to the router's own address in the tunnel.
Bytes to_router(Mode mode, std::uint8_t tos, std::size_t payload = 50)
{
    if (inner_family(mode) == AF_INET) {
        Ipv4Fields f;
        f.src = "10.2.0.2";
        f.dst = "10.9.0.1";
        f.tos = tos;
        return make_udp(f, 7, 5000, Bytes(payload, 1));
    }
    Ipv6Fields f;
    f.src = "2001:db8:2::2";
    f.dst = "2001:db8:9::1";
    f.tclass = tos;
    return make_udp6(f, 7, 5000, Bytes(payload, 1));
}

/// What the peer sends around it.
Bytes from_peer(Mode mode, const Bytes &inner, std::uint8_t tos = 0, int limit = -1)
{
    if (outer_family(mode) == AF_INET6)
        return make_outer6(kRemote6, kLocal6, inner, tos, limit);
    Bytes p = make_outer("198.51.100.1", "192.0.2.1", inner, tos);
    p[9] = IPPROTO_IPV6;
    fix_checksum(p);
    return p;
}

bool is_from(const Bytes &p, std::uint8_t version, std::uint8_t next)
{
    return p[0] >> 4 == version && p[version == 6 ? 6 : 9] == next;
}

} // namespace

TEST_CASE("devices for IPv6 get the kernel's MTUs", "[live][tunnel]")
{
    Lab6 lab;
    struct Row {
        Mode mode;
        bool limit;
        unsigned under, want;
    };
    for (const Row &row : {Row{Mode::ip6ip6, false, 1500, 1460}, Row{Mode::ip6ip6, true, 1500, 1452},
                           Row{Mode::ip4in6, false, 1400, 1360}, Row{Mode::ip4in6, true, 1300, 1280},
                           Row{Mode::ip6in4, false, 1500, 1480}, Row{Mode::ip6in4, false, 1280, 1280}}) {
        CAPTURE(mode_name(row.mode), row.limit, row.under);
        sh("ip link set wan mtu " + std::to_string(row.under));
        TunnelConfig c = Lab6::config(row.mode);
        if (row.limit)
            c.encap_limit = 4;
        auto t = TunTunnel::create("tun0", c);
        REQUIRE(t);
        sh("ip link show dev tun0 | grep -q 'mtu " + std::to_string(row.want) + " '");
        REQUIRE((*t)->destroy());
    }
}

TEST_CASE("the outer IPv6 header on the wire", "[live][tunnel]")
{
    Lab6 lab;
    struct Row {
        Mode mode;
        std::uint8_t ttl, tos; ///< of the tunnel
        int limit;
        std::uint32_t label;
        bool label_inherit;
        std::uint8_t inner_tos;
        std::uint8_t want_hops, want_tos;
        std::uint32_t want_label;
    };
    const Row row =
        GENERATE(Row{Mode::ip6ip6, 64, 0, 4, 0, false, 46 << 2 | 3, 64, 2, 0},
                 Row{Mode::ip6ip6, 0, 1, -1, 0, true, 46 << 2 | 1, 33, 46 << 2 | 1, 0x2abcd},
                 Row{Mode::ip6ip6, 77, 8 << 2, 0, 0x12345, false, 0, 77, 8 << 2, 0x12345},
                 Row{Mode::ip4in6, 64, 0, -1, 0, false, 46 << 2, 64, 0, 0},
                 Row{Mode::ip4in6, 0, 1, 4, 0xfffff, false, 46 << 2 | 3, 33, 46 << 2 | 2, 0xfffff});
    CAPTURE(mode_name(row.mode), int{row.ttl}, int{row.tos}, row.limit, row.label);
    TunnelConfig c = Lab6::config(row.mode);
    c.ttl = row.ttl;
    c.tos = row.tos;
    c.flow_label = row.label;
    c.flow_label_inherit = row.label_inherit;
    if (row.limit >= 0)
        c.encap_limit = static_cast<std::uint8_t>(row.limit);
    auto t = Lab6::tunnel(c);
    Bytes inner;
    if (row.mode == Mode::ip4in6) {
        Udp udp("10.9.0.1", 5000, "10.2.0.2");
        udp.set(IP_TTL, 33);
        udp.set(IP_TOS, row.inner_tos);
        udp.send(100);
    } else {
        Udp6 udp("2001:db8:9::1", 5000, "2001:db8:2::2");
        udp.set(IPV6_UNICAST_HOPS, 33);
        udp.set(IPV6_TCLASS, row.inner_tos);
        udp.flow_label(0x2abcd);
        udp.send(100);
    }
    REQUIRE(pump(*t, [&] { return t->counters().encap == 1; }));
    const std::uint8_t protocol = row.mode == Mode::ip4in6 ? IPPROTO_IPIP : IPPROTO_IPV6;
    const std::uint8_t next = row.limit >= 0 ? std::uint8_t{IPPROTO_DSTOPTS} : protocol;
    const auto f = lab.wan->receive_if([&](const Bytes &p) { return is_from(p, 6, next); });
    REQUIRE(f);

    if (row.mode == Mode::ip4in6) {
        Ipv4Fields want;
        want.src = "10.9.0.1";
        want.tos = row.inner_tos;
        want.ttl = 33;
        const std::size_t at = f->packet.size() - 128;
        want.id = static_cast<std::uint16_t>(get16(f->packet, at + 4));
        want.frag = static_cast<std::uint16_t>(get16(f->packet, at + 6));
        inner = make_udp(want, 5000, 7, Bytes(100, 0x42));
    } else {
        Ipv6Fields want;
        want.src = "2001:db8:9::1";
        want.tclass = row.inner_tos;
        want.hops = 33;
        want.label = 0x2abcd;
        inner = make_udp6(want, 5000, 7, Bytes(100, 0x42));
    }
    Ipv6Fields outer;
    outer.src = kLocal6;
    outer.dst = kRemote6;
    outer.next = next;
    outer.tclass = row.want_tos;
    outer.hops = row.want_hops;
    outer.label = row.want_label;
    outer.payload = row.limit >= 0 ? limit_option(protocol, static_cast<std::uint8_t>(row.limit)) : Bytes();
    outer.payload.insert(outer.payload.end(), inner.begin(), inner.end());
    CHECK(f->packet == make_ipv6(outer));
    CHECK(t->counters().errors == 0);
    REQUIRE(t->destroy());
}

TEST_CASE("the outer IPv4 header of 6in4 on the wire", "[live][tunnel]")
{
    Lab6 lab;
    const bool pmtudisc = GENERATE(true, false);
    TunnelConfig c = Lab6::config(Mode::ip6in4);
    c.pmtudisc = pmtudisc;
    c.tos = 1;
    auto t = Lab6::tunnel(c);
    Udp6 udp("2001:db8:9::1", 5000, "2001:db8:2::2");
    udp.set(IPV6_UNICAST_HOPS, 33);
    udp.set(IPV6_TCLASS, 46 << 2 | 3);
    udp.send(100);
    REQUIRE(pump(*t, [&] { return t->counters().encap == 1; }));
    const auto f = lab.wan->receive_if([](const Bytes &p) { return is_from(p, 4, IPPROTO_IPV6); });
    REQUIRE(f);
    Ipv6Fields in;
    in.src = "2001:db8:9::1";
    in.tclass = 46 << 2 | 3;
    in.hops = 33;
    Ipv4Fields want;
    want.src = "192.0.2.1";
    want.dst = "198.51.100.1";
    want.protocol = IPPROTO_IPV6;
    want.tos = 46 << 2 | 2;
    want.ttl = 33;
    want.id = static_cast<std::uint16_t>(get16(f->packet, 4));
    want.frag = pmtudisc ? 0x4000 : 0;
    want.payload = make_udp6(in, 5000, 7, Bytes(100, 0x42));
    CHECK(f->packet == make_ipv4(want));
    REQUIRE(t->destroy());
}

TEST_CASE("the packet inside as it is delivered, in every mode", "[live][tunnel]")
{
    Lab6 lab;
    const Mode mode = GENERATE(Mode::ip6ip6, Mode::ip4in6, Mode::ip6in4);
    CAPTURE(mode_name(mode));
    auto t = Lab6::tunnel(Lab6::config(mode));
    std::optional<Udp> udp4;
    std::optional<Udp6> udp6;
    if (inner_family(mode) == AF_INET)
        udp4.emplace("10.9.0.1", std::uint16_t{5000});
    else
        udp6.emplace("2001:db8:9::1", std::uint16_t{5000});
    const auto receive = [&] { return udp4 ? udp4->receive() : udp6->receive(); };
    unsigned delivered = 0, dropped = 0;
    for (const int limit : {-1, 4}) { // our own sending none says nothing about the peer
        if (limit >= 0 && mode == Mode::ip6in4)
            continue;
        for (std::uint8_t inner = 0; inner < 4; ++inner) {
            for (std::uint8_t outer = 0; outer < 4; ++outer) {
                CAPTURE(limit, int{inner}, int{outer});
                const Bytes p = to_router(mode, static_cast<std::uint8_t>(10 << 2 | inner));
                lab.wan->send(from_peer(mode, p, outer, limit));
                if (inner == 0 && outer == 3) {
                    ++dropped;
                    REQUIRE(pump(*t, [&] { return t->counters().dropped_ecn == dropped; }));
                    CHECK_FALSE(receive());
                    continue;
                }
                ++delivered;
                std::optional<Udp::Datagram> d;
                REQUIRE(pump(*t, [&] { return (d = receive()).has_value(); }));
                const int ecn = inner == 0 ? 0 : outer == 3 ? 3 : inner == 2 && outer == 1 ? 1 : inner;
                CHECK(d->tos == (10 << 2 | ecn));
                CHECK(d->size == 50);
            }
        }
    }
    CHECK(t->counters().decap == delivered);
    CHECK(t->counters().errors == 0);
    REQUIRE(t->destroy());
}

TEST_CASE("two IPv6 tunnels with the same ends, one for each family", "[live][tunnel]")
{
    Lab6 lab;
    auto six = Lab6::tunnel(Lab6::config(Mode::ip6ip6));
    auto four = TunTunnel::create("tun1", Lab6::config(Mode::ip4in6));
    REQUIRE(four);
    sh("ip link set tun1 up && ip route replace 10.2.0.0/24 dev tun1");
    Udp udp4("10.9.0.1", 5000);
    Udp6 udp6("2001:db8:9::1", 5000);

    const Bytes p = to_router(Mode::ip6ip6, 0);
    lab.wan->send(make_outer6("2001:db8:e::2", kLocal6, p));  // a stranger
    lab.wan->send(make_outer6(kRemote6, "2001:db8:1::1", p)); // to another address of ours
    lab.wan->send(from_peer(Mode::ip4in6, to_router(Mode::ip4in6, 0, 60)));
    lab.wan->send(from_peer(Mode::ip6ip6, p));
    std::optional<Udp::Datagram> d;
    REQUIRE(pump(*six, [&] { return (d = udp6.receive()).has_value(); }));
    CHECK_FALSE(udp6.receive());
    REQUIRE(pump(**four, [&] { return (d = udp4.receive()).has_value(); }));
    CHECK(d->size == 60);
    CHECK(six->counters().decap == 1);
    CHECK(six->counters().errors == 0);
    CHECK((*four)->counters().decap == 1);
    CHECK((*four)->counters().errors == 0);
}

TEST_CASE("nothing is sent from an address that is not this machine's", "[live][tunnel]")
{
    Lab6 lab;
    TunnelConfig c = Lab6::config(Mode::ip4in6);
    c.local = *IpAddr::parse("2001:db8:f::55");
    auto t = Lab6::tunnel(c);
    Udp udp("10.9.0.1", 5000, "10.2.0.2");
    udp.send(10);
    REQUIRE(pump(*t, [&] { return t->counters().errors == 1; }));
    sh("ip addr add 2001:db8:f::55/64 dev wan nodad");
    Lab6::wait_local("2001:db8:f::55");
    udp.send(10);
    REQUIRE(pump(*t, [&] { return t->counters().encap == 1; }));
    const auto f = lab.wan->receive(IPPROTO_IPIP);
    REQUIRE(f);
    CHECK(std::memcmp(f->packet.data() + 8, c.local.bytes.data(), 16) == 0);
}

TEST_CASE("an IPv6 aggregate leaves as it should have", "[live][tunnel]")
{
    Lab6 lab;
    const Mode mode = GENERATE(Mode::ip6ip6, Mode::ip6in4);
    CAPTURE(mode_name(mode));
    auto t = Lab6::tunnel(Lab6::config(mode));
    Ipv6Fields f;
    f.src = "2001:db8:2::2";
    f.dst = "2001:db8:1::2";
    f.hops = 9;
    const Bytes big = make_tcp6(f, 0x10, Bytes(10000, 0x11), true);
    const std::size_t header = outer_bytes(t->config());
    VnetHeader left{};
    left.flags = kVnetNeedsCsum;
    left.csum_start = static_cast<std::uint16_t>(header + 40);
    left.csum_offset = 16;
    left.gso_type = kVnetGsoTcp6;
    left.gso_size = 1380;
    left.hdr_len = static_cast<std::uint16_t>(header + 60);
    // A transmitting device would segment this one; a TUN device hands it in as GRO would have.
    const auto under = tun_open("under");
    REQUIRE(under);
    sh("ip link set under up");
    const Bytes outer = from_peer(mode, big);
    Bytes in(sizeof left);
    std::memcpy(in.data(), &left, sizeof left);
    in.insert(in.end(), outer.begin(), outer.end());
    REQUIRE(::write(under->fd.get(), in.data(), in.size()) == static_cast<ssize_t>(in.size()));
    REQUIRE(pump(*t, [&] { return t->counters().decap == 1; }));
    const auto out = lab.lan->receive(IPPROTO_TCP);
    REQUIRE(out);
    Bytes want = big;
    want[7] = 8;
    CHECK(out->packet == want);
    CHECK(out->offload.gso_type == kVnetGsoTcp6);
    CHECK(out->offload.gso_size == 1500 - header - 60);
    CHECK(out->offload.flags == kVnetNeedsCsum);
    CHECK(t->counters().errors == 0);
    REQUIRE(t->destroy());
}

TEST_CASE("an IPv6 tunnel whose remote is routed into itself does not spin", "[live][tunnel]")
{
    Lab6 lab;
    TunnelConfig c = Lab6::config(Mode::ip6ip6);
    if (GENERATE(false, true))
        c.encap_limit = 4;
    auto t = Lab6::tunnel(c);
    sh("ip route replace 2001:db8:e::1/128 dev tun0");
    Udp6 udp("2001:db8:9::1", 5000, "2001:db8:2::2");
    udp.send(10);
    REQUIRE(pump(*t, [&] { return t->counters().errors == 1; }));
    CHECK(t->counters().encap == 1); // sent into itself once, recognised there
    CHECK_FALSE(lab.wan->receive(IPPROTO_IPV6, 50ms));
    REQUIRE(t->destroy());
}
