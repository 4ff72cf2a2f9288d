// SPDX-License-Identifier: GPL-2.0-only
// What the tun driver does about packets that do not fit.
#include <catch2/catch.hpp>

#include "tunnel_lab.h"

using namespace ftctl;
using namespace tunnel_test;

namespace {

/// A router on the underlay says what its next link takes, about the outer packet it got.
void answer_frag_needed(Wire &wan, const Bytes &about, unsigned mtu)
{
    Ipv4Fields f;
    f.src = "192.0.2.9";
    f.dst = "192.0.2.1";
    f.protocol = IPPROTO_ICMP;
    f.payload = Bytes(8);
    f.payload[0] = 3;
    f.payload[1] = 4;
    put16(f.payload, 6, mtu);
    f.payload.insert(f.payload.end(), about.begin(), about.begin() + 28);
    put16(f.payload, 2, checksum(f.payload));
    wan.send(make_ipv4(f));
}

Ipv4Fields from_lan(bool df, std::size_t length)
{
    Ipv4Fields f;
    f.ttl = 64;
    f.frag = df ? 0x4000 : 0;
    f.payload = Bytes(length - 20, 0x77);
    return f;
}

} // namespace

TEST_CASE("the path's MTU reaches this machine's sockets", "[live][tunnel]")
{
    Lab lab;
    auto t = Lab::tunnel();
    Udp udp("10.9.0.1", 5000, "10.2.0.2");
    udp.set(IP_MTU_DISCOVER, IP_PMTUDISC_PROBE); // DF, whatever is known
    udp.send(1452);
    REQUIRE(pump(*t, [&] { return t->counters().encap == 1; }));
    const auto f = lab.wan->receive(IPPROTO_IPIP);
    REQUIRE(f);
    REQUIRE(f->packet.size() == 1500);
    answer_frag_needed(*lab.wan, f->packet, 1400);

    REQUIRE(pump(*t, [&] {
        udp.send(1452);
        return t->counters().too_big != 0;
    }));
    CHECK(pump(*t, [&] { return udp.path_mtu() == 1380; }));
    CHECK(t->counters().errors == 0);
    const auto encap = t->counters().encap;
    udp.send(1352); // fits exactly
    CHECK(pump(*t, [&] { return t->counters().encap == encap + 1; }));
}

TEST_CASE("this machine's packets without DF are fragmented once the path is known", "[live][tunnel]")
{
    Lab lab;
    auto t = Lab::tunnel();
    sh("ip link set wan mtu 1400");
    Udp udp("10.9.0.1", 5000, "10.2.0.2");
    udp.set(IP_MTU_DISCOVER, IP_PMTUDISC_DONT);
    udp.send(1452);
    REQUIRE(pump(*t, [&] { return t->counters().too_big == 1; })); // the first is lost, as in the kernel
    REQUIRE(pump(*t, [&] { return udp.path_mtu() == 1380; }));
    udp.send(1452);
    REQUIRE(pump(*t, [&] { return t->counters().encap == 2; }));
    const auto first = lab.wan->receive(IPPROTO_IPIP);
    REQUIRE(first);
    CHECK(get16(first->packet, 6) == 0x4000);  // outer
    CHECK(get16(first->packet, 26) == 0x2000); // inner
}

TEST_CASE("a forwarded packet with DF is answered with the inner limit", "[live][tunnel]")
{
    Lab lab;
    auto t = Lab::tunnel();
    sh("ip link set wan mtu 1400");
    const Bytes p = make_ipv4(from_lan(true, 1381));
    lab.lan->send(p);
    REQUIRE(pump(*t, [&] { return t->counters().too_big == 1; }));
    const auto answer = lab.lan->receive(IPPROTO_ICMP);
    REQUIRE(answer);
    const Bytes &a = answer->packet;
    REQUIRE(a.size() == 576);
    CHECK(int{a[1]} == 0xc0);
    CHECK(get16(a, 6) == 0);
    CHECK(std::memcmp(a.data() + 12, IpAddr::parse("10.1.0.1")->bytes.data(), 4) == 0);
    CHECK(get16(a, 20) == 0x0304);
    CHECK(get16(a, 26) == 1380);
    CHECK(checksum(std::span(a).subspan(20)) == 0);
    Bytes quoted(p.begin(), p.begin() + 548);
    quoted[8] = 63; // forwarded already
    fix_checksum(quoted);
    CHECK(Bytes(a.begin() + 28, a.end()) == quoted);

    lab.lan->send(make_ipv4(from_lan(true, 1380)));
    REQUIRE(pump(*t, [&] { return t->counters().encap == 1; }));
    CHECK(lab.wan->receive(IPPROTO_IPIP)->packet.size() == 1400);
}

