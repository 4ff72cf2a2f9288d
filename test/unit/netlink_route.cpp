// SPDX-License-Identifier: GPL-2.0-only
#include <catch2/catch.hpp>

#include <netinet/in.h>

#include <linux/fib_rules.h>
#include <linux/if.h>
#include <linux/if_bridge.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_tunnel.h>
#include <linux/if_vlan.h>
#include <linux/ip6_tunnel.h>
#include <linux/neighbour.h>
#include <linux/nexthop.h>
#include <linux/rtnetlink.h>

#include "netlink/route_message.h"
#include "netlink_messages.h"

using namespace ftctl;
using netlink_test::Builder;
using netlink_test::maul;
using netlink_test::parse_exact;

namespace {

IpAddr ip(const char *text)
{
    return IpAddr::parse(text).value();
}

Builder route_message(std::uint8_t family, std::uint16_t type = RTM_NEWROUTE)
{
    Builder b(type, 0);
    auto &h = b.head<rtmsg>();
    h.rtm_family = family;
    h.rtm_type = RTN_UNICAST;
    h.rtm_table = RT_TABLE_MAIN;
    return b;
}

Builder link_message(std::uint8_t family = AF_UNSPEC, std::uint16_t type = RTM_NEWLINK)
{
    Builder b(type, 0);
    auto &h = b.head<ifinfomsg>();
    h.ifi_family = family;
    h.ifi_index = 5;
    h.ifi_type = 1;
    h.ifi_flags = IFF_UP;
    return b;
}

Builder full_link()
{
    Builder b = link_message();
    b.text(IFLA_IFNAME, "tun1").u32(IFLA_MTU, 1480).put(IFLA_ADDRESS, "\x02\0\0\0\0\x01", 6);
    b.u32(IFLA_LINK, 3).u32(IFLA_MASTER, 9).u8(IFLA_OPERSTATE, IF_OPER_UP).text(IFLA_QDISC, "fq_codel");
    b.nest(IFLA_XDP, [&] { b.u8(IFLA_XDP_ATTACHED, XDP_ATTACHED_DRV).u32(IFLA_XDP_PROG_ID, 42); });
    b.nest(IFLA_LINKINFO, [&] {
        b.text(IFLA_INFO_KIND, "ipip");
        b.nest(IFLA_INFO_DATA, [&] {
            b.u32(IFLA_IPTUN_LINK, 3).addr(IFLA_IPTUN_LOCAL, "203.0.113.1");
            b.addr(IFLA_IPTUN_REMOTE, "203.0.113.2").u8(IFLA_IPTUN_TTL, 64).u8(IFLA_IPTUN_TOS, 1);
            b.u8(IFLA_IPTUN_PROTO, IPPROTO_IPIP).u8(IFLA_IPTUN_PMTUDISC, 0).u32(IFLA_IPTUN_FWMARK, 5);
            b.u16(IFLA_IPTUN_ENCAP_TYPE, TUNNEL_ENCAP_NONE);
        });
        b.text(IFLA_INFO_SLAVE_KIND, "bridge");
    });
    return b;
}

std::optional<TunnelConfig> tunnel(const char *kind, const std::function<void(Builder &)> &data)
{
    Builder b = link_message();
    b.nest(IFLA_LINKINFO, [&] {
        b.nest(IFLA_INFO_DATA, [&] { data(b); }); // before the kind: order must not matter
        b.text(IFLA_INFO_KIND, kind);
    });
    const auto link = parse_exact(b.bytes(), nl::parse_link);
    return link ? link->tunnel : std::nullopt;
}

} // namespace

TEST_CASE("netlink: a route answer", "[netlink]")
{
    Builder b = route_message(AF_INET);
    b.u32(RTA_OIF, 4).addr(RTA_GATEWAY, "198.51.100.2").addr(RTA_PREFSRC, "198.51.100.1");
    b.nest(RTA_METRICS, [&] { b.u32(RTAX_LOCK, 1U << RTAX_MTU).u32(RTAX_MTU, 1400); });
    b.u32(RTA_TABLE, 1000);
    const auto r = parse_exact(b.bytes(), nl::parse_route_answer);
    REQUIRE(r);
    CHECK(r->type == RTN_UNICAST);
    CHECK(r->oif == 4);
    CHECK(r->gateway == ip("198.51.100.2"));
    CHECK(r->prefsrc == ip("198.51.100.1"));
    CHECK(r->mtu == 1400);
    CHECK(r->mtu_locked);
    CHECK(r->table == 1000);
    maul(b.bytes(), nl::parse_route_answer);
}

