// SPDX-License-Identifier: GPL-2.0-only
#include <catch2/catch.hpp>

#include "cli/words.h"
#include "util/suggest.h"

using namespace ftctl;
using nlohmann::json;

namespace {

std::string why(const Result<json> &r)
{
    REQUIRE_FALSE(r.has_value());
    CHECK(r.error().code == Code::usage);
    return r.error().why;
}

} // namespace

TEST_CASE("suggestions are near words only", "[cli]")
{
    const Words words{"proto", "src", "dst", "sport", "dport", "dev", "state", "tunnel"};
    CHECK(nearest("scr", words) == "src");
    CHECK(nearest("porto", words) == "proto");
    CHECK(nearest("tunel", words) == "tunnel");
    CHECK(nearest("tun", words) == "tunnel");
    CHECK(nearest("banana", words).empty());
    CHECK(nearest("", words).empty());
    CHECK(edit_distance("abc", "acb") == 1);
    CHECK(edit_distance("", "ab") == 2);
}

TEST_CASE("FILTER words become the protocol's object", "[cli]")
{
    CHECK(*parse_filter("flows", {}) == json::object());
    const auto f =
        parse_filter("flows", {"proto", "tcp", "src", "192.0.2.0/24", "dst", "198.51.100.2", "sport", "40000",
                               "dport", "80", "dev", "eth0", "state", "live", "tunnel", "ipip"});
    REQUIRE(f);
    CHECK(*f == json{{"proto", "tcp"},
                     {"src", "192.0.2.0/24"},
                     {"dst", "198.51.100.2"},
                     {"sport", 40000},
                     {"dport", 80},
                     {"dev", "eth0"},
                     {"state", "live"},
                     {"tunnel", "ipip"}});
    CHECK((*parse_filter("flows", {"dev", "7"}))["dev"] == "7");
    CHECK((*parse_filter("flows", {"proto", "17"}))["proto"] == "17");
}

TEST_CASE("FILTER errors name the word", "[cli]")
{
    CHECK(why(parse_filter("flows", {"scr", "192.0.2.1"})) == "unknown word 'scr'; did you mean 'src'?");
    CHECK(why(parse_filter("flows", {"src"})) == "'src' needs a value");
    CHECK(why(parse_filter("flows", {"src", "192.0.2.1", "src", "192.0.2.2"})) == "'src' is given twice");
    CHECK(why(parse_filter("flows", {"src", "192.0.2.300"})).find("192.0.2.300") != std::string::npos);
    CHECK(why(parse_filter("flows", {"src", "192.0.2.1/33"})).find("192.0.2.1/33") != std::string::npos);
    CHECK(why(parse_filter("flows", {"sport", "65536"})).find("65536") != std::string::npos);
    CHECK(why(parse_filter("flows", {"sport", "http"})).find("http") != std::string::npos);
    CHECK(why(parse_filter("flows", {"state", "liv"})).find("did you mean 'live'?") != std::string::npos);
    CHECK(why(parse_filter("flows", {"proto", "tpc"})).find("tpc") != std::string::npos);
    CHECK(why(parse_filter("flows", {"dev", "a-name-that-is-too-long"})).find("dev") != std::string::npos);
    CHECK(parse_filter("flush", {"x"}).error().what == "flush");
}

TEST_CASE("ends of a connection", "[cli]")
{
    const auto end = [](const std::string &text) { return parse_endpoint("explain", text); };
    CHECK(end("192.0.2.2:80")->addr == "192.0.2.2");
    CHECK(end("192.0.2.2:80")->port == 80);
    CHECK(end("192.0.2.2")->port == 0);
    CHECK(end("[2001:db8::2]:443")->addr == "2001:db8::2");
    CHECK(end("[2001:db8::2]:443")->port == 443);
    CHECK(end("[2001:db8::2]")->port == 0);
    CHECK(end("2001:db8::2")->addr == "2001:db8::2");
    for (const auto *bad : {"", "192.0.2.2:", "192.0.2.2:65536", "192.0.2.2:8x", "192.0.2:1", "[2001:db8::2",
                            "[2001:db8::2]443", "[]:1", "host:80", ":80", "[192.0.2.2", "192.0.2.2:-1"}) {
        INFO(bad);
        CHECK_FALSE(end(bad));
    }
}

