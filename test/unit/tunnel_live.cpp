// SPDX-License-Identifier: GPL-2.0-only
// The tun driver against this kernel: devices, bytes out, bytes in.
#include <catch2/catch.hpp>

#include "tunnel/tun_device.h"
#include "tunnel_lab.h"

using namespace ftctl;
using namespace tunnel_test;

namespace {

const std::string kLocal = "192.0.2.1", kRemote = "198.51.100.1";

Ipv4Fields to_router(std::uint8_t tos = 0)
{
    Ipv4Fields f;
    f.src = "10.2.0.2";
    f.dst = "10.9.0.1";
    f.tos = tos;
    return f;
}

} // namespace

TEST_CASE("the device outlives the daemon and goes with the tunnel", "[live][tunnel]")
{
    Lab lab;
    sh("ip link set wan mtu 1400");
    auto t = TunTunnel::create("tun0", Lab::config());
    REQUIRE(t);
    const std::uint32_t index = (*t)->ifindex();
    CHECK(index == if_nametoindex("tun0"));
    sh("ip link show dev tun0 | grep -q 'mtu 1380'");
    sh("! ip link show dev tun0 up | grep -q tun0");
    sh("ip link set tun0 up mtu 1300 && ip addr add 10.9.0.1/30 dev tun0 && ip route add 10.2.0.0/24 dev "
       "tun0");
    sh("! ip -6 addr show dev tun0 | grep -q fe80");

    const auto second = TunTunnel::create("tun0", Lab::config());
    REQUIRE_FALSE(second);
    CHECK(second.error().err == EBUSY);
    CHECK_FALSE(second.error().hint.empty());

    t->reset(); // the daemon ends
    sh("ip addr show dev tun0 | grep -q 10.9.0.1");
    t = TunTunnel::create("tun0", Lab::config());
    REQUIRE(t);
    CHECK((*t)->ifindex() == index);
    sh("ip link show dev tun0 up | grep -q 'mtu 1300'"); // what the user set stays
    sh("ip route get 10.2.0.9 | grep -q 'dev tun0 src 10.9.0.1'");

    REQUIRE((*t)->destroy());
    CHECK(if_nametoindex("tun0") == 0);
    CHECK((*t)->fds().empty());
    CHECK((*t)->destroy());
}

TEST_CASE("a tunnel may come before its route and address", "[live][tunnel]")
{
    Lab lab;
    TunnelConfig c = Lab::config("203.0.113.1");
    c.local = *IpAddr::parse("192.0.2.55");
    auto t = Lab::tunnel(c);
    sh("ip link show dev tun0 | grep -q 'mtu 1480'");
    Udp udp("10.9.0.1", 5000, "10.2.0.2");
    udp.send(10);
    CHECK(pump(*t, [&] { return t->counters().errors == 1; }));
    sh("ip route add 203.0.113.0/24 via 192.0.2.9 && ip addr add 192.0.2.55/24 dev wan");
    udp.send(10);
    CHECK(pump(*t, [&] { return t->counters().encap == 1; }));
    const auto f = lab.wan->receive(IPPROTO_IPIP);
    REQUIRE(f);
    CHECK(std::memcmp(f->packet.data() + 12, c.local.bytes.data(), 4) == 0);
}

TEST_CASE("names and devices that cannot be used are refused, and nothing stays", "[live][tunnel]")
{
    Lab lab;
    for (const char *name : {"", "tun%d", "a/b", "sixteen-letters-", ".."}) {
        const auto t = TunTunnel::create(name, Lab::config());
        REQUIRE_FALSE(t);
        CHECK(t.error().code == Code::usage);
    }
    CHECK_FALSE(TunTunnel::create("wan", Lab::config()));
    TunnelConfig c = Lab::config();
    c.link = 4000000;
    CHECK_FALSE(TunTunnel::create("tun9", c));
    CHECK(if_nametoindex("tun9") == 0);
    CHECK(if_nametoindex("tun0") == 0);
}

