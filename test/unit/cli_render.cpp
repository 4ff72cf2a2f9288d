// SPDX-License-Identifier: GPL-2.0-only
// What is printed for canned answers.
#include <catch2/catch.hpp>

#include <sstream>

#include "cli/render.h"
#include "cli/top.h"
#include "cli/views.h"

using namespace ftctl;
using nlohmann::json;

namespace {

std::string text(View view, const json &data, bool colour = false)
{
    std::ostringstream out;
    view(out, data, colour);
    return out.str();
}

json direction(const std::string &src, int sport, const std::string &dst, int dport)
{
    const json tuple{{"src", src}, {"sport", sport}, {"dst", dst}, {"dport", dport}};
    json match = tuple;
    match["vlan"] = json::array();
    match["pppoe"] = nullptr;
    match["tunnel"] = nullptr;
    return {
        {"live", true},        {"iif", "eth0"},
        {"iif_index", 3},      {"hook", "xdp"},
        {"match", match},      {"rewrite", tuple},
        {"oif", "eth1"},       {"oif_index", 4},
        {"next_hop", nullptr}, {"dst_mac", nullptr},
        {"mtu", 1500},         {"push", {{"vlan", json::array()}, {"pppoe", nullptr}, {"tunnel", nullptr}}},
        {"packets", 1000},     {"bytes", 128000},
        {"idle_s", 0.1}};
}

json flow()
{
    return {{"id", 17},
            {"family", "ipv4"},
            {"l4proto", "tcp"},
            {"state", "live"},
            {"zone", 0},
            {"mark", nullptr},
            {"age_s", 12.5},
            {"orig", direction("192.0.2.2", 40000, "198.51.100.2", 80)},
            {"reply", direction("198.51.100.2", 80, "192.0.2.2", 40000)}};
}

} // namespace

TEST_CASE("amounts and times are short", "[cli]")
{
    CHECK(amount(0) == "0");
    CHECK(amount(999) == "999");
    CHECK(amount(1000) == "1.00k");
    CHECK(amount(128000) == "128k");
    CHECK(amount(12345678) == "12.3M");
    CHECK(amount(999999) == "1.00M");
    CHECK(amount(18446744073709551615ULL) == "18.4E");
    CHECK(amount(nullptr) == "-");
    CHECK(span(0.12) == "0.1s");
    CHECK(span(59.4) == "59s");
    CHECK(span(59.6) == "1m00s");
    CHECK(span(184) == "3m04s");
    CHECK(span(7500) == "2h05m");
    CHECK(span(273600) == "3d04h");
    CHECK(span(nullptr) == "-");
    CHECK(endpoints({{"src", "2001:db8::1"}, {"sport", 1}, {"dst", "2001:db8::2"}, {"dport", 2}}) ==
          "[2001:db8::1]:1 -> [2001:db8::2]:2");
}

TEST_CASE("flows: one line a direction, and only columns with something to say", "[cli]")
{
    CHECK(text(view_flows, json::array({flow()})) ==
          "STATE  PROTO  PACKET                              IN        OUT   PACKETS  BYTES  IDLE  AGE\n"
          "live   tcp    192.0.2.2:40000 -> 198.51.100.2:80  eth0/xdp  eth1    1.00k   128k  0.1s  13s\n"
          "live   tcp    198.51.100.2:80 -> 192.0.2.2:40000  eth0/xdp  eth1    1.00k   128k  0.1s  13s\n");
}

TEST_CASE("flows: NAT, tunnels, a silent direction and reasons", "[cli]")
{
    auto f = flow();
    f["orig"]["rewrite"]["src"] = "198.51.100.1";
    f["orig"]["push"]["tunnel"] = {{"type", "ipip"}, {"src", "203.0.113.1"}, {"dst", "203.0.113.2"}};
    f["reply"]["match"]["tunnel"] = {{"type", "ipip"}, {"src", "203.0.113.2"}, {"dst", "203.0.113.1"}};
    f["reply"]["live"] = false;
    f["reply"]["hook"] = "none";
    auto out = text(view_flows, json::array({f}));
    CHECK_THAT(out, Catch::Contains("198.51.100.1:40000 -> 198.51.100.2:80"));
    CHECK_THAT(out, Catch::Contains("+ipip 203.0.113.1>203.0.113.2"));
    CHECK_THAT(out, Catch::Contains("-ipip 203.0.113.2>203.0.113.1"));
    CHECK_THAT(out, Catch::Contains("\npending "));
    CHECK_THAT(out, !Catch::Contains("REASON"));
    f["state"] = "refused";
    f["reason"] = "mangled:ttl";
    f["orig"]["live"] = false;
    out = text(view_flows, json::array({f}));
    CHECK_THAT(out, Catch::Contains("\nrefused "));
    CHECK_THAT(out, Catch::Contains("mangled:ttl"));
}

