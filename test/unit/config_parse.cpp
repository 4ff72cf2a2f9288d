// SPDX-License-Identifier: GPL-2.0-only
#include <catch2/catch.hpp>

#include "daemon/config.h"

using namespace ftctl;

namespace {

Error error_of(const std::string &text)
{
    const auto c = parse_config(text, "F");
    INFO(text);
    REQUIRE_FALSE(c.has_value());
    CHECK(c.error().code == Code::usage);
    return c.error();
}

void expect(const std::string &text, const std::string &what, const std::string &part)
{
    const auto e = error_of(text);
    INFO(text);
    CHECK(e.what == what);
    CHECK_THAT(e.why, Catch::Contains(part));
}

} // namespace

TEST_CASE("an empty configuration has the documented defaults", "[config]")
{
    const auto c = parse_config("{}");
    REQUIRE(c);
    CHECK(c->devices.empty());
    CHECK(c->limits.flows == 0);
    CHECK(c->limits.rcvbuf_bytes == 16U << 20);
    CHECK(c->trickle_s == 10);
    CHECK(c->mark_value == 0x80000000);
    CHECK(c->mark_mask == 0x80000000);
    CHECK(c->track);
}

TEST_CASE("everything the configuration may say", "[config]")
{
    const auto c = parse_config(R"(// a comment
{
  /* another,
     longer one */
  "devices": ["eth0", {"name": "eth1", "mode": "tc"}],
  "tunnels": [{"name": "tun0", "mode": "ipip", "local": "203.0.113.1", "remote": "203.0.113.2",
               "ttl": 64, "tos": "inherit", "dev": "eth1"}],
  "limits": {"flows": 1000, "rcvbuf_bytes": 1048576},
  "trickle_s": 5,
  "policy": [
    {"match": {"proto": "udp", "dport": 53}, "action": "skip"},
    {"match": {"src": "192.0.2.0/24", "dev": "eth0"}, "action": "offload"},
    {"action": "skip"}
  ],
  "mark": "0x10/0xf0",
  "track": false
})");
    if (!c)
        FAIL(c.error().what << ": " << c.error().why);
    REQUIRE(c->devices.size() == 2);
    CHECK(c->devices[0].mode == "auto");
    CHECK(c->devices[1].mode == "tc");
    REQUIRE(c->tunnels.size() == 1);
    CHECK(c->tunnels[0].config.mode == TunnelConfig::Mode::ipip);
    CHECK(c->tunnels[0].config.local.str() == "203.0.113.1");
    CHECK(c->tunnels[0].config.ttl == 64);
    CHECK(c->tunnels[0].config.tos == 1);
    CHECK(c->tunnels[0].config.declared);
    CHECK(c->tunnels[0].dev == "eth1");
    CHECK(c->limits.flows == 1000);
    CHECK(c->trickle_s == 5);
    CHECK(c->mark_value == 0x10);
    CHECK(c->mark_mask == 0xf0);
    CHECK_FALSE(c->track);

    Tuple t{*IpAddr::parse("192.0.2.2"), *IpAddr::parse("198.51.100.2"), 40000, 53, IPPROTO_UDP};
    CHECK_FALSE(policy_allows(*c, t, "eth0")); // the first entry counts
    t.dport = 54;
    CHECK(policy_allows(*c, t, "eth0"));
    CHECK_FALSE(policy_allows(*c, t, "eth1"));
}

TEST_CASE("the mark can be turned off", "[config]")
{
    CHECK_FALSE(parse_config(R"({})")->mark_from_conntrack);
    CHECK(parse_config(R"({"packet_mark": "conntrack"})")->mark_from_conntrack);
    CHECK_FALSE(parse_config(R"({"packet_mark": "unknown"})")->mark_from_conntrack);
    const auto c = parse_config(R"({"mark": "none"})");
    REQUIRE(c);
    CHECK(c->mark_mask == 0);
    CHECK(parse_config(R"({"mark": "5"})")->mark_mask == 0xffffffff);
}