TEST_CASE("the outer header on the wire", "[live][tunnel]")
{
    Lab lab;
    struct Row {
        std::uint8_t ttl, tos; ///< of the tunnel
        bool pmtudisc;
        std::uint8_t inner_tos;
        int inner_discover; ///< IP_PMTUDISC_*: DF of the inner packet
        std::uint8_t want_ttl, want_tos;
        bool want_df;
    };
    const Row row = GENERATE(Row{0, 0, true, 0, IP_PMTUDISC_DONT, 33, 0, true},
                             Row{0, 0, true, 46 << 2 | 3, IP_PMTUDISC_DO, 33, 2, true},
                             Row{77, 8 << 2, true, 46 << 2 | 1, IP_PMTUDISC_DONT, 77, 8 << 2 | 1, true},
                             Row{0, 1, false, 46 << 2 | 2, IP_PMTUDISC_DONT, 33, 46 << 2 | 2, false},
                             Row{0, 1, false, 0, IP_PMTUDISC_DO, 33, 0, true});
    CAPTURE(int{row.ttl}, int{row.tos}, row.pmtudisc, int{row.inner_tos}, row.inner_discover);
    TunnelConfig c = Lab::config();
    c.ttl = row.ttl;
    c.tos = row.tos;
    c.pmtudisc = row.pmtudisc;
    auto t = Lab::tunnel(c);
    Udp udp("10.9.0.1", 5000, "10.2.0.2");
    udp.set(IP_TTL, 33);
    udp.set(IP_TOS, row.inner_tos);
    udp.set(IP_MTU_DISCOVER, row.inner_discover);
    udp.send(100);
    REQUIRE(pump(*t, [&] { return t->counters().encap == 1; }));
    const auto f = lab.wan->receive(IPPROTO_IPIP);
    REQUIRE(f);
    const Bytes &p = f->packet;
    REQUIRE(p.size() == 20 + 20 + 8 + 100);
    CHECK(int{p[0]} == 0x45);
    CHECK(int{p[1]} == row.want_tos);
    CHECK(get16(p, 2) == p.size());
    CHECK(get16(p, 6) == (row.want_df ? 0x4000 : 0));
    CHECK(int{p[8]} == row.want_ttl);
    CHECK(checksum(std::span(p).first(20)) == 0);
    Ipv4Fields want;
    want.src = "10.9.0.1";
    want.tos = row.inner_tos;
    want.ttl = 33;
    want.id = static_cast<std::uint16_t>(get16(p, 24));
    want.frag = row.inner_discover == IP_PMTUDISC_DO ? 0x4000 : 0;
    CHECK(Bytes(p.begin() + 20, p.end()) == make_udp(want, 5000, 7, Bytes(100, 0x42)));
    REQUIRE(t->destroy());
}

// All flows of a tunnel may have their trickle due at once.
TEST_CASE("a burst waits until the tunnel reads it", "[live][tunnel]")
{
    Lab lab;
    auto t = Lab::tunnel();
    Udp udp("10.9.0.1", 5000, "10.2.0.2");
    constexpr unsigned burst = 4000;
    for (unsigned i = 0; i < burst; ++i)
        udp.send(10);
    CHECK(pump(*t, [&] { return t->counters().encap == burst; }));
    CHECK(t->counters().errors == 0);
}

TEST_CASE("the inner packet as it is delivered", "[live][tunnel]")
{
    Lab lab;
    auto t = Lab::tunnel();
    Udp udp("10.9.0.1", 5000);
    unsigned delivered = 0, dropped = 0;
    for (std::uint8_t inner = 0; inner < 4; ++inner) {
        for (std::uint8_t outer = 0; outer < 4; ++outer) {
            CAPTURE(int{inner}, int{outer});
            const Bytes p =
                make_udp(to_router(static_cast<std::uint8_t>(10 << 2 | inner)), 7, 5000, Bytes(50, 1));
            lab.wan->send(make_outer(kRemote, kLocal, p, outer));
            if (inner == 0 && outer == 3) {
                ++dropped;
                REQUIRE(pump(*t, [&] { return t->counters().dropped_ecn == dropped; }));
                CHECK_FALSE(udp.receive());
                continue;
            }
            ++delivered;
            std::optional<Udp::Datagram> d;
            REQUIRE(pump(*t, [&] { return (d = udp.receive()).has_value(); }));
            const int ecn = inner == 0 ? 0 : outer == 3 ? 3 : inner == 2 && outer == 1 ? 1 : inner;
            CHECK(d->tos == (10 << 2 | ecn)); // delivered at all: the header checksum is right
        }
    }
    CHECK(t->counters().decap == delivered);
    CHECK(t->counters().errors == 0);
}

TEST_CASE("only the peer is heard, and each tunnel hears its own", "[live][tunnel]")
{
    Lab lab;
    auto t = Lab::tunnel();
    auto other = TunTunnel::create("tun1", Lab::config("198.51.100.2"));
    REQUIRE(other);
    sh("ip link set tun1 up && ip route add 10.3.0.0/24 dev tun1");
    Udp udp("10.9.0.1", 5000);
    const Bytes p = make_udp(to_router(), 7, 5000, Bytes(50, 1));
    Ipv4Fields three = to_router();
    three.src = "10.3.0.2";
    const Bytes q = make_udp(three, 7, 5000, Bytes(60, 1));

    lab.wan->send(make_outer("198.51.100.3", kLocal, p)); // a stranger
    lab.wan->send(make_outer("198.51.100.2", kLocal, q)); // the other tunnel's peer
    lab.wan->send(make_outer(kRemote, kLocal, p));
    std::optional<Udp::Datagram> d;
    REQUIRE(pump(*t, [&] { return (d = udp.receive()).has_value(); }));
    CHECK(d->size == 50);
    CHECK_FALSE(udp.receive());
    REQUIRE(pump(**other, [&] { return (d = udp.receive()).has_value(); }));
    CHECK(d->size == 60);
    CHECK(t->counters().decap == 1);
    CHECK(t->counters().errors == 0);
    CHECK((*other)->counters().decap == 1);
    CHECK((*other)->counters().errors == 0);
}