TEST_CASE("explain words", "[cli]")
{
    const auto e = parse_explain({"tcp", "192.0.2.2:40000", "198.51.100.2:80", "dev", "eth0"});
    REQUIRE(e);
    CHECK(*e == json{{"proto", "tcp"},
                     {"src", "192.0.2.2"},
                     {"sport", 40000},
                     {"dst", "198.51.100.2"},
                     {"dport", 80},
                     {"dev", "eth0"}});
    CHECK((*parse_explain({"icmp", "192.0.2.2", "198.51.100.2"}))["dev"].is_null());
    // The daemon, not the parser, says that IPv6 has no flows yet.
    CHECK((*parse_explain({"udp", "[2001:db8::1]:1", "[2001:db8::2]:2"}))["dst"] == "2001:db8::2");
    CHECK(why(parse_explain({"tcp", "192.0.2.2:1"})).find("192.0.2.2:1") != std::string::npos);
    CHECK(why(parse_explain({"tpc", "192.0.2.2:1", "192.0.2.3:2"})).find("did you mean 'tcp'") !=
          std::string::npos);
    CHECK(why(parse_explain({"tcp", "192.0.2.2:1", "[2001:db8::2]:2"})).find("families") !=
          std::string::npos);
    CHECK(why(parse_explain({"tcp", "192.0.2.2:1", "192.0.2.3:2", "dve", "x"})).find("did you mean 'dev'") !=
          std::string::npos);
}

TEST_CASE("tunnel add words", "[cli]")
{
    const auto t = parse_tunnel_add({"tun0", "mode", "ipip", "local", "203.0.113.1", "remote", "203.0.113.2",
                                     "ttl", "64", "tos", "inherit"});
    REQUIRE(t);
    CHECK((*t)["name"] == "tun0");
    CHECK((*t)["ttl"] == 64);
    CHECK((*t)["tos"] == "inherit");
    const auto six = parse_tunnel_add({"ds0", "mode", "4in6", "local", "2001:db8::1", "remote", "2001:db8::2",
                                       "encaplimit", "none", "flowlabel", "0x12345"});
    REQUIRE(six);
    CHECK((*six)["encaplimit"] == "none");
    CHECK((*six)["flowlabel"] == "0x12345");
    const auto tos = [](const std::string &value) {
        return parse_tunnel_add(
            {"tun0", "mode", "ipip", "local", "203.0.113.1", "remote", "203.0.113.2", "tos", value});
    };
    CHECK(tos("0xb8"));
    CHECK(tos("184"));
    CHECK(why(tos("0x100")).find("0x100") != std::string::npos);
    CHECK(why(tos("0xb9")).find("odd") != std::string::npos);
    CHECK(why(tos("b8")).find("b8") != std::string::npos);
    CHECK(why(parse_tunnel_add({})) == "no name");
    CHECK(why(parse_tunnel_add({"tun0"})).find("mode") != std::string::npos);
    CHECK(why(parse_tunnel_add({"tun0", "mode", "ipip", "local", "203.0.113.1"})).find("remote") !=
          std::string::npos);
    CHECK(why(parse_tunnel_add({"tun0", "mode", "ipipp", "local", "203.0.113.1", "remote", "203.0.113.2"}))
              .find("did you mean 'ipip'") != std::string::npos);
    CHECK(why(parse_tunnel_add({"tun0", "mode", "4in6", "local", "203.0.113.1", "remote", "203.0.113.2"}))
              .find("family") != std::string::npos);
    CHECK(why(parse_tunnel_add(
                  {"tun0", "mode", "ipip", "local", "203.0.113.1", "remote", "203.0.113.2", "ttl", "256"}))
              .find("256") != std::string::npos);
}
