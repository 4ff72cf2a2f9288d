// SPDX-License-Identifier: GPL-2.0-only
// The kernel's own tunnel devices as they are read, on a kernel that has ip6_tunnel, sit and ipip
// (test/vm/tests/tunnels.sh).
#include <catch2/catch.hpp>

#include "netlink/route.h"
#include "netlink_live.h"
#include "tunnel/rules.h"
#include "tunnel_lab6.h"

using namespace ftctl;

namespace {

using tunnel_test::Bytes;
using tunnel_test::Lab6;

/// A packet from the machine behind `lan` to the one behind the tunnel.
Bytes from_lan(std::uint8_t family, std::uint8_t tos, std::size_t length, std::uint8_t ttl = 64)
{
    if (family == AF_INET) {
        tunnel_test::Ipv4Fields f;
        f.tos = tos;
        f.ttl = ttl;
        f.payload = Bytes(length - 20, 0x77);
        return make_ipv4(f);
    }
    tunnel_test::Ipv6Fields f;
    f.tclass = tos;
    f.hops = ttl;
    f.label = 0x2abcd;
    f.payload = Bytes(length - 40, 0x77);
    return make_ipv6(f);
}

/// The frame's packet as the rules of the tun driver have it. `id` is the kernel's to choose.
Bytes expected(const TunnelConfig &c, const EncapDecision &d, const Bytes &inner, std::uint16_t id)
{
    const std::uint8_t protocol = tunnel_row(c.mode).protocol;
    if (outer_family(c.mode) == AF_INET) {
        tunnel_test::Ipv4Fields f;
        f.src = c.local.str();
        f.dst = c.remote.str();
        f.protocol = protocol;
        f.tos = d.tos;
        f.ttl = d.ttl;
        f.id = id;
        f.frag = d.df ? 0x4000 : 0;
        f.payload = inner;
        return make_ipv4(f);
    }
    tunnel_test::Ipv6Fields f;
    f.src = c.local.str();
    f.dst = c.remote.str();
    f.next = d.encap_limit ? std::uint8_t{IPPROTO_DSTOPTS} : protocol;
    f.tclass = d.tos;
    f.hops = d.ttl;
    f.label = d.flow_label;
    if (d.encap_limit)
        f.payload = tunnel_test::limit_option(protocol, *d.encap_limit);
    else
        f.payload.clear();
    f.payload.insert(f.payload.end(), inner.begin(), inner.end());
    return make_ipv6(f);
}

/// Length and what stands before the payload, to be read by people.
std::string headers(const Bytes &p)
{
    std::string text = std::to_string(p.size()) + ":";
    for (std::size_t i = 0; i < std::min<std::size_t>(p.size(), 88); ++i) {
        constexpr const char *digits = "0123456789abcdef";
        text += i % 4 == 0 ? " " : "";
        text += digits[p[i] >> 4];
        text += digits[p[i] & 15];
    }
    return text;
}

void compare_with_kernel(Lab6 &lab, const std::string &words)
{
    CAPTURE(words);
    const bool six = words.rfind("ip6tnl", 0) == 0;
    tunnel_test::sh(
        "ip link add tun0 type " + words.substr(0, words.find(' ')) +
        (six ? " local 2001:db8:f::1 remote 2001:db8:e::1" : " local 192.0.2.1 remote 198.51.100.1") +
        words.substr(words.find(' ')));
    tunnel_test::sh("ip link set tun0 up mtu 1500 && ip addr add 10.9.0.1/32 dev tun0");
    tunnel_test::sh("ip route add 10.2.0.0/24 dev tun0; ip -6 route add 2001:db8:2::/64 dev tun0");
    const auto rt = netlink_live::must(RtControl::open());
    const TunnelConfig whole = netlink_live::must(rt->link("tun0")).tunnel.value();
    int compared = 0;
    for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}}) {
        const auto c = for_payload(whole, family);
        if (!c)
            continue;
        CAPTURE(mode_name(c->mode));
        const auto is_outer = [&](const Bytes &p) {
            // carries what the test sent: not the groups that the tunnel or `wan` itself reports
            return p[0] >> 4 == (six ? 6 : 4) && p.back() == 0x77;
        };
        const auto compare = [&](std::uint8_t tos, std::size_t length, std::uint32_t path) {
            CAPTURE(int{tos}, length);
            const Bytes inner = from_lan(family, tos, length, 63);
            const EncapDecision d = encap_packet(*c, inner, path);
            lab.lan->send(from_lan(family, tos, length));
            if (d.verdict != EncapDecision::Verdict::send) {
                CHECK_FALSE(lab.wan->receive_if(is_outer, std::chrono::milliseconds(200)));
                return;
            }
            const auto f = lab.wan->receive_if(is_outer);
            REQUIRE(f);
            const auto id = static_cast<std::uint16_t>(tunnel_test::get16(f->packet, 4));
            const Bytes want = expected(*c, d, inner, id);
            CHECK(headers(f->packet) == headers(want));
            CHECK((f->packet == want));
            ++compared;
        };
        for (const std::uint8_t ecn : {0, 1, 2, 3})
            for (const int dscp : {0, 46})
                compare(static_cast<std::uint8_t>(dscp << 2 | ecn), 100, 0);
        // The size at which the kernel stops sending in one piece: outer_bytes() below the underlay's MTU.
        const std::uint32_t room = 1400 - outer_bytes(*c);
        compare(0, room, 1400);
        if (c->pmtudisc && c->mode != tunnel_test::Mode::ipip) {
            CHECK(encap_packet(*c, from_lan(family, 0, room + 1, 63), 1400).mtu == room);
            compare(0, room + 1, 1400);
        }
    }
    CHECK(compared >= 9);
    tunnel_test::sh("ip link del tun0");
}

} // namespace

