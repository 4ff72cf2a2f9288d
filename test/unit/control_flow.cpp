// SPDX-License-Identifier: GPL-2.0-only
// Flows as JSON (the keys are the public interface) and the filter over them.
#include <catch2/catch.hpp>

#include <set>

#include "count.h"
#include "daemon/flow_filter.h"
#include "daemon/flow_json.h"

using namespace ftctl;
using ftctl::test::count_of;
using nlohmann::json;

namespace {

constexpr std::uint64_t kNow = 1000 * FTCTL_NSEC_PER_SEC;

std::uint32_t v4(const char *text)
{
    return IpAddr::parse(text)->v4();
}

/// A connection 192.0.2.2:40000 -> 198.51.100.2:80 with source NAT to 198.51.100.1; its original
/// direction leaves by an IPIP tunnel and its reply comes out of one.
struct Sample {
    FlowEntry orig;
    FlowEntry reply;
    ftctl_path_body out{};
    ftctl_path_body back{};
    FlowJsonContext context;

    Sample()
    {
        orig.key.family = 4;
        orig.key.src.w[0] = v4("192.0.2.2");
        orig.key.dst.w[0] = v4("198.51.100.2");
        orig.key.sport = htons(40000);
        orig.key.dport = htons(80);
        orig.key.iif_proto = ftctl_iif_proto(3, 6);
        orig.flow.gen = 7;
        orig.flow.state = FTCTL_FLOW_LIVE;
        orig.flow.path = 1;
        orig.flow.new_src = v4("198.51.100.1");
        orig.flow.new_dst = v4("198.51.100.2");
        orig.flow.new_sport = htons(40000);
        orig.flow.new_dport = htons(80);
        orig.flow.id = 17;
        orig.flow.carried = count_of(1000, 128000);
        orig.flow.last_seen = static_cast<std::uint32_t>((kNow - FTCTL_NSEC_PER_SEC / 2) >> FTCTL_TICK_SHIFT);
        reply = orig;
        reply.key.src.w[0] = v4("198.51.100.2");
        reply.key.dst.w[0] = v4("198.51.100.1");
        reply.key.sport = htons(80);
        reply.key.dport = htons(40000);
        reply.key.iif_proto = ftctl_iif_proto(4, 6);
        reply.key.tunnel = FTCTL_TUNNEL_IPV4;
        reply.key.outer_src.w[0] = v4("203.0.113.2");
        reply.key.outer_dst.w[0] = v4("203.0.113.1");
        reply.flow.path = 2;
        reply.flow.flags = FTCTL_F_REPLY;
        reply.flow.state = FTCTL_FLOW_PENDING;
        reply.flow.new_src = v4("198.51.100.2");
        reply.flow.new_dst = v4("192.0.2.2");
        reply.flow.new_sport = htons(80);
        reply.flow.new_dport = htons(40000);
        reply.flow.carried = {};
        reply.flow.last_seen = 0;
        out.oif = 4;
        out.mtu = 1480;
        out.flags = FTCTL_P_VALID;
        out.family = back.family = 4;
        out.tunnel = FTCTL_TUNNEL_IPV4;
        const std::uint32_t ends[] = {v4("203.0.113.1"), v4("203.0.113.2")};
        std::memcpy(out.outer + 12, ends, sizeof(ends));
        out.l2[0] = 2;
        out.l2[5] = 2;
        back.oif = 3;
        back.mtu = 1500;
        context.gen = 7;
        context.now_ns = kNow;
        context.path = [this](std::uint32_t i) -> const ftctl_path_body * {
            return i == 1 ? &out : i == 2 ? &back : nullptr;
        };
        context.ifname = [](std::uint32_t i) { return "eth" + std::to_string(i - 3); };
        context.hook = [](std::uint32_t i) { return i == 3 ? FTCTL_HOOK_XDP : FTCTL_HOOK_TC; };
    }
    Sample(const Sample &) = delete;
    Sample &operator=(const Sample &) = delete;