TEST_CASE("netlink: an IPv4 route over an IPv6 next hop", "[netlink]")
{
    Builder b = route_message(AF_INET);
    std::array<std::uint8_t, 18> via{};
    const std::uint16_t family = AF_INET6;
    std::memcpy(via.data(), &family, 2);
    std::memcpy(via.data() + 2, ip("fe80::1").bytes.data(), 16);
    b.put(RTA_VIA, via.data(), via.size());
    const auto r = parse_exact(b.bytes(), nl::parse_route_answer);
    REQUIRE(r);
    CHECK(r->gateway == ip("fe80::1"));
    CHECK(r->table == RT_TABLE_MAIN);
    CHECK_FALSE(r->mtu_locked);
    maul(b.bytes(), nl::parse_route_answer);
}

TEST_CASE("netlink: FIB routes tell TOS, several next hops and nexthop objects", "[netlink]")
{
    Builder plain = route_message(AF_INET, RTM_DELROUTE);
    plain.addr(RTA_DST, "192.0.2.0").u32(RTA_OIF, 4);
    auto msg = plain.bytes();
    msg[sizeof(nlmsghdr) + offsetof(rtmsg, rtm_dst_len)] = 24;
    auto f = parse_exact(msg, nl::parse_fib_route);
    REQUIRE(f);
    CHECK(f->route.dst.str() == "192.0.2.0/24");
    CHECK(f->route.family == AF_INET);
    CHECK_FALSE(f->route.tos);
    CHECK_FALSE(f->route.multipath);
    CHECK_FALSE(f->nexthop_object);
    msg[sizeof(nlmsghdr) + offsetof(rtmsg, rtm_tos)] = 0x10;
    CHECK(parse_exact(msg, nl::parse_fib_route)->route.tos);
    msg[sizeof(nlmsghdr) + offsetof(rtmsg, rtm_dst_len)] = 33; // longer than an address
    CHECK_FALSE(parse_exact(msg, nl::parse_fib_route)->route.dst.addr);

    std::array<rtnexthop, 2> hops{};
    for (auto &h : hops)
        h.rtnh_len = sizeof(rtnexthop);
    Builder two = route_message(AF_INET6);
    two.put(RTA_MULTIPATH, hops.data(), sizeof(hops));
    CHECK(parse_exact(two.bytes(), nl::parse_fib_route)->route.multipath);
    maul(two.bytes(), nl::parse_fib_route);
    Builder one = route_message(AF_INET6);
    one.put(RTA_MULTIPATH, hops.data(), sizeof(rtnexthop));
    CHECK_FALSE(parse_exact(one.bytes(), nl::parse_fib_route)->route.multipath);

    Builder object = route_message(AF_INET);
    object.u32(RTA_NH_ID, 17);
    f = parse_exact(object.bytes(), nl::parse_fib_route);
    REQUIRE(f);
    CHECK(f->nexthop_object);
    CHECK(f->route.multipath); // until the object is known
    object.u32(RTA_OIF, 4);
    CHECK_FALSE(parse_exact(object.bytes(), nl::parse_fib_route)->route.multipath);

    std::array<nexthop_grp, 2> group{};
    Builder nh(RTM_NEWNEXTHOP, 0);
    nh.head<nhmsg>();
    nh.put(NHA_GROUP, group.data(), sizeof(group));
    CHECK(parse_exact(nh.bytes(), nl::is_nexthop_group));
    maul(nh.bytes(), nl::is_nexthop_group);
}

