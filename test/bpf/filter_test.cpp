// SPDX-License-Identifier: GPL-2.0-only
// The early filter: which rule decides, about which packets, and that everything else stays as it was.
#include <catch2/catch.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <random>

#include <fmt/format.h>

#include "scenario.h"

using namespace ftctl::test;
using ftctl::FilterRule;

namespace {

/// Rules as an operator writes them; ids in order where none are given.
std::vector<FilterRule> rules(const std::vector<std::string> &lines)
{
    std::vector<FilterRule> out;
    for (const std::string &line : lines) {
        auto rule = ftctl::parse_filter_line(line, "test");
        INFO(line);
        REQUIRE(rule);
        REQUIRE(*rule);
        if ((*rule)->id == 0)
            (*rule)->id = out.empty() ? 1 : out.back().id + 1;
        out.push_back(**rule);
    }
    REQUIRE(ftctl::check_filter_rules(out, "test"));
    return out;
}

void expect_drop(const Scenario &s, const Bytes &frame)
{
    expect_pass(s, frame, {FTCTL_R_FILTER});
}

std::string src_of(const Scenario &s)
{
    const std::uint32_t src = s.arrives().src;
    if (!s.v6)
        return fmt::format("{}.{}.{}.{}", src >> 24, src >> 16 & 255, src >> 8 & 255, src & 255);
    char text[INET6_ADDRSTRLEN] = {};
    const Addr6 addr = addr6(src);
    inet_ntop(AF_INET6, addr.data(), text, sizeof text);
    return text;
}

} // namespace

TEST_CASE("a rule takes effect on a live flow at once, and ends with it", "[filter]")
{
    for (const Scenario &s : scenarios({kUdp}, {Nat::both}, true)) {
        s.install();
        expect_fast(s, s.packet());
        const bool inside = s.in_tunnel();
        const std::string word = inside ? "inner " : "";
        Rig::get().set_filter(rules({word + "src " + src_of(s) + " drop"}));
        expect_drop(s, s.packet(50).bytes());
        CHECK(Rig::get().filter_count(0).packets == 1);
        const std::size_t outer = s.in_tunnel() ? (s.in_outer6() ? 40U : 20U) : 0U;
        CHECK(Rig::get().filter_count(0).bytes == s.packet(50).l3_len() + outer);
        Rig::get().set_filter(rules({word + "src " + src_of(s) + " accept", "drop"}));
        expect_fast(s, s.packet());
        // without the word a rule is about the outer header, with it about the inner one only
        Rig::get().set_filter(rules({std::string(inside ? "" : "inner ") + "src " + src_of(s) + " drop"}));
        expect_fast(s, s.packet());
        // also where rules for what is inside exist
        Rig::get().set_filter(rules(
            {inside ? "src " + src_of(s) + " drop" : "dst 203.0.113.99 drop", "inner proto 99 accept"}));
        expect_fast(s, s.packet());
        Rig::get().set_filter({});
        expect_fast(s, s.packet());
    }
}

