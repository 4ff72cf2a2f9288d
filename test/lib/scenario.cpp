// SPDX-License-Identifier: GPL-2.0-only
#include "scenario.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <sys/utsname.h>
#include <utility>

#include <catch2/catch.hpp>
#include <fmt/format.h>

namespace ftctl::test {
namespace {

constexpr std::uint32_t kConnection = 4711;

struct Ends {
    std::uint32_t local;
    std::uint32_t remote;
};

Ends tunnel_ends(Device device)
{
    if (device == kDevA)
        return {ip4("203.0.113.129"), ip4("203.0.113.130")};
    return {ip4("198.18.0.1"), ip4("198.18.255.254")};
}

Mac next_hop_mac(Device device)
{
    return {0x06, 0x00, 0x5e, 0x80, 0xff, static_cast<std::uint8_t>(0xe0 + device)};
}

/// The client's view and the server's view of the connection, both as client -> server.
std::pair<Tuple, Tuple> views(Nat nat)
{
    Tuple client{ip4("192.0.2.2"), ip4("198.51.100.2"), 40000, 80};
    Tuple server = client;
    if (nat == Nat::snat_addr || nat == Nat::snat || nat == Nat::both)
        server.src = ip4("203.0.113.7");
    if (nat == Nat::snat || nat == Nat::both)
        server.sport = 61001;
    if (nat == Nat::dnat_addr || nat == Nat::dnat || nat == Nat::both)
        client.dst = ip4("203.0.113.9");
    if (nat == Nat::dnat || nat == Nat::both)
        client.dport = 8080;
    return {client, server};
}

Tuple swapped(const Tuple &t)
{
    return {t.dst, t.src, t.dport, t.sport};
}

std::uint16_t delta(std::initializer_list<std::pair<std::uint16_t, std::uint16_t>> words, bool all)
{
    std::uint16_t sum = 0;
    for (const auto &[before, after] : words) {
        if (all || before != after)
            sum = add16(sum, add16(static_cast<std::uint16_t>(~before), after));
    }
    return htons(sum); // a sum over big-endian words, stored as such a word
}

std::uint16_t high(std::uint32_t value)
{
    return static_cast<std::uint16_t>(value >> 16);
}

std::uint16_t low(std::uint32_t value)
{
    return static_cast<std::uint16_t>(value);
}

/// RFC 6040 as kernel-semantics writes it out: [inner][outer], 9 where the packet is dropped.
constexpr std::uint8_t kEcnDecap[4][4] = {{0, 0, 0, 9}, {1, 1, 1, 3}, {2, 1, 2, 3}, {3, 3, 3, 3}};
constexpr std::uint8_t kEcnEncap[4] = {0, 1, 2, 2};

} // namespace

Scenario Scenario::other_direction() const
{
    Scenario out = *this;
    out.reply = !reply;
    return out;
}

Tuple Scenario::arrives() const
{
    const auto [client, server] = views(nat);
    return reply ? swapped(server) : client;
}

Tuple Scenario::leaves() const
{
    const auto [client, server] = views(nat);
    return reply ? swapped(client) : server;
}

ftctl_addr abi(const Addr6 &addr)
{
    ftctl_addr out{};
    std::memcpy(out.w, addr.data(), addr.size());
    return out;
}

Addr6 addr6(std::uint32_t v4)
{
    Addr6 out = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 1};
    if (v4 >> 24 == 203) // NAT and tunnel ends
        out = {0xfd, 0xbe, 0xef, 0x00, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf1};
    const std::uint32_t be = htonl(v4);
    std::memcpy(out.data() + 12, &be, 4);
    return out;
}

namespace {

ftctl_addr abi(std::uint32_t v4, bool v6)
{
    if (v6)
        return test::abi(addr6(v4));
    ftctl_addr out{};
    out.w[0] = htonl(v4);
    return out;
}

/// Sum over the words of an address that change (or all of them).
std::uint16_t addr_delta(std::uint32_t before, std::uint32_t after, bool v6, bool all)
{
    if (!v6)
        return delta({{high(before), high(after)}, {low(before), low(after)}}, all);
    const Addr6 from = addr6(before);
    const Addr6 to = addr6(after);
    std::uint16_t sum = 0;
    for (std::size_t i = 0; i < from.size(); i += 2) {
        const auto a = static_cast<std::uint16_t>(from[i] << 8 | from[i + 1]);
        const auto b = static_cast<std::uint16_t>(to[i] << 8 | to[i + 1]);
        if (all || a != b)
            sum = add16(sum, add16(static_cast<std::uint16_t>(~a), b));
    }
    return htons(sum);
}

constexpr std::uint16_t kTag = 0x8100, kOuterTag = 0x88a8;

std::uint16_t tag_proto(const std::vector<std::uint16_t> &vids, std::size_t index)
{
    return vids.size() == 2 && index == 0 ? kOuterTag : kTag;
}

} // namespace