    [[nodiscard]] json all(const FlowExtras &extras = {}) const
    {
        return flow_json(&orig, &reply, context, extras);
    }
};

std::set<std::string> keys(const json &object)
{
    std::set<std::string> out;
    for (const auto &[key, value] : object.items())
        out.insert(key);
    return out;
}

/// The keys and types of the interface.
void check_schema(const json &flow)
{
    CHECK(keys(flow) == std::set<std::string>{"id", "family", "l4proto", "state", "zone", "mark", "age_s",
                                              "orig", "reply"});
    for (const auto *side : {"orig", "reply"}) {
        const auto &dir = flow.at(side);
        INFO(side << dir.dump(1));
        CHECK(keys(dir) == std::set<std::string>{"live", "iif", "iif_index", "hook", "match", "rewrite",
                                                 "oif", "oif_index", "next_hop", "dst_mac", "mtu", "push",
                                                 "packets", "bytes", "idle_s"});
        CHECK(keys(dir.at("match")) ==
              std::set<std::string>{"src", "sport", "dst", "dport", "vlan", "pppoe", "tunnel"});
        CHECK(keys(dir.at("rewrite")) == std::set<std::string>{"src", "sport", "dst", "dport"});
        CHECK(keys(dir.at("push")) == std::set<std::string>{"vlan", "pppoe", "tunnel"});
        CHECK(dir.at("live").is_boolean());
        for (const auto *number : {"iif_index", "oif_index", "mtu", "packets", "bytes", "idle_s"})
            CHECK(dir.at(number).is_number());
        for (const auto *text : {"iif", "hook", "oif"})
            CHECK(dir.at(text).is_string());
        CHECK(dir.at("match").at("vlan") == json::array());
    }
}

FlowFilter filter(const json &j)
{
    const auto f = parse_flow_filter(j);
    if (!f)
        FAIL(f.error().why);
    return *f;
}

} // namespace

TEST_CASE("a flow is shown with every key of the interface", "[control]")
{
    const Sample s;
    FlowExtras extras;
    extras.mark = 5;
    extras.age_s = 12.5;
    extras.orig_next_hop = *IpAddr::parse("198.51.100.2");
    const auto flow = s.all(extras);
    check_schema(flow);
    CHECK(flow["id"] == 17);
    CHECK(flow["state"] == "live");
    CHECK(flow["mark"] == 5);
    CHECK(flow["age_s"] == 12.5);
    const auto &orig = flow["orig"];
    CHECK(orig["live"] == true);
    CHECK(orig["iif"] == "eth0");
    CHECK(orig["hook"] == "xdp");
    CHECK(orig["match"]["src"] == "192.0.2.2");
    CHECK(orig["match"]["sport"] == 40000);
    CHECK(orig["match"]["tunnel"].is_null());
    CHECK(orig["rewrite"]["src"] == "198.51.100.1");
    CHECK(orig["oif"] == "eth1");
    CHECK(orig["next_hop"] == "198.51.100.2");
    CHECK(orig["dst_mac"] == "02:00:00:00:00:02");
    CHECK(orig["mtu"] == 1480);
    CHECK(orig["push"]["tunnel"] == json{{"type", "ipip"}, {"src", "203.0.113.1"}, {"dst", "203.0.113.2"}});
    CHECK(orig["packets"] == 1000);
    CHECK(orig["bytes"] == 128000);
    CHECK(orig["idle_s"].get<double>() == Approx(0.5).margin(0.01));
    const auto &reply = flow["reply"];
    CHECK(reply["live"] == false);
    CHECK(reply["match"]["tunnel"] == json{{"type", "ipip"}, {"src", "203.0.113.2"}, {"dst", "203.0.113.1"}});
    CHECK(reply["next_hop"].is_null());
    CHECK(reply["dst_mac"].is_null()); // its path is not valid
    CHECK(reply["idle_s"] == 0.0);
}