TEST_CASE("a tunnel bound to a device hears no other", "[live][tunnel]")
{
    Lab lab;
    TunnelConfig c = Lab::config();
    c.link = if_nametoindex("wan");
    auto t = Lab::tunnel(c);
    Udp udp("10.9.0.1", 5000);
    lab.lan->send(make_outer(kRemote, kLocal, make_udp(to_router(), 7, 5000, Bytes(50, 1))));
    lab.wan->send(make_outer(kRemote, kLocal, make_udp(to_router(), 7, 5000, Bytes(60, 1))));
    std::optional<Udp::Datagram> d;
    REQUIRE(pump(*t, [&] { return (d = udp.receive()).has_value(); }));
    CHECK(d->size == 60);
    CHECK(t->counters().decap == 1);
}

TEST_CASE("an outer packet in fragments arrives whole", "[live][tunnel]")
{
    Lab lab;
    auto t = Lab::tunnel();
    Udp udp("10.9.0.1", 5000);
    const Bytes whole = make_outer(kRemote, kLocal, make_udp(to_router(), 7, 5000, Bytes(1400, 1)));
    constexpr std::ptrdiff_t cut = 20 + 800;
    Bytes first(whole.begin(), whole.begin() + cut), last(whole.begin(), whole.begin() + 20);
    last.insert(last.end(), whole.begin() + cut, whole.end());
    for (Bytes *p : {&first, &last}) {
        put16(*p, 2, static_cast<unsigned>(p->size()));
        put16(*p, 6, p == &first ? 0x2000 : 800 / 8);
        fix_checksum(*p);
    }
    lab.wan->send(last);
    lab.wan->send(first);
    std::optional<Udp::Datagram> d;
    REQUIRE(pump(*t, [&] { return (d = udp.receive()).has_value(); }));
    CHECK(d->size == 1400);
    CHECK(t->counters().decap == 1);
}

TEST_CASE("an unfinished checksum and an aggregate leave as they should have", "[live][tunnel]")
{
    Lab lab;
    auto t = Lab::tunnel();
    Udp udp("10.9.0.1", 5000);
    const Bytes p = make_udp(to_router(), 7, 5000, Bytes(50, 1), true);
    VnetHeader left{};
    left.flags = kVnetNeedsCsum;
    left.csum_start = 40;
    left.csum_offset = 6;
    lab.wan->send(make_outer(kRemote, kLocal, p), left);
    REQUIRE(pump(*t, [&] { return udp.receive().has_value(); }));

    Ipv4Fields f;
    f.src = "10.2.0.2";
    f.dst = "10.1.0.2";
    f.ttl = 9;
    const Bytes big = make_tcp(f, 0x10, Bytes(10000, 0x11), true);
    left.csum_offset = 16;
    left.gso_type = kVnetGsoTcp4;
    left.gso_size = 1400;
    left.hdr_len = 60;
    // A transmitting device would segment this one; a TUN device hands it in as GRO would have.
    const auto under = tun_open("under");
    REQUIRE(under);
    sh("ip link set under up");
    const Bytes outer = make_outer(kRemote, kLocal, big);
    Bytes in(sizeof left);
    std::memcpy(in.data(), &left, sizeof left);
    in.insert(in.end(), outer.begin(), outer.end());
    REQUIRE(::write(under->fd.get(), in.data(), in.size()) == static_cast<ssize_t>(in.size()));
    REQUIRE(pump(*t, [&] { return t->counters().decap == 2; }));
    const auto out = lab.lan->receive(IPPROTO_TCP);
    REQUIRE(out);
    Bytes want = big;
    want[8] = 8;
    fix_checksum(want);
    CHECK(out->packet == want); // still one, to be cut into ...
    CHECK(out->offload.gso_type == kVnetGsoTcp4);
    CHECK(out->offload.gso_size == 1440); // ... what the tunnel carries
    CHECK(out->offload.flags == kVnetNeedsCsum);
    CHECK(t->counters().errors == 0);
}

TEST_CASE("a tunnel whose remote is routed into itself does not spin", "[live][tunnel]")
{
    Lab lab;
    auto t = Lab::tunnel();
    sh("ip route replace 198.51.100.1/32 dev tun0");
    Udp udp("10.9.0.1", 5000, "10.2.0.2");
    udp.send(10);
    REQUIRE(pump(*t, [&] { return t->counters().errors == 1; }));
    CHECK(t->counters().encap == 1); // sent into itself once, recognised there
    CHECK_FALSE(lab.wan->receive(IPPROTO_IPIP, 50ms));
}