TEST_CASE("the lowest id that matches decides, whatever its kind", "[filter]")
{
    const Hook hook = GENERATE(Hook::xdp, Hook::tc);
    Scenario s;
    s.hook = hook;
    s.proto = kUdp;
    s.install(); // 192.0.2.2:40000 -> 198.51.100.2:80
    const auto drops = [&](const std::vector<std::string> &lines) {
        INFO(lines.front());
        Rig::get().set_filter(rules(lines));
        const Outcome out = observe(s, s.packet().bytes());
        return out.reason == FTCTL_R_FILTER;
    };
    CHECK(drops({"src 192.0.2.0/24 drop"}));
    CHECK(drops({"dst 198.51.100.2 drop"}));
    CHECK_FALSE(drops({"dst 198.51.100.3 drop"}));
    CHECK_FALSE(drops({"src 192.0.2.2 accept id 1", "src 192.0.2.0/24 drop id 2"}));
    CHECK(drops({"src 192.0.2.2 accept id 2", "src 192.0.2.0/24 drop id 1"}));
    CHECK(drops({"src 0.0.0.0/0 drop id 1", "src 192.0.2.2 accept id 2", "dst 198.51.100.2 accept id 3"}));
    CHECK(drops({"src 192.0.2.2 accept id 9", "dst 198.51.100.0/24 drop id 8"}));
    CHECK_FALSE(drops({"src 192.0.2.2 drop id 9", "proto udp dport 80 accept id 8"}));
    CHECK(drops({"src 192.0.2.2 drop id 8", "proto udp dport 80 accept id 9"}));
    CHECK(drops({"dport 79-81 drop"}));
    CHECK(drops({"sport 40000 dport 80-65535 proto udp drop"}));
    CHECK_FALSE(drops({"sport 40001-65535 drop", "dport 0-79 drop", "proto tcp drop", "src ::/0 drop"}));
    CHECK(drops({"dev bt0 drop"}));
    CHECK_FALSE(drops({"dev bt1 drop", "dev eth9 drop"}));
    CHECK(drops({"dev bt1 drop",
                 "dev bt0 src 192.0.2.0/25 dst 198.51.100.0/30 proto 17 sport 1-65535 dport 80 drop"}));
    CHECK_FALSE(drops({"dev bt0 src 192.0.2.0/25 dst 198.51.100.0/31 proto 17 dport 80 drop"}));
    CHECK(drops({"drop"}));
}

TEST_CASE("rules apply to what the fast path never takes", "[filter]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none}, false)) {
        s.install();
        Rig::get().set_filter(rules({"src " + src_of(s) + " drop"}));
        Packet in = s.packet();
        in.ip.ttl = 1;
        expect_drop(s, in.bytes());
        in = s.packet();
        in.tcp().flags = kSyn;
        expect_drop(s, in.bytes());
        in = s.packet();
        in.dmac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
        expect_drop(s, in.bytes());
        in.dmac = device_mac(kDevC);
        expect_drop(s, in.bytes());
        in = s.packet();
        in.tag(0x88a8, 12).tag(0x8100, 13);
        expect_drop(s, in.bytes());
        in = s.packet();
        in.pppoe = 7;
        expect_drop(s, in.bytes());
        in = s.packet();
        in.ip.proto = 99;
        in.l4 = std::monostate{};
        expect_drop(s, in.bytes());
        if (!s.v6) {
            in = s.packet();
            in.ip.frag = kMf;
            expect_drop(s, in.bytes());
            in.ip.frag = 100;
            expect_drop(s, in.bytes());
            in = s.packet();
            in.ip.options = Bytes(8, 1);
            expect_drop(s, in.bytes());
        }
        // without a daemon as well: the operator's rules are no cache of anything
        ftctl_config config = Rig::get().config();
        config.heartbeat_ns -= 60 * FTCTL_NSEC_PER_SEC;
        Rig::get().set_config(config);
        expect_drop(s, s.packet().bytes());
        Rig::get().set_filter({});
        expect_pass(s, s.packet(), {FTCTL_R_HEARTBEAT});
    }
}

TEST_CASE("ports are those of the packet, where it has them", "[filter]")
{
    for (const Scenario &s : scenarios({kTcp, kUdp}, {Nat::none}, false)) {
        if (s.v6)
            continue;
        s.install();
        Rig::get().set_filter(rules({"dport " + std::to_string(s.arrives().dport) + " drop"}));
        expect_drop(s, s.packet().bytes());
        Packet in = s.packet();
        in.ip.options = Bytes(12, 1);
        expect_drop(s, in.bytes());
        in = s.packet();
        in.ip.frag = kMf; // the first fragment has the ports
        expect_drop(s, in.bytes());
        in.ip.frag = 1; // later ones have bytes that only look like them
        expect_pass(s, in, {FTCTL_R_FRAGMENT});
        in = s.packet();
        in.ip.proto = kGre;
        expect_pass(s, in, {FTCTL_R_PROTOCOL, FTCTL_R_BAD_LENGTH});
        in.ip.proto = kSctp;
        expect_drop(s, in.bytes());
    }
}