TEST_CASE("flows: no flows, nonsense and hostile names", "[cli]")
{
    CHECK(text(view_flows, json::array()).starts_with("STATE"));
    CHECK_NOTHROW(text(view_flows, {{"x", 1}}));
    CHECK_NOTHROW(text(view_flows, json::array({1, "x", nullptr, json::object()})));
    auto f = flow();
    f["orig"]["iif"] = "e\033[31m\n";
    f["orig"]["oif"] = "\xff";
    const auto out = text(view_flows, json::array({f}));
    CHECK(out.find('\033') == std::string::npos);
    CHECK(std::count(out.begin(), out.end(), '\n') == 3);
}

TEST_CASE("colour is asked for, and does not move columns", "[cli]")
{
    const auto out = text(view_flows, json::array({flow()}), true);
    CHECK_THAT(out, Catch::Contains("\033[32mlive \033[0m  tcp"));
}

TEST_CASE("stats: reasons that are not zero, with their meaning", "[cli]")
{
    const json data{{"devices",
                     {{{"name", "eth0"},
                       {"index", 3},
                       {"hook", "xdp"},
                       {"rx_packets", 100},
                       {"fast_packets", 90},
                       {"fast_bytes", 9000},
                       {"tx_failed", 0},
                       {"reasons", {{"no-flow", 7}, {"ttl", 3}, {"mtu", 0}}}}}},
                    {"flows", {{"live", 1}, {"pending", 0}, {"max", 1000}, {"insert_full", 0}}},
                    {"conntrack", {{"events", nullptr}, {"overruns", nullptr}, {"resyncs", nullptr}}},
                    {"refusals", {{"mangled:dscp", 2}}}};
    const auto out = text(view_stats, data);
    CHECK_THAT(out,
               Catch::Contains("eth0 (xdp): 100 packets in, 90 fast (90.0%), 9.00k bytes fast, 0 not sent"));
    CHECK_THAT(out, Catch::Contains("no-flow        7   7.0%  no flow is known for this packet"));
    CHECK_THAT(out, !Catch::Contains("mtu"));
    CHECK_THAT(out, Catch::Contains("mangled:dscp               2  the kernel changes the packet"));
    CHECK_THAT(out, !Catch::Contains("conntrack"));
    CHECK(out.find("no-flow") < out.find("ttl"));
    CHECK_THAT(text(view_stats, json::object()), Catch::Contains("no device is attached"));
}

TEST_CASE("the other views do not fall over missing keys", "[cli]")
{
    for (const View view : {view_attach, view_detach, view_status, view_flows, view_count, view_flush,
                            view_stats, view_explain, view_tunnels, view_done, view_doctor, view_config})
        for (const json &data : {json(), json(5), json("x"), json::array(), json::object(),
                                 json{{"devices", 5}, {"kernel", 5}, {"notes", 5}, {"text", 5}},
                                 json{{"devices", {nullptr}}, {"kernel", json::array()}}}) {
            INFO(data.dump());
            CHECK_NOTHROW(text(view, data));
        }
}