ftctl_tuple Scenario::key() const
{
    const Tuple t = arrives();
    ftctl_tuple out{};
    out.family = v6 ? 6 : 4;
    out.src = abi(t.src, v6);
    out.dst = abi(t.dst, v6);
    out.sport = htons(t.sport);
    out.dport = htons(t.dport);
    out.iif_proto = Rig::get().ifindex(in_device()) | static_cast<std::uint32_t>(proto) << 24;
    if (in_tunnel()) {
        const Ends ends = tunnel_ends(in_device());
        out.tunnel = in_outer6() ? FTCTL_TUNNEL_IPV6 : FTCTL_TUNNEL_IPV4;
        out.outer_src = abi(ends.remote, in_outer6());
        out.outer_dst = abi(ends.local, in_outer6());
    }
    for (std::size_t i = 0; i < in_vlans().size(); ++i)
        out.vlan[i] = {htons(tag_proto(in_vlans(), i)), htons(in_vlans()[i])};
    if (in_pppoe() != 0) {
        const Mac peer = next_hop_mac(in_device());
        out.pppoe = htons(in_pppoe());
        std::copy(peer.begin(), peer.end(), out.peer);
    }
    return out;
}

ftctl_sample_key Scenario::sample_key() const
{
    return {kConnection, reply ? 1U : 0U};
}

ftctl_flow6 Scenario::flow() const
{
    const Tuple in = arrives();
    const Tuple out = leaves();
    ftctl_flow6 whole{};
    ftctl_flow &f = whole.flow;
    f.gen = 1;
    f.state = FTCTL_FLOW_LIVE;
    f.path = path_index();
    if (v6) {
        whole.new_src = abi(out.src, true);
        whole.new_dst = abi(out.dst, true);
    } else {
        f.new_src = htonl(out.src);
        f.new_dst = htonl(out.dst);
    }
    f.new_sport = htons(out.sport);
    f.new_dport = htons(out.dport);
    if (nat != Nat::none) {
        f.flags |= FTCTL_F_NAT;
        f.addr_delta = htons(add16(ntohs(addr_delta(in.src, out.src, v6, all_words)),
                                   ntohs(addr_delta(in.dst, out.dst, v6, all_words))));
        f.port_delta = delta({{in.sport, out.sport}, {in.dport, out.dport}}, all_words);
    }
    if (reply)
        f.flags |= FTCTL_F_REPLY;
    f.last_seen = now_ticks();
    f.last_trickle = f.last_seen;
    f.id = kConnection;
    return whole;
}

ftctl_path Scenario::path() const
{
    ftctl_path p{};
    // The half not in use is as wrong as can be.
    p.active = reply ? 1 : 0;
    std::fill_n(reinterpret_cast<std::uint8_t *>(&p.body[1 - p.active]), sizeof p.body[0], 0x5a);
    ftctl_path_body &body = p.body[p.active];
    // What stands before the inner packet is that of a packet which leaves, without what depends on it.
    Packet like = forwarded(packet(0));
    like.ip.tos = 0;
    const Bytes frame = like.bytes();
    const std::size_t l2 = 14 + 4 * out_vlans().size() + (out_pppoe() != 0 ? 8U : 0U);
    std::copy_n(frame.begin(), l2, body.l2);
    if (out_pppoe() != 0)
        std::fill_n(body.l2 + l2 - 4, 2, 0); // length
    body.l2_len = static_cast<std::uint8_t>(l2);
    body.vlans = static_cast<std::uint8_t>(out_vlans().size());
    body.pppoe = htons(out_pppoe());
    body.family = v6 ? 6 : 4;
    body.mtu = mtu;
    body.oif = Rig::get().ifindex(out_device());
    body.flags = FTCTL_P_VALID | FTCTL_P_XDP;
    if (out_tunnel()) {
        body.tunnel = out_outer6() ? FTCTL_TUNNEL_IPV6 : FTCTL_TUNNEL_IPV4;
        if (tos_inherit)
            body.flags |= FTCTL_P_TOS_INHERIT;
        body.tun_ttl = tun_ttl;
        body.tun_tos = tun_tos;
        std::uint8_t *outer = body.outer;
        const Ends ends = tunnel_ends(out_device());
        if (out_outer6()) {
            const Addr6 local = addr6(ends.local), remote = addr6(ends.remote);
            const std::uint32_t word = htonl(6U << 28 | (label_inherit ? 0 : tun_label));
            std::memcpy(outer, &word, 4);
            outer[6] = tun_limit ? 60 : v6 ? kIpv6 : kIpip;
            std::copy(local.begin(), local.end(), outer + 8);
            std::copy(remote.begin(), remote.end(), outer + 24);
            if (tun_limit) {
                const Bytes option = {v6 ? kIpv6 : kIpip, 0, 4, 1, *tun_limit, 1, 1, 0};
                std::copy(option.begin(), option.end(), outer + 40);
                body.flags |= FTCTL_P_LIMIT;
            }
            if (label_inherit)
                body.flags |= FTCTL_P_LABEL;
        } else {
            const std::uint32_t local = htonl(ends.local), remote = htonl(ends.remote);
            outer[9] = v6 ? kIpv6 : kIpip;
            std::memcpy(outer + 12, &local, 4);
            std::memcpy(outer + 16, &remote, 4);
            if (tun_df)
                body.flags |= FTCTL_P_DF;
        }
    }
    return p;
}