TEST_CASE("netlink: a tunnel link with everything", "[netlink]")
{
    const auto msg = full_link().bytes();
    const auto l = parse_exact(msg, nl::parse_link);
    REQUIRE(l);
    CHECK(l->index == 5);
    CHECK(l->name == "tun1");
    CHECK(l->kind == "ipip");
    CHECK(l->flags == IFF_UP);
    CHECK(l->carrier);
    CHECK(l->mtu == 1480);
    CHECK(l->mac.str() == "02:00:00:00:00:01");
    CHECK(l->lower == 3);
    CHECK(l->master == 9);
    CHECK(l->master_kind == "bridge");
    CHECK(l->qdisc == "fq_codel");
    CHECK(l->xdp_prog_id == 42);
    CHECK(l->xdp_mode == XDP_ATTACHED_DRV);
    REQUIRE(l->tunnel);
    CHECK(l->tunnel->mode == TunnelConfig::Mode::ipip);
    CHECK(l->tunnel->local == ip("203.0.113.1"));
    CHECK(l->tunnel->remote == ip("203.0.113.2"));
    CHECK(l->tunnel->ttl == 64);
    CHECK(l->tunnel->tos == 1);
    CHECK_FALSE(l->tunnel->pmtudisc);
    CHECK(l->tunnel->link == 3);
    CHECK(l->tunnel->fwmark == 5);
    CHECK_FALSE(l->tunnel->fou);
    CHECK_FALSE(l->tunnel->collect_md);
    maul(msg, nl::parse_link);
}

TEST_CASE("netlink: tunnel kinds and what is refused of them", "[netlink]")
{
    using Mode = TunnelConfig::Mode;
    CHECK(tunnel("sit", [](Builder &) {})->mode == Mode::ip6in4);
    CHECK(tunnel("sit", [](Builder &b) { b.u8(IFLA_IPTUN_PROTO, IPPROTO_IPIP); })->mode == Mode::ipip);
    CHECK(tunnel("ip6tnl", [](Builder &b) { b.u8(IFLA_IPTUN_PROTO, IPPROTO_IPIP); })->mode == Mode::ip4in6);
    CHECK(tunnel("ip6tnl", [](Builder &b) { b.u8(IFLA_IPTUN_PROTO, IPPROTO_IPV6); })->mode == Mode::ip6ip6);
    CHECK_FALSE(tunnel("ipip", [](Builder &b) { b.u8(IFLA_IPTUN_PROTO, IPPROTO_MPLS); }));
    CHECK_FALSE(tunnel("gre", [](Builder &) {}));
    CHECK(tunnel("ipip", [](Builder &b) { b.u16(IFLA_IPTUN_ENCAP_TYPE, TUNNEL_ENCAP_GUE); })->fou);
    CHECK(tunnel("ipip", [](Builder &b) { b.put(IFLA_IPTUN_COLLECT_METADATA, nullptr, 0); })->collect_md);
    // "remote any" is no remote
    CHECK_FALSE(tunnel("ipip", [](Builder &b) { b.addr(IFLA_IPTUN_REMOTE, "0.0.0.0"); })->remote);

    const auto six = tunnel("ip6tnl", [](Builder &b) {
        b.addr(IFLA_IPTUN_LOCAL, "2001:db8::1")
            .be32(IFLA_IPTUN_FLOWINFO, 0x0b812345)
            .u32(IFLA_IPTUN_FLAGS, 0);
    });
    CHECK(six->local == ip("2001:db8::1"));
    CHECK(six->tos == 0xb8);
    CHECK(six->flow_label == 0x12345);
    CHECK_FALSE(six->flow_label_inherit);
    CHECK(tunnel("ip6tnl", [](Builder &b) { b.u32(IFLA_IPTUN_FLAGS, IP6_TNL_F_USE_ORIG_TCLASS); })->tos == 1);
    // the lowest bit of a fixed class is ECN's and must not read as "inherit"
    CHECK(tunnel("ip6tnl", [](Builder &b) { b.be32(IFLA_IPTUN_FLOWINFO, 0x00500000); })->tos == 4);
    CHECK(tunnel("sit", [](Builder &b) { b.u8(IFLA_IPTUN_TOS, 5); })->tos == 4);
    CHECK(tunnel("sit", [](Builder &b) { b.u8(IFLA_IPTUN_TOS, 1); })->tos == 1);
    for (const Mode m : {Mode::ipip, Mode::ip6ip6, Mode::ip4in6, Mode::ip6in4})
        CHECK(parse_mode(mode_name(m)) == m);
    CHECK_FALSE(parse_mode("gre"));
}