TEST_CASE("status and doctor", "[cli]")
{
    const auto status =
        text(view_status, {{"instance", "default"},
                           {"daemon", {{"running", true}, {"pid", 7}}},
                           {"devices", {{{"name", "eth0"}, {"index", 3}, {"hook", "tc"}, {"why", "veth"}}}}});
    CHECK_THAT(status, Catch::Contains("daemon:   running"));
    CHECK_THAT(status, Catch::Contains("eth0        3  tc    veth"));
    const auto doctor =
        text(view_doctor,
             {{"kernel",
               {{{"name", "tcx"}, {"ok", false}, {"required", false}, {"detail", "no"}, {"hint", "6.6"}},
                {{"name", "btf"}, {"ok", false}, {"required", true}, {"detail", "no"}, {"hint", ""}}}}});
    CHECK_THAT(doctor, Catch::Contains("WARN    tcx"));
    CHECK_THAT(doctor, Catch::Contains("FAIL    btf"));
    CHECK_THAT(doctor, Catch::Contains("hint: tcx: 6.6"));
}

TEST_CASE("one call site gives JSON, indented JSON and text", "[cli]")
{
    const json data{{"count", 3}};
    std::ostringstream out;
    emit(out, {Format::json, true}, data, view_count);
    emit(out, {Format::pretty, false}, data, view_count);
    emit(out, {Format::text, false}, data, view_count);
    CHECK(out.str() == "{\"count\":3}\n{\n  \"count\": 3\n}\n3\n");
    std::ostringstream bytes;
    emit(bytes, {Format::json, false}, json("\xff"), view_count);
    CHECK(bytes.str() == "\"\xef\xbf\xbd\"\n");
}

TEST_CASE("errors are printed in the interface's form", "[cli]")
{
    std::ostringstream err;
    print_error(err, {"attach eth0", "no such device", "ip link", Code::refused, 0});
    print_error(err, {"flush", "refused\n", "", Code::refused, 0});
    CHECK(err.str() == "ftctl: attach eth0: no such device\nhint: ip link\nftctl: flush: refused?\n");
}

TEST_CASE("top: rates, busiest first; a number that begins anew is no negative rate", "[cli]")
{
    auto before = json::array({flow(), flow()});
    auto now = before;
    now[1]["id"] = before[1]["id"] = 18;
    now[0]["orig"]["bytes"] = 128000 + 1000;
    now[0]["orig"]["packets"] = 1010;
    now[1]["reply"]["bytes"] = 128000 + 9000;
    now[1]["orig"]["bytes"] = 0;
    const auto sample = [](const json &flows, TopSample *earlier, double seconds) {
        TopSample out(earlier, seconds);
        for (const json &one : flows)
            out.add(one);
        return out;
    };
    TopSample first = sample(before, nullptr, 0);
    CHECK(first.rows()[0]["bps"] == 0.0);
    TopSample second = sample(now, &first, 2);
    const auto rows = second.rows();
    REQUIRE(rows.size() == 4);
    CHECK(rows[0]["id"] == 18);
    CHECK(rows[0]["bps"] == 36000.0);
    CHECK(rows[1]["bps"] == 4000.0);
    CHECK(rows[1]["pps"] == 5.0);
    CHECK(rows[3]["bps"] == 0.0);
    std::ostringstream out;
    view_top(out, second, 1, false);
    CHECK_THAT(out.str(), Catch::Contains("4 directions live of 4, 40.0kbit/s and 5 packets/s"));
    CHECK_THAT(out.str(), Catch::Contains("36.0kbit/s"));
    CHECK_THAT(out.str(), !Catch::Contains("4.00kbit/s"));
}

TEST_CASE("top keeps the busiest rows and counts all", "[cli]")
{
    constexpr int kFlows = 30000;
    TopSample first(nullptr), second(&first, 1);
    for (int i = 0; i < kFlows; i++) {
        json one = flow();
        one["id"] = i;
        one["reply"]["bytes"] = 0;
        one["orig"]["bytes"] = 1000 + i * 7919 % kFlows;
        second.add(one);
    }
    CHECK(second.directions() == 2 * kFlows);
    CHECK(second.bps() == 8.0 * (1000.0 * kFlows + (kFlows - 1.0) * kFlows / 2));
    const auto rows = second.rows();
    REQUIRE(rows.size() == TopSample::kKeep);
    for (std::size_t i = 0; i < rows.size(); i++)
        if (rows[i]["bps"] != 8.0 * (1000.0 + kFlows - 1.0 - static_cast<double>(i)))
            FAIL("row " << i);
}