void Scenario::install() const
{
    Rig &rig = Rig::get();
    rig.reset(hook);
    ftctl_config config = rig.config();
    config.tunnels = (tunnel_a ? 1U : 0U) + (tunnel_b ? 1U : 0U);
    rig.set_config(config);
    for (const Scenario &direction : {*this, other_direction()}) {
        rig.set_path(direction.path_index(), direction.path());
        rig.set_flow(direction.key(), direction.flow());
    }
}

Packet Scenario::packet(std::size_t payload) const
{
    const Tuple t = arrives();
    Packet p;
    p.dmac = device_mac(in_device());
    p.smac = next_hop_mac(in_device());
    p.ip.src = t.src;
    p.ip.dst = t.dst;
    if (v6)
        p.ip.v6 = Ipv6{addr6(t.src), addr6(t.dst), 0x5a5a5, {}, {}};
    p.ip.proto = proto;
    for (std::size_t i = 0; i < in_vlans().size(); ++i)
        p.tag(tag_proto(in_vlans(), i), in_vlans()[i]);
    if (in_pppoe() != 0)
        p.pppoe = in_pppoe();
    if (proto == kTcp) {
        Tcp tcp;
        tcp.sport = t.sport;
        tcp.dport = t.dport;
        p.l4 = tcp;
    } else {
        Udp udp;
        udp.sport = t.sport;
        udp.dport = t.dport;
        p.l4 = udp;
    }
    p.payload = pattern(payload);
    if (in_tunnel()) {
        const Ends ends = tunnel_ends(in_device());
        Ipv4 outer;
        outer.proto = v6 ? kIpv6 : kIpip;
        outer.src = ends.remote;
        outer.dst = ends.local;
        if (in_outer6())
            outer.v6 = Ipv6{addr6(ends.remote), addr6(ends.local), 0xabcde, tun_limit, {}};
        outer.id = 0x7e57;
        outer.ttl = 57;
        p.outer.push_back(outer);
    }
    return p;
}