TEST_CASE("netlink: the settings of ip6tnl and sit devices", "[netlink]")
{
    using Mode = TunnelConfig::Mode;
    const auto flags = [](std::uint32_t f) {
        return *tunnel("ip6tnl", [f](Builder &b) {
            b.u32(IFLA_IPTUN_FLAGS, f).u8(IFLA_IPTUN_ENCAP_LIMIT, 4).be32(IFLA_IPTUN_FLOWINFO, 0x12345);
            b.u8(IFLA_IPTUN_TTL, 64);
        });
    };
    CHECK(flags(0).encap_limit == 4);
    CHECK(flags(0).ttl == 64);
    CHECK(flags(0).any == false); // protocol absent: IPv6 only
    CHECK_FALSE(flags(IP6_TNL_F_IGN_ENCAP_LIMIT).encap_limit);
    CHECK(flags(IP6_TNL_F_USE_ORIG_FLOWLABEL).flow_label_inherit);
    CHECK(flags(IP6_TNL_F_USE_ORIG_FLOWLABEL).flow_label == 0);
    CHECK(flags(IP6_TNL_F_RCV_DSCP_COPY).dscp_copy);
    CHECK(flags(IP6_TNL_F_USE_ORIG_FWMARK).fwmark_inherit);
    CHECK(flags(IP6_TNL_F_MIP6_DEV).mip6);
    const TunnelConfig plain = flags(IP6_TNL_F_IGN_ENCAP_LIMIT | IP6_TNL_F_ALLOW_LOCAL_REMOTE);
    CHECK_FALSE((plain.flow_label_inherit || plain.dscp_copy || plain.fwmark_inherit || plain.mip6));

    CHECK(tunnel("sit", [](Builder &b) { b.u16(IFLA_IPTUN_FLAGS, SIT_ISATAP); })->isatap);
    // Each sit device has a 6rd prefix (2002::/16 when none is set); with a remote it decides nothing.
    const auto sit = tunnel("sit", [](Builder &b) {
        b.addr(IFLA_IPTUN_6RD_PREFIX, "2002::").u16(IFLA_IPTUN_6RD_PREFIXLEN, 16).u16(IFLA_IPTUN_FLAGS, 0);
        b.addr(IFLA_IPTUN_REMOTE, "203.0.113.2").u8(IFLA_IPTUN_PMTUDISC, 1);
    });
    CHECK_FALSE(sit->isatap);
    CHECK(sit->remote == ip("203.0.113.2"));
    CHECK(sit->mode == Mode::ip6in4);
}

TEST_CASE("netlink: the packet inside decides the mode of an any tunnel", "[netlink]")
{
    using Mode = TunnelConfig::Mode;
    const auto any = [](const char *kind) {
        return *tunnel(kind, [](Builder &b) { b.u8(IFLA_IPTUN_PROTO, 0); });
    };
    CHECK(any("ip6tnl").any);
    CHECK(for_payload(any("ip6tnl"), AF_INET)->mode == Mode::ip4in6);
    CHECK(for_payload(any("ip6tnl"), AF_INET6)->mode == Mode::ip6ip6);
    CHECK_FALSE(for_payload(any("ip6tnl"), AF_INET6)->any);
    CHECK(for_payload(any("sit"), AF_INET)->mode == Mode::ipip);
    CHECK(for_payload(any("sit"), AF_INET6)->mode == Mode::ip6in4);
    CHECK_FALSE(any("ipip").any); // its other payload is MPLS
    CHECK_FALSE(for_payload(any("ipip"), AF_INET6));

    TunnelConfig one;
    one.mode = Mode::ip4in6;
    CHECK(for_payload(one, AF_INET) == one);
    CHECK_FALSE(for_payload(one, AF_INET6));
    CHECK(outer_bytes(one) == 40);
    one.encap_limit = 0; // a limit of 0 is sent as well
    CHECK(outer_bytes(one) == 48);
    one.mode = Mode::ip6in4;
    CHECK(outer_bytes(one) == 20);
    for (const Mode m : {Mode::ipip, Mode::ip6ip6, Mode::ip4in6, Mode::ip6in4}) {
        CHECK(outer_family(m) == (m == Mode::ipip || m == Mode::ip6in4 ? AF_INET : AF_INET6));
        CHECK(inner_family(m) == (m == Mode::ipip || m == Mode::ip4in6 ? AF_INET : AF_INET6));
    }
}

