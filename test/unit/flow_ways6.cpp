// SPDX-License-Identifier: GPL-2.0-only
// Ways of IPv6 connections, and through tunnels with IPv6 on either side.
#include <catch2/catch.hpp>

#include "flow/ways.h"
#include "flow_fakes.h"

using namespace ftctl;
using namespace ftctl::test;

namespace {

using Mode = TunnelConfig::Mode;

int refusal(const Decision<Ways> &ways)
{
    return ways ? 0 : ways.error().reason;
}

std::string detail(const Decision<Ways> &ways)
{
    return ways ? std::string() : ways.error().detail;
}

/// Device 9 of this mode over device 4, with the server of entry() and entry6() behind it.
Link &add_tunnel(FakeFib &fib, Mode mode)
{
    Link &tun = fib.add_link(9, "tun0");
    tun.type = 65534; // ARPHRD_NONE
    tun.mtu = 1500;   // never the limit, unless a test says so
    fib.attached_to.erase(9);
    TunnelConfig config;
    config.mode = mode;
    const bool four = outer_family(mode) == AF_INET;
    config.local = ip(four ? "203.0.113.1" : "2001:db8:f::1");
    config.remote = ip(four ? "203.0.113.2" : "2001:db8:f::2");
    tun.tunnel = config;
    fib.add_link(4, "underlay");
    fib.add_route("203.0.113.0/24", 4);
    fib.add_route("2001:db8:f::/64", 4);
    fib.add_route("198.51.100.0/24", 9);
    fib.add_route("2001:db8:2::/64", 9);
    return tun;
}

CtEntry entry_for(Mode mode)
{
    return inner_family(mode) == AF_INET ? entry() : entry6();
}

} // namespace

TEST_CASE("both ways of an IPv6 connection", "[flow][ways]")
{
    FakeFib fib;
    const auto ways = resolve_ways(entry6(), fib);
    REQUIRE(ways);
    CHECK(ways->orig.oif == 3);
    CHECK(ways->orig.next_hop == ip("2001:db8:2::2"));
    CHECK(ways->orig.mtu == 1500);
    CHECK(ways->reply.oif == 2);
    CHECK(ways->reply.next_hop == ip("2001:db8:1::2"));
    REQUIRE(fib.queries.size() == 3);
    CHECK(fib.queries[1].iif == 2);
    CHECK(fib.queries[1].sport == 40000);

    fib.add_route("2001:db8:2::/64", 3).gateway = ip("fe80::1"); // of that link
    CHECK(resolve_ways(entry6(), fib)->orig.next_hop == ip("fe80::1"));
}

TEST_CASE("what stands in the way of IPv6", "[flow][ways]")
{
    FakeFib fib;
    SECTION("hairpin: redirects cannot be switched off")
    {
        fib.redirects = false;
        fib.add_route("2001:db8:2::/64", 2);
        CHECK(refusal(resolve_ways(entry6(), fib)) == FTCTL_R_HAIRPIN);
    }
    SECTION("ends of two families")
    {
        CtEntry e = entry6();
        e.reply.src = ip("198.51.100.2");
        CHECK(refusal(resolve_ways(e, fib)) == FTCTL_R_FAMILY);
    }
    SECTION("rules of its own family only")
    {
        fib.policy = {AF_INET};
        CHECK(refusal(resolve_ways(entry6(), fib)) == 0);
        CHECK(refusal(resolve_ways(entry(), fib)) == FTCTL_R_POLICY_ROUTED);
        fib.policy = {AF_INET6};
        CHECK(refusal(resolve_ways(entry6(), fib)) == FTCTL_R_POLICY_ROUTED);
        CHECK(refusal(resolve_ways(entry(), fib)) == 0);
    }
    SECTION("next hops chosen by flow label")
    {
        fib.label_routes = true;
        CHECK(refusal(resolve_ways(entry6(), fib)) == FTCTL_R_MULTIPATH);
        CHECK(refusal(resolve_ways(entry(), fib)) == 0);
    }
    SECTION("not attached")
    {
        fib.attached_to.erase(3);
        CHECK(refusal(resolve_ways(entry6(), fib)) == FTCTL_R_DEVICE);
    }
}

TEST_CASE("the MTU of an IPv6 way", "[flow][ways]")
{
    FakeFib fib;
    fib.ipv6_mtus[3] = 1400; // a router advertisement may say less than the link takes
    CHECK(resolve_ways(entry6(), fib)->orig.mtu == 1400);
    CHECK(resolve_ways(entry(), fib)->orig.mtu == 1500);
    fib.links[3].mtu = 1300; // changed after the setting was read
    CHECK(resolve_ways(entry6(), fib)->orig.mtu == 1300);
    RouteAnswer &route = fib.add_route("2001:db8:2::/64", 3);
    route.mtu = 1290; // counts for ip6_forward() only when locked; the smaller is safe
    CHECK(resolve_ways(entry6(), fib)->orig.mtu == 1290);
    route.mtu = 0;
    route.mtu_locked = true;
    route.gateway = ip("fe80::1");
    CHECK(resolve_ways(entry6(), fib)->orig.mtu == 1300); // 576 behind a gateway is IPv4's
}