TEST_CASE("a forwarded packet without DF that outgrows the path is lost and counted", "[live][tunnel]")
{
    // As ip_fragment() does to the kernel's tunnel: the outer packet has DF.
    Lab lab;
    auto t = Lab::tunnel();
    sh("ip link set wan mtu 1400");
    lab.lan->send(make_ipv4(from_lan(false, 1381)));
    REQUIRE(pump(*t, [&] { return t->counters().too_big == 1; }));
    CHECK_FALSE(lab.lan->receive(IPPROTO_ICMP, 50ms));
    CHECK_FALSE(lab.wan->receive(IPPROTO_IPIP, 50ms));
    CHECK(t->counters().errors == 0);
}

TEST_CASE("without path MTU discovery the outer packet is fragmented", "[live][tunnel]")
{
    Lab lab;
    TunnelConfig c = Lab::config();
    c.pmtudisc = false;
    auto t = Lab::tunnel(c);
    sh("ip link set wan mtu 1300");
    Bytes inner = make_ipv4(from_lan(false, 1480));
    lab.lan->send(inner);
    REQUIRE(pump(*t, [&] { return t->counters().encap == 1; }));
    const auto first = lab.wan->receive(IPPROTO_IPIP), second = lab.wan->receive(IPPROTO_IPIP);
    REQUIRE(first);
    REQUIRE(second);
    CHECK(first->packet.size() == 1300);
    CHECK(get16(first->packet, 6) == 0x2000);
    CHECK(get16(second->packet, 6) == 1280 / 8);
    CHECK(get16(first->packet, 4) == get16(second->packet, 4));
    Bytes joined(first->packet.begin() + 20, first->packet.end());
    joined.insert(joined.end(), second->packet.begin() + 20, second->packet.end());
    inner[8] = 63;
    fix_checksum(inner);
    CHECK(joined == inner);

    lab.lan->send(make_ipv4(from_lan(true, 1281))); // inner DF is outer DF
    REQUIRE(pump(*t, [&] { return t->counters().too_big == 1; }));
    const auto answer = lab.lan->receive(IPPROTO_ICMP);
    REQUIRE(answer);
    CHECK(get16(answer->packet, 26) == 1280);
}

TEST_CASE("the client behind masquerade sees its own packet quoted", "[live][tunnel]")
{
    Lab lab;
    auto t = Lab::tunnel();
    sh("nft 'table ip t { chain post { type nat hook postrouting priority 100; oifname tun0 masquerade "
       "random; }; }'");
    sh("ip link set wan mtu 1400");
    Ipv4Fields f;
    f.frag = 0x4000;
    f.ttl = 64;
    lab.lan->send(make_udp(f, 5555, 7, Bytes(1452, 3)));
    REQUIRE(pump(*t, [&] { return t->counters().too_big == 1; }));
    const auto answer = lab.lan->receive(IPPROTO_ICMP);
    REQUIRE(answer);
    const Bytes &a = answer->packet;
    CHECK(get16(a, 20) == 0x0304);
    CHECK(get16(a, 26) == 1380);
    CHECK(std::memcmp(a.data() + 16, IpAddr::parse("10.1.0.2")->bytes.data(), 4) == 0);
    CHECK(std::memcmp(a.data() + 28 + 12, IpAddr::parse("10.1.0.2")->bytes.data(), 4) == 0);
    CHECK(get16(a, 28 + 20) == 5555);
}