TEST_CASE("a flow of which one direction is missing", "[control]")
{
    const Sample s;
    const auto half = flow_json(&s.orig, nullptr, s.context);
    check_schema(half);
    CHECK(half["mark"].is_null());
    CHECK(half["age_s"].is_null());
    CHECK(half["reply"]["live"] == false);
    CHECK(half["reply"]["match"]["src"] == "198.51.100.2");
    CHECK(half["reply"]["match"]["dst"] == "198.51.100.1");
    CHECK(half["reply"]["match"]["tunnel"]["src"] == "203.0.113.2");
    CHECK(half["reply"]["rewrite"]["dst"] == "192.0.2.2");
    CHECK(half["reply"]["iif"] == "eth1");
    CHECK(half["reply"]["oif"] == "eth0");
    check_schema(flow_json(nullptr, &s.reply, s.context));
    CHECK(flow_json(nullptr, &s.reply, s.context)["orig"]["match"]["src"] == "192.0.2.2");
    FlowJsonContext bare; // no lookups at all
    check_schema(flow_json(&s.orig, &s.reply, bare));
}

TEST_CASE("64 bits of counters survive", "[control]")
{
    Sample s;
    s.orig.flow.carried = count_of((1ULL << 53) - 1, 0xfffffffffffffffeULL);
    CHECK(s.all()["orig"]["packets"] == (1ULL << 53) - 1);
    CHECK(s.all().dump().find("18446744073709551614") != std::string::npos);
}

TEST_CASE("states as the maps tell them", "[control]")
{
    Sample s;
    CHECK(s.all()["state"] == "live");
    s.orig.flow.gen = 6;
    CHECK(s.all()["state"] == "stale");
    CHECK(s.all()["orig"]["live"] == false);
    s.orig.flow.state = FTCTL_FLOW_PENDING;
    CHECK(s.all()["state"] == "stale"); // has carried packets
    s.orig.flow.carried = {};
    CHECK(s.all()["state"] == "pending");
    s.orig.flow.state = FTCTL_FLOW_CLOSING;
    CHECK(s.all()["state"] == "closing");
    s.reply.flow.state = FTCTL_FLOW_DIFFERS;
    s.reply.flow.reason = FTCTL_R_MANGLED;
    s.reply.flow.detail = FTCTL_D_TTL;
    CHECK(s.all()["state"] == "refused");
    CHECK(s.all()["reason"] == "mangled:ttl");
    FlowExtras extras;
    extras.state = "refused";
    extras.reason = "helper";
    CHECK(s.all(extras)["reason"] == "helper");
}

TEST_CASE("idle time counts over the wrap of the ticks", "[control]")
{
    const std::uint64_t wrap = std::uint64_t{1} << (32 + FTCTL_TICK_SHIFT);
    CHECK(idle_seconds(0, kNow) == 0);
    CHECK(idle_seconds(0xffffffff, wrap + FTCTL_NSEC_PER_SEC) == Approx(1.0).margin(0.01));
    CHECK(idle_seconds(100, 0) == 0); // seen after the clock was read
}

TEST_CASE("refused connections have the same keys, and IPv6 as well", "[control]")
{
    const Tuple orig{*IpAddr::parse("2001:db8::1"), *IpAddr::parse("2001:db8::2"), 1, 2, IPPROTO_TCP};
    FlowExtras extras;
    extras.reason = "family";
    auto flow = refused_json(3, orig, orig.reversed(), extras);
    CHECK(flow["family"] == "ipv6");
    CHECK(flow["reason"] == "family");
    CHECK(flow["reply"]["match"]["src"] == "2001:db8::2");
    CHECK(flow["orig"]["rewrite"]["src"] == "2001:db8::1");
    CHECK(filter_matches(flow, filter({{"state", "refused"}, {"src", "2001:db8::/64"}})));
    flow.erase("reason");
    check_schema(flow);
}