TEST_CASE("the protocol and the ports stand behind IPv6 extension headers", "[filter]")
{
    for (const Hook hook : {Hook::xdp, Hook::tc}) {
        Scenario s;
        s.hook = hook;
        s.v6 = true;
        s.proto = kUdp;
        s.install();
        Rig::get().set_filter(rules({"proto udp dport 80 drop"}));
        Bytes frame = s.packet().bytes();
        expect_drop(s, frame);
        const auto insert = [&](std::uint8_t kind, Bytes header) {
            header[0] = frame[20];
            frame[20] = kind;
            const auto len = static_cast<std::uint16_t>(get16(frame, 18) + header.size());
            frame[18] = static_cast<std::uint8_t>(len >> 8);
            frame[19] = static_cast<std::uint8_t>(len);
            frame.insert(frame.begin() + 54, header.begin(), header.end());
        };
        insert(44, {0, 0, 0, 1, 1, 2, 3, 4}); // fragment, the first one
        expect_drop(s, frame);
        insert(60, {0, 1, 1, 4, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0}); // destination options, 16 bytes
        insert(0, {0, 0, 1, 4, 0, 0, 0, 0});                          // hop by hop
        expect_drop(s, frame);
        frame = s.packet().bytes();
        insert(44, {0, 0, 0, 8, 1, 2, 3, 4}); // a later one
        expect_pass(s, frame, {FTCTL_R_FRAGMENT});
        Rig::get().set_filter(rules({"proto udp drop"}));
        expect_drop(s, frame);
    }
}

TEST_CASE("packets that are no IP, or end before their header does, are not the filter's", "[filter]")
{
    for (const Scenario &s : scenarios({kTcp}, {Nat::none}, true)) {
        s.install();
        Rig::get().set_filter(rules({"drop", "inner drop"}));
        Packet in = s.packet();
        in.ethertype = 0x0806;
        expect_pass(s, in, {FTCTL_R_NOT_IP});
        Bytes frame = s.packet().bytes();
        frame[14] = 0x30;
        expect_pass(s, frame, {FTCTL_R_BAD_LENGTH});
    }
}

TEST_CASE("explain counts for no rule", "[filter]")
{
    for (const Hook hook : {Hook::xdp, Hook::tc}) {
        Scenario s;
        s.hook = hook;
        s.install();
        Rig::get().set_filter(rules({"dst 198.51.100.0/24 drop"}));
        const Run run = Rig::get().dry(hook, s.packet().bytes());
        CHECK(run.verdict == (hook == Hook::xdp ? kXdpDrop : kTcShot));
        CHECK(Rig::get().filter_count(0).packets == 0);
    }
}

namespace {

/// What a rule says, asked one field after the other.
bool matches(const FilterRule &rule, const ftctl::IpAddr &src, const ftctl::IpAddr &dst, const Packet &p,
             std::uint16_t sport, std::uint16_t dport, const std::string &dev)
{
    const auto prefix = [](const std::optional<ftctl::Prefix> &want, const ftctl::IpAddr &addr) {
        return !want || (want->addr.family == addr.family && want->contains(addr));
    };
    const auto port = [](const std::optional<ftctl::PortRange> &want, std::uint16_t value) {
        return !want || (want->first <= value && value <= want->last);
    };
    return !rule.inner && prefix(rule.src, src) && prefix(rule.dst, dst) &&
           (!rule.proto || *rule.proto == p.ip.proto) && port(rule.sport, sport) && port(rule.dport, dport) &&
           (rule.dev.empty() || rule.dev == dev);
}

} // namespace