TEST_CASE("configuration errors name the line and the word", "[config]")
{
    expect("{\n  \"devces\": []\n}", "F:2", "unknown key 'devces'; did you mean 'devices'?");
    expect("{\n\n \"devices\": [\n  {\"name\": \"eth0\"},\n  {\"name\": \"eth1\",\n   \"mdoe\": \"tc\"}\n ]}",
           "F:6", "did you mean 'mode'?");
    expect("{\n \"devices\": [\n  \"eth0\",\n  \"eth0\"\n ]}", "F:4", "given twice");
    expect("{\n// \"x\n\"track\": 1}", "F:3", "'track' is 1");
    expect("{\"trickle_s\":\n 256}", "F:1", "'trickle_s' is 256");
    expect("{\"trickle_s\": 1.5}", "F:1", "1.5");
    expect("{\"trickle_s\": -1}", "F:1", "-1");
    expect("{\"trickle_s\": 99999999999999999999}", "F:1", "trickle_s");
    expect("{\"limits\": {\n\"flows\": 18446744073709551615}}", "F:2", "flows");
    expect("{\"limits\": 5}", "F:1", "no object");
    expect("{\"devices\": {}}", "F:1", "no list");
    expect("{\"devices\": [5]}", "F:1", "no object");
    expect("{\"devices\": [\"a/b\"]}", "F:1", "no device name");
    expect("{\"devices\": [{\"mode\": \"tc\"}]}", "F:1", "'name' is missing");
    expect("{\"devices\": [{\"name\": \"eth0\", \"mode\": \"xpd\"}]}", "F:1", "did you mean 'xdp'?");
    expect("{\"policy\": [{\"match\": {}}]}", "F:1", "'action' is missing");
    expect("{\"policy\": [{\"action\": \"drop\"}]}", "F:1", "'drop'");
    expect("{\"policy\": [{\"action\": \"skip\", \"match\": {\"src\": \"192.0.2.0/40\"}}]}", "F:1",
           "192.0.2.0/40");
    expect("{\"mark\": \"0x1ff/0xff\"}", "F:1", "outside the mask");
    expect("{\"mark\": 1}", "F:1", "no text");
    expect("{\"mark\": \"\"}", "F:1", "mark");
    expect("{\"packet_mark\": \"ct\"}", "F:1", "packet_mark");
    expect("{\"tunnels\": [{\"name\": \"t\", \"mode\": \"ipip\", \"local\": \"2001:db8::1\", \"remote\": "
           "\"203.0.113.2\"}]}",
           "F:1", "family");
    expect("{\"tunnels\": [{\"name\": \"t\", \"mode\": \"ipip\", \"local\": \"203.0.113.1\", \"remote\": "
           "\"203.0.113.2\", \"tos\": 3}]}",
           "F:1", "odd");
    expect("{\n\"track\": true,\n\"track\": false}", "F:3", "'track' is given twice");
    expect("[]", "F:1", "no object");
    expect("\"eth0\"", "F:1", "no object");
}

TEST_CASE("tunnel words and their defaults by mode", "[config]")
{
    using nlohmann::json;
    const auto six = [](const json &more) {
        json words{{"name", "t"}, {"mode", "4in6"}, {"local", "2001:db8::1"}, {"remote", "2001:db8::2"}};
        words.update(more);
        return parse_tunnel(words);
    };
    const TunnelConfig plain = six(json::object()).value().config;
    CHECK(plain.mode == TunnelConfig::Mode::ip4in6);
    CHECK(plain.ttl == 64);
    CHECK(plain.tos == 0);
    CHECK(plain.encap_limit == 4);
    CHECK(plain.flow_label == 0);
    CHECK_FALSE(plain.flow_label_inherit);
    CHECK(six({{"ttl", "inherit"}})->config.ttl == 0);
    CHECK_FALSE(six({{"encaplimit", "none"}})->config.encap_limit);
    CHECK(six({{"encaplimit", 0}})->config.encap_limit == 0);
    CHECK(six({{"flowlabel", 77}})->config.flow_label == 77);
    CHECK(six({{"flowlabel", "0xFfffF"}})->config.flow_label == 0xfffff);
    CHECK(six({{"flowlabel", "inherit"}})->config.flow_label_inherit);
    CHECK(six({{"tos", "inherit"}})->config.tos == 1);
    CHECK(six({{"tos", "0xB8"}})->config.tos == 184);
    CHECK(six({{"tos", "184"}})->config.tos == 184);
    CHECK(six({{"tos", 254}})->config.tos == 254);
    CHECK(six({{"ttl", "0x40"}})->config.ttl == 64);
    for (const char *bad : {"0x", "0xb9", "0x100", "256", "-2", "b8", "lowdelay", ""})
        CHECK_FALSE(six({{"tos", bad}}));
    CHECK_FALSE(six({{"ttl", "0"}}));
    CHECK_FALSE(six({{"flowlabel", "0x100000"}}));
    CHECK_FALSE(six({{"flowlabel", 0x100000}}));
    CHECK_FALSE(six({{"flowlabel", "x"}}));
    CHECK_FALSE(six({{"encaplimit", 256}}));
    CHECK_FALSE(six({{"encaplimit", "no"}}));
    CHECK_FALSE(six({{"remote", "192.0.2.1"}}));

    json words{{"name", "t"}, {"mode", "6in4"}, {"local", "192.0.2.1"}, {"remote", "192.0.2.2"}};
    const TunnelConfig four = parse_tunnel(words).value().config;
    CHECK(four.ttl == 0);
    CHECK(four.pmtudisc);
    CHECK_FALSE(four.encap_limit);
    words["encaplimit"] = 4;
    CHECK_THAT(parse_tunnel(words).error().why, Catch::Contains("IPv6 outside only"));
    words.erase("encaplimit");
    words["flowlabel"] = 4;
    CHECK_THAT(parse_tunnel(words).error().why, Catch::Contains("IPv6 outside only"));
}

TEST_CASE("configuration syntax errors name the line", "[config]")
{
    expect("{\n \"track\": true,\n}", "F:3", "not valid JSON");
    expect("", "F:1", "not valid JSON");
    expect("{\"track\": tru}", "F:1", "not valid JSON");
    expect(std::string(100, '[') + std::string(100, ']'), "F:1", "nested too deeply");
    expect(std::string(100000, '['), "F:1", "nested too deeply");
    expect("{\"devices\": [\"\xff\xfe\"]}", "F:1", "not valid JSON");
    expect("{} x", "F:1", "not valid JSON");
}

TEST_CASE("a file that is not there", "[config]")
{
    const auto c = load_config("/nonexistent/ftctl.json");
    REQUIRE_FALSE(c.has_value());
    CHECK(c.error().code == Code::refused);
    CHECK(c.error().err == ENOENT);
}