TEST_CASE("netlink: links of other families and namespaces", "[netlink]")
{
    CHECK_FALSE(parse_exact(link_message(AF_INET6, RTM_NEWLINK).bytes(), nl::parse_rt_event));
    CHECK_FALSE(parse_exact(link_message(AF_BRIDGE, RTM_DELLINK).bytes(), nl::parse_link));
    Builder b = link_message();
    b.u32(IFLA_LINK, 3).u32(IFLA_LINK_NETNSID, 0).u8(IFLA_OPERSTATE, IF_OPER_LOWERLAYERDOWN);
    b.nest(IFLA_XDP, [&] {
        b.u8(IFLA_XDP_ATTACHED, XDP_ATTACHED_MULTI).u32(IFLA_XDP_SKB_PROG_ID, 7).u32(IFLA_XDP_DRV_PROG_ID, 8);
    });
    const auto l = parse_exact(b.bytes(), nl::parse_link);
    REQUIRE(l);
    CHECK(l->lower == 0);
    CHECK_FALSE(l->carrier);
    CHECK(l->xdp_prog_id == 8);
    CHECK(l->xdp_mode == XDP_ATTACHED_MULTI);

    const auto gone = parse_exact(link_message(AF_UNSPEC, RTM_DELLINK).bytes(), nl::parse_rt_event);
    REQUIRE(gone);
    CHECK(std::get<LinkGone>(*gone).index == 5);
}

TEST_CASE("netlink: neighbours", "[netlink]")
{
    Builder b(RTM_NEWNEIGH, 0);
    auto &h = b.head<ndmsg>();
    h.ndm_family = AF_INET6;
    h.ndm_ifindex = 3;
    h.ndm_state = NUD_STALE;
    b.addr(NDA_DST, "2001:db8::2").put(NDA_LLADDR, "\x02\0\0\0\0\x02", 6);
    const auto n = parse_exact(b.bytes(), nl::parse_neigh);
    REQUIRE(n);
    CHECK(n->ifindex == 3);
    CHECK(n->addr == ip("2001:db8::2"));
    CHECK(n->mac.str() == "02:00:00:00:00:02");
    CHECK(n->valid());
    maul(b.bytes(), nl::parse_neigh);
    Neigh probe;
    for (const std::uint16_t s : {NUD_NONE, NUD_INCOMPLETE, NUD_FAILED}) {
        probe.state = s;
        CHECK_FALSE(probe.valid());
    }

    auto fdb = b.bytes();
    fdb[sizeof(nlmsghdr)] = AF_BRIDGE;
    CHECK_FALSE(parse_exact(fdb, nl::parse_neigh));
    auto proxy = b.bytes();
    proxy[sizeof(nlmsghdr) + offsetof(ndmsg, ndm_flags)] = static_cast<char>(NTF_PROXY);
    CHECK_FALSE(parse_exact(proxy, nl::parse_neigh));
}

TEST_CASE("netlink: addresses", "[netlink]")
{
    Builder b(RTM_DELADDR, 0);
    auto &h = b.head<ifaddrmsg>();
    h.ifa_family = AF_INET;
    h.ifa_index = 3;
    b.addr(IFA_ADDRESS, "192.0.2.9").addr(IFA_LOCAL, "192.0.2.1");
    const auto a = parse_exact(b.bytes(), nl::parse_addr);
    REQUIRE(a);
    CHECK(a->addr == ip("192.0.2.1")); // not the peer's
    CHECK(a->ifindex == 3);
    CHECK(a->gone);
    maul(b.bytes(), nl::parse_rt_event);
}