Packet Scenario::forwarded(const Packet &in) const
{
    const Tuple t = leaves();
    Packet out = in;
    out.pad = 0;
    out.tags.clear();
    for (std::size_t i = 0; i < out_vlans().size(); ++i)
        out.tag(tag_proto(out_vlans(), i), out_vlans()[i]);
    out.pppoe.reset();
    if (out_pppoe() != 0)
        out.pppoe = out_pppoe();
    out.dmac = next_hop_mac(out_device());
    out.smac = device_mac(out_device());
    if (!out.outer.empty()) {
        const std::uint8_t ecn = kEcnDecap[in.ip.tos & 3][in.outer.front().tos & 3];
        out.ip.tos = static_cast<std::uint8_t>((in.ip.tos & 0xfc) | (ecn & 3));
        out.outer.clear();
    }
    out.ip.ttl = static_cast<std::uint8_t>(in.ip.ttl - 1);
    out.ip.src = t.src;
    out.ip.dst = t.dst;
    if (out.ip.v6) {
        out.ip.v6->src = addr6(t.src);
        out.ip.v6->dst = addr6(t.dst);
    }
    if (Tcp *tcp = std::get_if<Tcp>(&out.l4)) {
        tcp->sport = t.sport;
        tcp->dport = t.dport;
    } else if (Udp *udp = std::get_if<Udp>(&out.l4)) {
        udp->sport = t.sport;
        udp->dport = t.dport;
    }
    if (out_tunnel()) {
        const Ends ends = tunnel_ends(out_device());
        Ipv4 outer;
        const std::uint8_t dscp = tos_inherit ? out.ip.tos : tun_tos;
        outer.tos = static_cast<std::uint8_t>((dscp & 0xfc) | kEcnEncap[out.ip.tos & 3]);
        outer.frag = static_cast<std::uint16_t>((tun_df ? 0xffff : out.ip.frag) & kDf);
        outer.ttl = tun_ttl != 0 ? tun_ttl : out.ip.ttl;
        outer.proto = v6 ? kIpv6 : kIpip;
        outer.src = ends.local;
        outer.dst = ends.remote;
        if (out_outer6()) {
            const std::uint32_t label = label_inherit && out.ip.v6 ? out.ip.v6->label : tun_label;
            outer.v6 =
                Ipv6{addr6(ends.local), addr6(ends.remote), label_inherit && !v6 ? 0 : label, tun_limit, {}};
        } else if (v6) {
            outer.frag = static_cast<std::uint16_t>(tun_df ? kDf : 0);
        }
        out.outer.push_back(outer);
    }
    return out;
}

bool kernel_at_least(unsigned major, unsigned minor)
{
    static const std::pair<unsigned, unsigned> ours = [] {
        utsname name{};
        unsigned first = 0, second = 0;
        if (uname(&name) != 0 || std::sscanf(name.release, "%u.%u", &first, &second) != 2)
            throw std::runtime_error("which kernel is this?");
        return std::pair(first, second);
    }();
    return ours >= std::pair(major, minor);
}

bool Scenario::changes_family_in_vain() const
{
    return !kernel_at_least(6, 3) && hook == Hook::tc && in_tunnel() && in_outer6() != v6;
}

std::string Scenario::describe() const
{
    static constexpr const char *kNames[] = {"none", "snat-addr", "snat", "dnat-addr", "dnat", "both"};
    const auto side = [](const char *verb, bool tunnel, bool outer6, const std::vector<std::uint16_t> &vlans,
                         std::uint16_t session) {
        std::string text;
        if (tunnel)
            text += fmt::format(" {} a tunnel{}", verb, outer6 ? " over IPv6" : "");
        if (!vlans.empty())
            text += fmt::format(" {} {} tag(s)", verb, vlans.size());
        if (session != 0)
            text += fmt::format(" {} PPPoE", verb);
        return text;
    };
    return fmt::format("{} {}{} nat {} {}{}{}", hook_name(hook), proto == kTcp ? "tcp" : "udp", v6 ? "6" : "",
                       kNames[static_cast<int>(nat)], reply ? "reply" : "orig",
                       side("from", in_tunnel(), in_outer6(), in_vlans(), in_pppoe()),
                       side("into", out_tunnel(), out_outer6(), out_vlans(), out_pppoe()));
}

std::vector<Scenario> scenarios(std::initializer_list<Proto> protos, std::initializer_list<Nat> nats,
                                bool tunnels)
{
    std::vector<Scenario> out;
    for (const Hook hook : {Hook::xdp, Hook::tc})
        for (const bool v6 : {false, true})
            for (const Proto proto : protos)
                for (const Nat nat : nats)
                    for (unsigned bits = 0; bits < (tunnels ? 8U : 2U); ++bits) {
                        Scenario s;
                        s.hook = hook;
                        s.v6 = v6;
                        s.proto = proto;
                        s.nat = nat;
                        s.reply = (bits & 1) != 0;
                        s.tunnel_a = (bits & 2) != 0;
                        s.tunnel_b = (bits & 4) != 0;
                        // What becomes of these, encapsulation_test.cpp knows.
                        if (!s.changes_family_in_vain() && !s.other_direction().changes_family_in_vain())
                            out.push_back(s);
                    }
    return out;
}