TEST_CASE("random rules and packets: the program finds what a search finds", "[filter]")
{
    const auto seed = static_cast<unsigned>(GENERATE(1, 2, 3, 4));
    std::mt19937 random(seed);
    const auto pick = [&](unsigned below) { return static_cast<unsigned>(random() % below); };
    const auto addr = [&](bool v6) {
        // few bits vary, and those at both ends, so that prefixes of all lengths cover something
        const unsigned a = pick(3), b = pick(4);
        return v6 ? fmt::format("2001:db{:x}::{:x}", a, b) : fmt::format("10.{}.0.{}", a, b);
    };
    const auto prefix = [&](bool v6) { return fmt::format("{}/{}", addr(v6), pick(v6 ? 129 : 33)); };
    const auto ports = [&] {
        const unsigned first = pick(8), last = first + pick(4);
        return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    };
    std::size_t dropped = 0, packets = 0;
    for (unsigned round = 0; round < 30; round++) {
        std::vector<std::string> lines;
        const unsigned count = round % 3 == 0 ? 400 : 1 + pick(40);
        for (unsigned i = 0; i < count; i++) {
            const bool v6 = pick(2) != 0;
            std::string line = fmt::format("id {}", 1 + i * 2 + pick(2));
            if (pick(3) != 0) { // a prefix rule
                line += (pick(2) != 0 ? " src " : " dst ") + prefix(v6);
            } else {
                for (const char *word : {" src ", " dst "})
                    if (pick(3) == 0)
                        line += word + prefix(v6);
                for (const char *word : {" sport ", " dport "})
                    if (pick(3) == 0)
                        line += word + ports();
                if (pick(2) == 0)
                    line += pick(2) != 0 ? " proto tcp" : " proto udp";
                if (pick(4) == 0)
                    line += fmt::format(" dev bt{}", pick(3));
                if (pick(8) == 0)
                    line += " inner";
            }
            lines.push_back(line + (pick(2) != 0 ? " drop" : " accept"));
        }
        Scenario s;
        s.hook = round % 2 == 0 ? Hook::xdp : Hook::tc;
        s.install();
        const auto set = rules(lines);
        Rig::get().set_filter(set);
        for (unsigned i = 0; i < 60; i++) {
            const bool v6 = pick(2) != 0;
            Scenario t = s;
            t.v6 = v6;
            t.proto = pick(2) != 0 ? kTcp : kUdp;
            t.reply = pick(2) != 0;
            Packet in = t.packet(3);
            const auto src = ftctl::IpAddr::parse(addr(v6)).value(),
                       dst = ftctl::IpAddr::parse(addr(v6)).value();
            const auto sport = static_cast<std::uint16_t>(pick(12)),
                       dport = static_cast<std::uint16_t>(pick(12));
            if (v6) {
                std::copy(src.bytes.begin(), src.bytes.end(), in.ip.v6->src.begin());
                std::copy(dst.bytes.begin(), dst.bytes.end(), in.ip.v6->dst.begin());
            }
            in.ip.src = ntohl(src.v4());
            in.ip.dst = ntohl(dst.v4());
            if (t.proto == kTcp) {
                in.tcp().sport = sport;
                in.tcp().dport = dport;
            } else {
                in.udp().sport = sport;
                in.udp().dport = dport;
            }
            const auto first = std::find_if(set.begin(), set.end(), [&](const FilterRule &rule) {
                return matches(rule, src, dst, in, sport, dport, t.reply ? "bt1" : "bt0");
            });
            const auto before = first == set.end()
                                    ? ftctl_filter_count{}
                                    : Rig::get().filter_count(static_cast<std::size_t>(first - set.begin()));
            const Outcome out = observe(t, in.bytes());
            packets++;
            dropped += out.reason == FTCTL_R_FILTER ? 1 : 0;
            const bool want = first != set.end() && first->drop;
            if ((out.reason == FTCTL_R_FILTER) != want)
                FAIL(
                    "seed " << seed << " round " << round << ": "
                            << (first == set.end() ? std::string("no rule") : ftctl::filter_rule_text(*first))
                            << " should decide about " << src.str() << ":" << sport << " -> " << dst.str()
                            << ":" << dport << " proto " << int(in.ip.proto) << ", but it was "
                            << (want ? "not " : "") << "dropped");
            if (first != set.end())
                CHECK(Rig::get().filter_count(static_cast<std::size_t>(first - set.begin())).packets ==
                      before.packets + 1);
        }
    }
    CHECK(dropped > packets / 5);
    CHECK(dropped < packets * 4 / 5);
}