TEST_CASE("netlink: what rules match on", "[netlink]")
{
    const auto rule = [](const std::function<void(Builder &, fib_rule_hdr &)> &fill) {
        Builder b(RTM_NEWRULE, 0);
        auto &h = b.head<fib_rule_hdr>();
        h.family = AF_INET;
        fill(b, h);
        b.u32(FRA_TABLE, 254)
            .u32(FRA_PRIORITY, 1)
            .u32(FRA_SUPPRESS_PREFIXLEN, 0xffffffff)
            .u8(FRA_PROTOCOL, 2);
        maul(b.bytes(), nl::parse_rule);
        return parse_exact(b.bytes(), nl::parse_rule).value();
    };
    auto s = rule([](Builder &, fib_rule_hdr &) {});
    CHECK_FALSE((s.fwmark || s.tos || s.other || s.ports));
    s = rule([](Builder &b, fib_rule_hdr &) {
        b.addr(FRA_SRC, "192.0.2.0").text(FRA_IIFNAME, "eth0").u8(FRA_IP_PROTO, IPPROTO_TCP);
    });
    CHECK_FALSE((s.fwmark || s.tos || s.other));
    CHECK(s.ports);
    for (const int type : {+FRA_SPORT_RANGE, +FRA_DPORT_RANGE}) {
        s = rule([&](Builder &b, fib_rule_hdr &) { b.u32(static_cast<std::uint16_t>(type), 0x500050); });
        CHECK_FALSE((s.fwmark || s.tos || s.other));
        CHECK(s.ports);
    }
    s = rule([](Builder &b, fib_rule_hdr &) { b.addr(FRA_SRC, "192.0.2.0").text(FRA_IIFNAME, "eth0"); });
    CHECK_FALSE((s.fwmark || s.tos || s.other || s.ports));
    s = rule([](Builder &b, fib_rule_hdr &) { b.u32(FRA_FWMARK, 1); });
    CHECK((s.fwmark && !s.tos && !s.other));
    s = rule([](Builder &b, fib_rule_hdr &) { b.u32(FRA_FWMASK, 0xff); }); // "not marked" matches, too
    CHECK(s.fwmark);
    s = rule([](Builder &, fib_rule_hdr &h) { h.tos = 0x10; });
    CHECK((s.tos && !s.other));
    s = rule([](Builder &b, fib_rule_hdr &) { b.u8(25, 46); }); // FRA_DSCP
    CHECK((s.tos && !s.other));
    s = rule([](Builder &b, fib_rule_hdr &) { b.put(FRA_UID_RANGE, "\0\0\0\0\0\0\0\0", 8); });
    CHECK(s.other);
    s = rule([](Builder &b, fib_rule_hdr &) { b.u8(FRA_IP_PROTO, IPPROTO_GRE); });
    CHECK(s.other);
    s = rule([](Builder &b, fib_rule_hdr &) { b.u32(26, 1); }); // FRA_FLOWLABEL
    CHECK(s.other);
}

TEST_CASE("VLAN devices", "[netlink]")
{
    const auto vlan = [](const std::function<void(Builder &)> &data) {
        Builder b(RTM_NEWLINK, 0);
        b.head<ifinfomsg>().ifi_index = 7;
        b.text(IFLA_IFNAME, "eth0.10").u32(IFLA_LINK, 3);
        b.nest(IFLA_LINKINFO, [&] {
            b.text(IFLA_INFO_KIND, "vlan");
            b.nest(IFLA_INFO_DATA, [&] { data(b); });
        });
        const auto link = parse_exact(b.bytes(), nl::parse_link);
        REQUIRE(link);
        REQUIRE(link->vlan);
        CHECK(link->lower == 3);
        return *link->vlan;
    };
    const auto flags = [](Builder &b, std::uint32_t value) {
        const ifla_vlan_flags f{value, ~0U};
        b.put(IFLA_VLAN_FLAGS, &f, sizeof(f));
    };
    auto v = vlan([&](Builder &b) {
        b.be16(IFLA_VLAN_PROTOCOL, ETH_P_8021AD).u16(IFLA_VLAN_ID, 4094);
        flags(b, VLAN_FLAG_REORDER_HDR);
    });
    CHECK(v.tag == VlanTag{ETH_P_8021AD, 4094});
    CHECK_FALSE(v.keeps_tag);
    CHECK(v.tag.pcp == 0);
    v = vlan([&](Builder &b) {
        b.u16(IFLA_VLAN_ID, 10);
        flags(b, 0);
        b.nest(IFLA_VLAN_EGRESS_QOS, [&] {
            for (const ifla_vlan_qos_mapping map : {ifla_vlan_qos_mapping{0, 3}, {6, 7}, {8, 1}})
                b.put(IFLA_VLAN_QOS_MAPPING, &map, sizeof(map));
        });
    });
    CHECK(v.tag == VlanTag{ETH_P_8021Q, 10, 0x07000003}); // priority 8 is none that ip_forward() gives
    CHECK(v.keeps_tag);
}

