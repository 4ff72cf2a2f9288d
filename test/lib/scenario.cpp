// SPDX-License-Identifier: GPL-2.0-only
#include "scenario.h"

#include <algorithm>
#include <arpa/inet.h>
#include <iterator>
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

ftctl_key4t Scenario::key() const
{
    const Tuple t = arrives();
    ftctl_key4t out{};
    out.in.src = htonl(t.src);
    out.in.dst = htonl(t.dst);
    out.in.sport = htons(t.sport);
    out.in.dport = htons(t.dport);
    out.in.iif_proto = Rig::get().ifindex(in_device()) | static_cast<std::uint32_t>(proto) << 24;
    if (in_tunnel()) {
        const Ends ends = tunnel_ends(in_device());
        out.outer_src = htonl(ends.remote);
        out.outer_dst = htonl(ends.local);
    }
    return out;
}

ftctl_flow Scenario::flow() const
{
    const Tuple in = arrives();
    const Tuple out = leaves();
    ftctl_flow f{};
    f.gen = 1;
    f.state = FTCTL_FLOW_LIVE;
    f.path = path_index();
    f.new_src = htonl(out.src);
    f.new_dst = htonl(out.dst);
    f.new_sport = htons(out.sport);
    f.new_dport = htons(out.dport);
    if (nat != Nat::none) {
        f.flags |= FTCTL_F_NAT;
        f.addr_delta = delta({{high(in.src), high(out.src)},
                              {low(in.src), low(out.src)},
                              {high(in.dst), high(out.dst)},
                              {low(in.dst), low(out.dst)}},
                             all_words);
        f.port_delta = delta({{in.sport, out.sport}, {in.dport, out.dport}}, all_words);
    }
    if (reply)
        f.flags |= FTCTL_F_REPLY;
    f.last_seen = now_ticks();
    f.last_trickle = f.last_seen;
    f.id = kConnection;
    return f;
}

ftctl_path Scenario::path() const
{
    const Mac to = next_hop_mac(out_device());
    const Mac from = device_mac(out_device());
    ftctl_path p{};
    // The half not in use is as wrong as can be.
    p.active = reply ? 1 : 0;
    std::fill_n(reinterpret_cast<std::uint8_t *>(&p.body[1 - p.active]), sizeof p.body[0], 0x5a);
    ftctl_path_body &body = p.body[p.active];
    std::copy(to.begin(), to.end(), body.dmac);
    std::copy(from.begin(), from.end(), body.smac);
    body.ethertype = htons(0x0800);
    body.mtu = mtu;
    body.oif = Rig::get().ifindex(out_device());
    body.flags = FTCTL_P_VALID | FTCTL_P_XDP;
    if (out_tunnel()) {
        const Ends ends = tunnel_ends(out_device());
        body.flags |= FTCTL_P_IPIP;
        if (tun_df)
            body.flags |= FTCTL_P_DF;
        if (tos_inherit)
            body.flags |= FTCTL_P_TOS_INHERIT;
        body.tun_src = htonl(ends.local);
        body.tun_dst = htonl(ends.remote);
        body.tun_ttl = tun_ttl;
        body.tun_tos = tun_tos;
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
    p.ip.proto = proto;
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
        outer.proto = kIpip;
        outer.src = ends.remote;
        outer.dst = ends.local;
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
        outer.proto = kIpip;
        outer.src = ends.local;
        outer.dst = ends.remote;
        out.outer.push_back(outer);
    }
    return out;
}

std::string Scenario::describe() const
{
    static constexpr const char *kNames[] = {"none", "snat-addr", "snat", "dnat-addr", "dnat", "both"};
    return fmt::format("{} {} nat {} {}{}{}", hook_name(hook), proto == kTcp ? "tcp" : "udp",
                       kNames[static_cast<int>(nat)], reply ? "reply" : "orig",
                       in_tunnel() ? " from a tunnel" : "", out_tunnel() ? " into a tunnel" : "");
}

std::vector<Scenario> scenarios(std::initializer_list<Proto> protos, std::initializer_list<Nat> nats,
                                bool tunnels)
{
    std::vector<Scenario> out;
    for (const Hook hook : {Hook::xdp, Hook::tc})
        for (const Proto proto : protos)
            for (const Nat nat : nats)
                for (unsigned bits = 0; bits < (tunnels ? 8U : 2U); ++bits) {
                    Scenario s;
                    s.hook = hook;
                    s.proto = proto;
                    s.nat = nat;
                    s.reply = (bits & 1) != 0;
                    s.tunnel_a = (bits & 2) != 0;
                    s.tunnel_b = (bits & 4) != 0;
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
    if (!want.outer.empty() && got.size() >= 34)
        want.outer.front().id = get16(got, 18);
    CHECK(mismatch(want.bytes(), got) == "");
}

void expect_fast(const Scenario &scenario, const Packet &in, Gso gso)
{
    INFO(scenario.describe());
    const auto before = Rig::get().flow(scenario.key());
    const auto other_before = Rig::get().flow(scenario.other_direction().key());
    REQUIRE(before);
    const Outcome out = observe(scenario, in.bytes(), gso);
    CAPTURE(out.reason);
    REQUIRE(out.fast);
    check_frame(scenario.forwarded(in), out.run.bytes);

    std::uint64_t packets = 1;
    std::uint64_t bytes = in.l3_len();
    if (gso.size != 0) {
        const std::uint64_t header = in.l3_len() - in.payload.size();
        packets = (in.payload.size() + gso.size - 1) / gso.size;
        bytes += (packets - 1) * header;
    }
    const auto after = Rig::get().flow(scenario.key());
    REQUIRE(after);
    CHECK(after->packets - before->packets == packets);
    CHECK(after->bytes - before->bytes == bytes);
    CHECK(out.fast_bytes == bytes);
    CHECK(now_ticks() - after->last_seen < 2000);
    const auto other = Rig::get().flow(scenario.other_direction().key());
    if (other && other_before)
        CHECK(other->packets == other_before->packets);
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
        CHECK(after->packets == before->packets);
        CHECK(after->bytes == before->bytes);
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