TEST_CASE("filters", "[control]")
{
    const Sample s;
    const auto flow = s.all();
    const auto matches = [&](const json &j) { return filter_matches(flow, filter(j)); };
    CHECK(matches(nullptr));
    CHECK(matches(json::object()));
    CHECK(matches({{"proto", "tcp"}}));
    CHECK(matches({{"proto", 6}}));
    CHECK_FALSE(matches({{"proto", "udp"}}));
    CHECK(matches({{"src", "192.0.2.0/24"}}));
    CHECK(matches({{"src", "198.51.100.2"}})); // of the reply
    CHECK_FALSE(matches({{"src", "192.0.3.0/24"}}));
    CHECK_FALSE(matches({{"src", "2001:db8::/32"}}));
    CHECK(matches({{"dst", "198.51.100.1"}})); // the reply's, before NAT
    CHECK(matches({{"sport", 80}}));
    CHECK(matches({{"dport", 80}, {"src", "192.0.2.2"}}));
    // One direction has to fulfil all of it.
    CHECK_FALSE(matches({{"sport", 80}, {"src", "192.0.2.2"}}));
    CHECK(matches({{"dev", "eth0"}}));
    CHECK(matches({{"dev", "eth1"}}));
    CHECK_FALSE(matches({{"dev", "eth2"}}));
    CHECK(matches({{"state", "live"}}));
    CHECK_FALSE(matches({{"state", "refused"}}));
    CHECK(matches({{"tunnel", "ipip"}}));
    CHECK_FALSE(matches({{"tunnel", "4in6"}}));
    auto by_name = filter({{"tunnel", "tun0"}});
    CHECK(by_name.names_tunnel_device());
    CHECK_FALSE(filter_matches(flow, by_name));
    by_name.tunnel_ends = {*IpAddr::parse("203.0.113.1"), *IpAddr::parse("203.0.113.2")};
    CHECK(filter_matches(flow, by_name));
    by_name.tunnel_ends = {*IpAddr::parse("203.0.113.1"), *IpAddr::parse("203.0.113.3")};
    CHECK_FALSE(filter_matches(flow, by_name));
}

TEST_CASE("refused connections are listed only when asked for", "[control]")
{
    Sample s;
    s.orig.flow.state = FTCTL_FLOW_DIFFERS;
    CHECK_FALSE(filter_matches(s.all(), {}));
    CHECK(filter_matches(s.all(), filter({{"state", "refused"}})));
}

TEST_CASE("filters of the wrong shape are errors", "[control]")
{
    for (const json &bad :
         {json(5), json("src"), json::array(), json{{"scr", "192.0.2.1"}}, json{{"src", nullptr}},
          json{{"src", json::object()}}, json{{"src", 5}}, json{{"sport", "80"}}, json{{"sport", -1}},
          json{{"sport", 65536}}, json{{"sport", 1.5}}, json{{"sport", 18446744073709551615ULL}},
          json{{"proto", 256}}, json{{"dev", ""}}, json{{"state", "alive"}},
          json{{"tunnel", std::string(1000, 'x')}}}) {
        INFO(bad.dump());
        const auto f = parse_flow_filter(bad);
        REQUIRE_FALSE(f.has_value());
        CHECK(f.error().code == Code::usage);
    }
}

TEST_CASE("counters of a device: all packet reasons, and they add up", "[control]")
{
    SlotStats stats;
    stats.attachment.ifindex = 3;
    stats.attachment.hook = FTCTL_HOOK_TC;
    stats.stats.rx_packets = 10;
    stats.stats.fast_packets = 7;
    stats.stats.reasons[FTCTL_R_NO_FLOW] = 2;
    stats.stats.reasons[FTCTL_R_MTU] = 1;
    const auto j = device_stats_json(stats, "eth0");
    CHECK(keys(j) == std::set<std::string>{"name", "index", "hook", "rx_packets", "fast_packets",
                                           "fast_bytes", "tx_failed", "reasons"});
    std::uint64_t sum = 0;
    for (const auto &[name, n] : j["reasons"].items())
        sum += n.get<std::uint64_t>();
    CHECK(j["rx_packets"] == j["fast_packets"].get<std::uint64_t>() + sum);
    CHECK(j["reasons"]["no-flow"] == 2);
    CHECK(j["reasons"]["ttl"] == 0);
}