TEST_CASE("the kernel's tunnels send what the rules say", "[.][kernel-tunnels]")
{
    Lab6 lab;
    std::ofstream("/proc/sys/net/ipv6/auto_flowlabels") << 0 << std::flush;
    tunnel_test::sh("ip link set wan mtu 1400");
    for (const char *words : {"ip6tnl mode any", "ip6tnl mode any encaplimit none",
                              "ip6tnl mode ip6ip6 tclass inherit hoplimit 0 flowlabel inherit",
                              "ip6tnl mode ipip6 tclass 0xb8 encaplimit none flowlabel 0x12345 hoplimit 33",
                              "ip6tnl mode any tclass inherit encaplimit 0 flowlabel inherit", "sit mode any",
                              "sit mode any tos inherit", "sit mode ip6ip ttl 33 tos 0x20",
                              "sit mode ip6ip ttl inherit nopmtudisc", "ipip tos inherit", "ipip ttl 9"})
        compare_with_kernel(lab, words);
}

TEST_CASE("the kernel's tunnel devices are read with all their settings", "[.][kernel-tunnels]")
{
    using netlink_live::ip;
    using netlink_live::must;
    using netlink_live::sh;
    using Mode = TunnelConfig::Mode;
    const netlink_live::Scratch ns;
    const auto rt = must(RtControl::open());
    int made = 0;
    const auto device = [&](const std::string &kind, const std::string &words) {
        const std::string name = "t" + std::to_string(made++);
        sh("ip link add " + name + " type " + kind + " " + words);
        const Link link = must(rt->link(name));
        INFO(kind << " " << words);
        REQUIRE(link.kind == kind);
        REQUIRE(link.tunnel);
        return *link.tunnel;
    };
    const auto six = [&](const std::string &words) {
        const int n = made + 1; // the kernel refuses a second device with the same ends
        return device("ip6tnl", "local 2001:db8::1 remote 2001:db8:1::" + std::to_string(n) + " " + words);
    };

    const TunnelConfig plain = six("");
    CHECK(plain.mode == Mode::ip6ip6);
    CHECK(plain.ttl == 64);
    CHECK(plain.tos == 0);
    CHECK(plain.encap_limit == 4);
    CHECK(plain.flow_label == 0);
    CHECK_FALSE((plain.flow_label_inherit || plain.dscp_copy || plain.fwmark_inherit || plain.mip6 ||
                 plain.isatap || plain.fou || plain.collect_md));
    CHECK(plain.local == ip("2001:db8::1"));
    CHECK(plain.remote == ip("2001:db8:1::1"));

    CHECK(six("mode ip6ip6").mode == Mode::ip6ip6);
    CHECK_FALSE(six("mode ip6ip6").any);
    CHECK(six("mode ipip6").mode == Mode::ip4in6);
    CHECK(six("mode any").any);
    CHECK_FALSE(six("encaplimit none").encap_limit);
    CHECK(six("encaplimit 0").encap_limit == 0);
    CHECK(six("hoplimit 33").ttl == 33);
    CHECK(six("hoplimit 0").ttl == 0);
    CHECK(six("tclass 0xb8").tos == 0xb8);
    CHECK(six("tclass inherit").tos == 1);
    CHECK(six("flowlabel 0x12345").flow_label == 0x12345);
    CHECK(six("flowlabel 0x12345").tos == 0);
    CHECK(six("flowlabel inherit").flow_label_inherit);
    CHECK(six("dscp inherit").dscp_copy);
    CHECK(six("fwmark 5").fwmark == 5);
    CHECK(six("fwmark inherit").fwmark_inherit);
    CHECK(device("ip6tnl", "external").collect_md);

    const auto four = [&](const std::string &kind, const std::string &words) {
        const int n = made + 1;
        return device(kind, "local 192.0.2.1 remote 198.51.100." + std::to_string(n) + " " + words);
    };
    const TunnelConfig sit = four("sit", "");
    CHECK(sit.mode == Mode::ip6in4);
    CHECK(sit.any); // iproute2's default
    CHECK(sit.ttl == 0);
    CHECK(sit.pmtudisc);
    CHECK_FALSE(sit.isatap);
    CHECK_FALSE(four("sit", "mode ip6ip").any);
    CHECK(four("sit", "mode ipip").mode == Mode::ipip);
    CHECK(four("sit", "ttl inherit").ttl == 0);
    CHECK(four("sit", "tos inherit").tos == 1);
    CHECK_FALSE(four("sit", "ttl inherit nopmtudisc").pmtudisc);
    CHECK(device("sit", "local 192.0.2.1 isatap").isatap);
    CHECK_FALSE(device("sit", "local 192.0.2.2").remote);
    CHECK_FALSE(four("ipip", "mode any").any);
}