TEST_CASE("bridges: stations, ports, VLANs", "[netlink]")
{
    const Mac mac = *Mac::parse("02:00:00:00:0a:01");
    const auto fdb = [&](std::uint16_t type, std::uint16_t state, std::uint32_t master) {
        Builder b(type, 0);
        auto &head = b.head<ndmsg>();
        head.ndm_family = AF_BRIDGE;
        head.ndm_ifindex = 11;
        head.ndm_state = state;
        b.put(NDA_LLADDR, mac.bytes.data(), mac.bytes.size());
        if (master)
            b.u32(NDA_MASTER, master);
        return b.bytes();
    };
    for (const std::uint16_t type : {RTM_NEWNEIGH, RTM_DELNEIGH}) {
        const auto event = parse_exact(fdb(type, NUD_REACHABLE, 10), nl::parse_rt_event);
        REQUIRE(event);
        const auto *changed = std::get_if<FdbChanged>(&*event);
        REQUIRE(changed);
        CHECK(changed->bridge == 10);
        CHECK(changed->mac == mac);
        CHECK_FALSE(parse_exact(fdb(type, NUD_REACHABLE, 0), nl::parse_rt_event)); // a device's own filter
    }
    CHECK(parse_exact(fdb(RTM_NEWNEIGH, NUD_REACHABLE, 10), nl::parse_fdb_port) == 11U);
    CHECK_FALSE(parse_exact(fdb(RTM_NEWNEIGH, NUD_PERMANENT, 10), nl::parse_fdb_port)); // the bridge's own
    CHECK_FALSE(parse_exact(fdb(RTM_DELNEIGH, NUD_REACHABLE, 10), nl::parse_fdb_port));

    Builder b(RTM_NEWLINK, 0);
    auto &head = b.head<ifinfomsg>();
    head.ifi_family = AF_BRIDGE;
    head.ifi_index = 11;
    b.nest(IFLA_AF_SPEC, [&] {
        for (const bridge_vlan_info info :
             {bridge_vlan_info{BRIDGE_VLAN_INFO_RANGE_BEGIN, 20},
              bridge_vlan_info{BRIDGE_VLAN_INFO_RANGE_END, 22},
              bridge_vlan_info{BRIDGE_VLAN_INFO_RANGE_END, 30},
              bridge_vlan_info{BRIDGE_VLAN_INFO_PVID | BRIDGE_VLAN_INFO_UNTAGGED, 1},
              bridge_vlan_info{BRIDGE_VLAN_INFO_UNTAGGED, 65535}})
            b.put(IFLA_BRIDGE_VLAN_INFO, &info, sizeof(info));
    });
    const auto vlans = parse_exact(b.bytes(), nl::parse_port_vlans);
    REQUIRE(vlans);
    CHECK(vlans->index == 11);
    CHECK(
        vlans->vlans ==
        std::vector<BridgeVlan>{
            {1, true, true}, {20, false, false}, {21, false, false}, {22, false, false}, {30, false, false}});
    const auto event = parse_exact(b.bytes(), nl::parse_rt_event);
    REQUIRE(event);
    REQUIRE(std::holds_alternative<PortChanged>(*event));
    CHECK(std::get<PortChanged>(*event).index == 11);

    const auto link = [](const std::function<void(Builder &)> &info) {
        Builder m(RTM_NEWLINK, 0);
        m.head<ifinfomsg>().ifi_index = 7;
        m.nest(IFLA_LINKINFO, [&] { info(m); });
        return *parse_exact(m.bytes(), nl::parse_link);
    };
    const Link bridge = link([](Builder &m) {
        m.text(IFLA_INFO_KIND, "bridge");
        m.nest(IFLA_INFO_DATA, [&] {
            const br_boolopt_multi options{1U << BR_BOOLOPT_MST_ENABLE, 0};
            m.u8(IFLA_BR_VLAN_FILTERING, 1).be16(IFLA_BR_VLAN_PROTOCOL, ETH_P_8021AD);
            m.put(IFLA_BR_MULTI_BOOLOPT, &options, sizeof(options));
        });
    });
    CHECK(bridge.bridge == BridgeConfig{true, ETH_P_8021AD, true});
    const Link port = link([](Builder &m) {
        m.text(IFLA_INFO_SLAVE_KIND, "bridge");
        m.nest(IFLA_INFO_SLAVE_DATA, [&] {
            m.u8(IFLA_BRPORT_STATE, BR_STATE_FORWARDING)
                .u8(IFLA_BRPORT_LOCKED, 1)
                .u8(IFLA_BRPORT_VLAN_TUNNEL, 1);
        });
    });
    CHECK(port.port == BridgePort{true, true, true});
    CHECK_FALSE(link([](Builder &m) {
                    m.text(IFLA_INFO_SLAVE_KIND, "bond");
                    m.nest(IFLA_INFO_SLAVE_DATA, [&] { m.u8(IFLA_BRPORT_STATE, BR_STATE_FORWARDING); });
                }).port);
}