Outcome observe(const Scenario &scenario, const Bytes &frame, Gso gso)
{
    Rig &rig = Rig::get();
    INFO(scenario.describe());
    const ftctl_stats before = rig.stats(scenario.in_device());
    Outcome out;
    const auto run = rig.ingress(scenario.hook, scenario.in_device(), frame, gso);
    REQUIRE(run);
    out.run = *run;
    const ftctl_stats after = rig.stats(scenario.in_device());

    CHECK(after.rx_packets - before.rx_packets == 1);
    const std::uint64_t fast = after.fast_packets - before.fast_packets;
    out.fast_bytes = after.fast_bytes - before.fast_bytes;
    std::uint64_t passed = 0;
    for (unsigned reason = 0; reason < FTCTL_PACKET_REASONS; ++reason) {
        const std::uint64_t moved = after.reasons[reason] - before.reasons[reason];
        passed += moved;
        if (moved != 0)
            out.reason = reason;
    }
    CHECK(fast + passed == 1);
    out.fast = fast == 1;

    const bool xdp = scenario.hook == Hook::xdp;
    if (out.fast) {
        CHECK(out.run.verdict == (xdp ? kXdpRedirect : kTcRedirect));
    } else {
        if (out.reason == FTCTL_R_FILTER || out.reason == FTCTL_R_RPF)
            CHECK(out.run.verdict == (xdp ? kXdpDrop : kTcShot));
        else
            CHECK(out.run.verdict == (xdp ? kXdpPass : kTcUnspec));
        CHECK(out.reason != 0);
        CHECK(out.fast_bytes == 0);
        CHECK(mismatch(frame, out.run.bytes) == "");
    }
    return out;
}

void check_frame(Packet want, const Bytes &got)
{
    // The kernel draws the outer ID at random: take over whatever was sent, so that its checksum must fit.
    const std::size_t l2 = 14 + want.tags.size() + (want.pppoe ? 8U : 0U);
    if (!want.outer.empty() && !want.outer.front().v6 && got.size() >= l2 + 20)
        want.outer.front().id = get16(got, l2 + 4);
    CHECK(mismatch(want.bytes(), got) == "");
}

void expect_fast(const Scenario &scenario, const Packet &in, Gso gso)
{
    if (scenario.changes_family_in_vain()) {
        expect_pass(scenario, in, {FTCTL_R_HEADROOM}, gso);
        return;
    }
    INFO(scenario.describe());
    const auto before = Rig::get().flow(scenario.key());
    const auto other_before = Rig::get().flow(scenario.other_direction().key());
    REQUIRE(before);
    const Outcome out = observe(scenario, in.bytes(), gso);
    CAPTURE(out.reason);
    REQUIRE(out.fast);
    Packet want = scenario.forwarded(in);
    if (scenario.hook == Hook::tc && !want.tags.empty()) // the outermost tag is beside the frame, not in it
        want.tags.erase(want.tags.begin(), want.tags.begin() + 4);
    check_frame(want, out.run.bytes);

    std::uint64_t packets = 1;
    std::uint64_t bytes = in.l3_len();
    if (gso.size != 0) {
        const std::uint64_t header = in.l3_len() - in.payload.size();
        packets = (in.payload.size() + gso.size - 1) / gso.size;
        bytes += (packets - 1) * header;
    }
    const auto after = Rig::get().flow(scenario.key());
    REQUIRE(after);
    CHECK(test::packets(*after) - test::packets(*before) == packets);
    CHECK(test::bytes(*after) - test::bytes(*before) == bytes);
    CHECK(out.fast_bytes == bytes);
    CHECK(now_ticks() - after->last_seen < 2000);
    const auto other = Rig::get().flow(scenario.other_direction().key());
    if (other && other_before)
        CHECK(test::packets(*other) == test::packets(*other_before));
}

void expect_pass(const Scenario &scenario, const Bytes &frame, std::initializer_list<unsigned> reasons,
                 Gso gso)
{
    INFO(scenario.describe());
    const auto before = Rig::get().flow(scenario.key());
    const Outcome out = observe(scenario, frame, gso);
    CAPTURE(out.reason);
    CHECK_FALSE(out.fast);
    CHECK(std::find(reasons.begin(), reasons.end(), out.reason) != reasons.end());
    const auto after = Rig::get().flow(scenario.key());
    if (before && after) {
        CHECK(packets(*after) == packets(*before));
        CHECK(bytes(*after) == bytes(*before));
    }
}

Outcome expect_exact(const Scenario &scenario, const Packet &in)
{
    INFO(scenario.describe());
    Outcome out = observe(scenario, in.bytes());
    if (out.fast)
        check_frame(scenario.forwarded(in), out.run.bytes);
    return out;
}

} // namespace ftctl::test