TEST_CASE("each tunnel mode has its outer header", "[flow][ways]")
{
    struct Row {
        Mode mode;
        std::uint16_t mtu;  ///< over 1500 bytes, without the encapsulation limit option
        std::uint8_t proto; ///< asked of the FIB
    };
    const Row row = GENERATE(Row{Mode::ipip, 1480, IPPROTO_IPIP}, Row{Mode::ip6ip6, 1460, IPPROTO_IPV6},
                             Row{Mode::ip4in6, 1460, IPPROTO_IPIP}, Row{Mode::ip6in4, 1480, IPPROTO_IPV6});
    CAPTURE(mode_name(row.mode));
    FakeFib fib;
    Link &tun = add_tunnel(fib, row.mode);
    const auto resolved = [&] { return resolve_ways(entry_for(row.mode), fib); };
    const auto ways = resolved();
    REQUIRE(ways);
    REQUIRE(ways->orig.tunnel);
    CHECK(ways->orig.tunnel->mode == row.mode);
    CHECK(ways->orig.l3_oif == 9);
    CHECK(ways->orig.oif == 4);
    CHECK(ways->orig.next_hop == tun.tunnel->remote);
    CHECK(ways->orig.mtu == row.mtu);
    CHECK_FALSE(ways->reply.tunnel);

    const RouteQuery q = underlay_query(*tun.tunnel);
    CHECK(q.proto == row.proto);
    CHECK(q.dst == tun.tunnel->remote);
    CHECK(q.src == tun.tunnel->local);
    tun.tunnel->tos = 0xb8;
    CHECK(underlay_query(*tun.tunnel).tos == 0xb8);
    tun.tunnel->tos = 1;
    CHECK(underlay_query(*tun.tunnel).tos == 0);

    const bool over6 = outer_family(row.mode) == AF_INET6;
    tun.tunnel->encap_limit = over6 ? std::optional<std::uint8_t>(4) : std::nullopt;
    CHECK(resolved()->orig.mtu == row.mtu - (over6 ? 8 : 0));
    fib.links[4].mtu = 1420;
    CHECK(resolved()->orig.mtu == row.mtu - (over6 ? 8 : 0) - 80);
    tun.mtu = 1300;
    CHECK(resolved()->orig.mtu == 1300);

    // The other family has no way through it.
    const auto other = resolve_ways(inner_family(row.mode) == AF_INET ? entry6() : entry(), fib);
    CHECK(refusal(other) == FTCTL_R_TUNNEL);
    CHECK_THAT(detail(other), Catch::StartsWith("tun0: no IPv"));

    // Rules about the underlay's family count, whatever is inside.
    fib.policy = {outer_family(row.mode)};
    CHECK(refusal(resolved()) == FTCTL_R_POLICY_ROUTED);
}

TEST_CASE("an any tunnel has the mode of the packets inside", "[flow][ways]")
{
    FakeFib fib;
    Link &tun = add_tunnel(fib, Mode::ip6ip6);
    tun.tunnel->any = true;
    const auto four = resolve_ways(entry(), fib), six = resolve_ways(entry6(), fib);
    REQUIRE(four);
    REQUIRE(six);
    CHECK(four->orig.tunnel->mode == Mode::ip4in6);
    CHECK(six->orig.tunnel->mode == Mode::ip6ip6);
    CHECK(four->orig != six->orig); // two paths: the headers differ
    CHECK_FALSE(four->orig.tunnel->any);
}

TEST_CASE("MTUs under tunnels with IPv6", "[flow][ways]")
{
    FakeFib fib;
    SECTION("the device's own for IPv6, inside and outside")
    {
        add_tunnel(fib, Mode::ip6ip6);
        fib.ipv6_mtus[4] = 1400;
        CHECK(resolve_ways(entry6(), fib)->orig.mtu == 1360);
        fib.ipv6_mtus[9] = 1350;
        CHECK(resolve_ways(entry6(), fib)->orig.mtu == 1350);
    }
    SECTION("IPv4 outside does not have it")
    {
        add_tunnel(fib, Mode::ip6in4);
        fib.ipv6_mtus[4] = 1400;
        CHECK(resolve_ways(entry6(), fib)->orig.mtu == 1480);
    }
    SECTION("a learnt path MTU")
    {
        add_tunnel(fib, Mode::ip4in6);
        fib.add_route("2001:db8:f::/64", 4).mtu = 1300;
        CHECK(resolve_ways(entry(), fib)->orig.mtu == 1260);
    }
    SECTION("6in4 over less than 1300 bytes is sent with DF clear")
    {
        add_tunnel(fib, Mode::ip6in4);
        fib.links[4].mtu = 1300;
        CHECK(resolve_ways(entry6(), fib)->orig.mtu == 1280);
        fib.links[4].mtu = 1299;
        CHECK(refusal(resolve_ways(entry6(), fib)) == FTCTL_R_PATH);
    }
}

TEST_CASE("flow labels that the kernel draws", "[flow][ways]")
{
    FakeFib fib;
    Link &tun = add_tunnel(fib, Mode::ip6ip6);
    const auto drawn = [&](const CtEntry &e) {
        const auto ways = resolve_ways(e, fib);
        REQUIRE(ways);
        return ways->orig.tunnel->flow_label_drawn;
    };
    for (const int setting : {0, 1, 2, 3}) {
        CAPTURE(setting);
        fib.flow_labels = setting;
        *tun.tunnel = add_tunnel(fib, Mode::ip6ip6).tunnel.value();
        tun.tunnel->any = true;
        CHECK(drawn(entry6()) == (setting != 0));
        tun.tunnel->flow_label_inherit = true; // of an inner packet that may have none
        CHECK(drawn(entry6()) == (setting != 0));
        CHECK(drawn(entry()) == (setting != 0));
        tun.tunnel->flow_label_inherit = false;
        tun.tunnel->flow_label = 5;
        CHECK_FALSE(drawn(entry6()));
        // The tun driver's sockets send 0, unless the setting forces a label on them.
        tun.tunnel->flow_label = 0;
        tun.tunnel->declared = true;
        CHECK(drawn(entry6()) == (setting == 3));
    }
}

TEST_CASE("tunnel settings that cannot be reproduced", "[flow][ways]")
{
    const Mode mode = GENERATE(Mode::ip6ip6, Mode::ip4in6, Mode::ip6in4);
    CAPTURE(mode_name(mode));
    FakeFib fib;
    Link &tun = add_tunnel(fib, mode);
    const TunnelConfig good = *tun.tunnel;
    REQUIRE_FALSE(tunnel_obstacle(good));
    const auto refused = [&](auto change) {
        tun.tunnel = good;
        change(*tun.tunnel);
        return refusal(resolve_ways(entry_for(mode), fib)) == FTCTL_R_TUNNEL;
    };
    CHECK_FALSE(refused([](TunnelConfig &) {}));
    CHECK(refused([](TunnelConfig &c) { c.remote = {}; }));
    CHECK(refused([](TunnelConfig &c) { c.fou = true; }));
    CHECK(refused([](TunnelConfig &c) { c.collect_md = true; }));
    CHECK(refused([](TunnelConfig &c) { c.fwmark = 1; }));
    CHECK(refused([](TunnelConfig &c) { c.fwmark_inherit = true; }));
    CHECK(refused([](TunnelConfig &c) { c.isatap = true; }));
    CHECK(refused([](TunnelConfig &c) { c.mip6 = true; }));
    CHECK(refused([](TunnelConfig &c) { c.dscp_copy = true; }));
    CHECK(refused([](TunnelConfig &c) { c.pmtudisc = false; }) == (mode == Mode::ip6in4));
    CHECK(refused([](TunnelConfig &c) { c.local = {}; }) == (outer_family(mode) == AF_INET6));
}

TEST_CASE("the underlay of a tunnel with IPv6", "[flow][ways]")
{
    FakeFib fib;
    SECTION("a link-local next hop")
    {
        add_tunnel(fib, Mode::ip4in6);
        fib.add_route("2001:db8:f::/64", 4).gateway = ip("fe80::1");
        CHECK(resolve_ways(entry(), fib)->orig.next_hop == ip("fe80::1"));
    }
    SECTION("IPv4 outside over an IPv6 next hop")
    {
        add_tunnel(fib, Mode::ip6in4);
        fib.add_route("203.0.113.0/24", 4).gateway = ip("fe80::1");
        CHECK(refusal(resolve_ways(entry6(), fib)) == FTCTL_R_PATH);
    }
    SECTION("source of 6in4 chosen by the route")
    {
        add_tunnel(fib, Mode::ip6in4).tunnel->local = {};
        CHECK(resolve_ways(entry6(), fib)->orig.tunnel->local == ip("203.0.113.1"));
    }
    SECTION("the remote is this machine")
    {
        add_tunnel(fib, Mode::ip6ip6);
        fib.add_route("2001:db8:f::2/128", 1).type = RTN_LOCAL;
        CHECK(refusal(resolve_ways(entry6(), fib)) == FTCTL_R_LOCAL);
    }
}
