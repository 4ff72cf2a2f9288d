// SPDX-License-Identifier: GPL-2.0-only
// Rules of the early filter: words, files, and the form they have in the maps. What they match:
// test/bpf/filter_test.cpp.
#include <random>

#include <catch2/catch.hpp>

#include "daemon/filter_file.h"
#include "flow/filter_set.h"

using namespace ftctl;
using nlohmann::json;

namespace {

FilterRule rule_of(const std::string &line)
{
    INFO(line);
    const auto rule = parse_filter_line(line, "test");
    REQUIRE(rule);
    REQUIRE(*rule);
    return **rule;
}

std::string why(const std::string &line)
{
    const auto rule = parse_filter_line(line, "test");
    REQUIRE_FALSE(rule);
    CHECK(rule.error().code == Code::usage);
    CHECK_FALSE(rule.error().hint.empty());
    return rule.error().why;
}

const std::vector<std::string> kLines = {
    "drop",
    "accept id 2147483647",
    "src 192.0.2.0/24 drop id 3",
    "dst 2001:db8::/32 accept comment \"a comment, with 'quotes' # and more\"",
    "dev eth0.12 src 192.0.2.1/32 dst 198.51.100.0/25 proto udp sport 53 dport 1024-65535 inner drop comment "
    "\"x\" id 7",
    "src ::/0 drop",
    "dst 0.0.0.0/0 drop",
    "proto 0 drop",
};

} // namespace

TEST_CASE("a rule is the same after a way through text, JSON and the maps", "[filter]")
{
    for (const std::string &line : kLines) {
        const FilterRule rule = rule_of(line);
        CHECK(filter_rule_text(rule) == line);
        const auto back = parse_filter_json(filter_rule_json(rule), "test");
        INFO(line);
        if (rule.id != 0) {
            REQUIRE(back);
            CHECK(*back == rule);
        }
        CHECK(from_abi(to_abi(rule)) == rule);
    }
}

TEST_CASE("bits behind a prefix do not count, words may come in any order", "[filter]")
{
    CHECK(rule_of("src 192.0.2.77/24 drop") == rule_of("drop src 192.0.2.0/24 # comment"));
    CHECK(rule_of("dst 2001:db8::77/33 drop") == rule_of("dst 2001:db8::/33 drop"));
    CHECK(rule_of("src 192.0.2.1 drop").src->len == 32);
    CHECK(rule_of("\t src  192.0.2.1\tdrop\r").drop);
    CHECK_FALSE(*parse_filter_line("   # nothing", "test"));
    CHECK_FALSE(*parse_filter_line("", "test"));
}

TEST_CASE("what is wrong with a rule is named", "[filter]")
{
    CHECK(why("scr 192.0.2.1 drop") == "unknown word 'scr'; did you mean 'src'?");
    CHECK(why("src 192.0.2.1") == "neither 'accept' nor 'drop'");
    CHECK(why("accept drop") == "both 'accept' and 'drop'");
    CHECK(why("drop src") == "'src' needs a value");
    CHECK(why("src 192.0.2.1 src 192.0.2.2 drop") == "'src' is given twice");
    for (const char *bad :
         {"src 192.0.2.256", "src 192.0.2.0/33", "src 2001:db8::/129", "dst 192.0.2.0/", "src any",
          "sport 65536", "sport 5-4", "dport -1", "dport 1-", "sport x", "proto tpc", "proto 256", "dev a/b",
          "dev 0123456789abcdef", "id 0", "id 2147483648", "id x"}) {
        const std::string text = why(std::string(bad) + " drop");
        const std::string value = std::string(bad).substr(std::string(bad).find(' ') + 1);
        INFO(text);
        CHECK(text.find("'" + value + "'") != std::string::npos);
    }
    CHECK(why("src 192.0.2.1 dst 2001:db8::1 drop").find("different families") != std::string::npos);
    CHECK(why("drop comment \"open").find("not closed") != std::string::npos);
    CHECK(why("drop comment " + std::string(64, 'x')).find("too long") != std::string::npos);
    CHECK_FALSE(parse_filter_json(json{{"source", "192.0.2.1"}, {"action", "drop"}}, "test"));
    CHECK_FALSE(parse_filter_json(json{{"inner", 1}, {"action", "drop"}}, "test"));
    CHECK_FALSE(parse_filter_json(json{{"src", json::array()}, {"action", "drop"}}, "test"));
    CHECK_FALSE(parse_filter_json(json{{"action", "reject"}}, "test"));
    CHECK_FALSE(parse_filter_json(json{{"drop", "src"}}, "test"));
    CHECK_FALSE(parse_filter_json(json(7), "test"));
}

TEST_CASE("a file of rules: lines or JSON, numbered, in order", "[filter]")
{
    const auto rules = parse_filter_file("# list\nsrc 10.0.0.0/8 drop id 9\n\ndrop\naccept id 2\n", "f");
    REQUIRE(rules);
    REQUIRE(rules->size() == 3);
    CHECK((*rules)[0].id == 2);
    CHECK((*rules)[1].id == 9);
    CHECK((*rules)[2].id == 10);
    const auto same = parse_filter_file(R"(
        [{"id": 9, "src": "10.0.0.0/8", "action": "drop", "packets": 7},
         {"action": "drop"}, {"id": 2, "action": "accept"}])",
                                        "f");
    REQUIRE(same);
    CHECK(*same == *rules);
    CHECK(parse_filter_file("", "f")->empty());
    CHECK(parse_filter_file("[]", "f")->empty());
    CHECK(parse_filter_file("drop\nsrc x drop\n", "f").error().what == "f:2");
    CHECK(parse_filter_file("[\n{\"action\": \"drop\"},\n{\"src\": \"x\", \"action\": \"drop\"}]", "f")
              .error()
              .what == "f:3");
    CHECK(parse_filter_file("{\"action\": \"drop\"}", "f").error().code == Code::usage);
    CHECK(parse_filter_file("drop id 3\naccept id 3\n", "f").error().why == "two rules have id 3");
    CHECK_FALSE(parse_filter_file("drop id 2147483647\ndrop\n", "f"));
}

TEST_CASE("an entry of the trie knows the first rule of all that cover it", "[filter]")
{
    std::vector<FilterRule> rules;
    for (const char *line :
         {"src 10.1.0.0/16 drop id 4", "src 10.0.0.0/8 accept id 2", "src 10.1.2.0/24 accept id 9",
          "src 10.1.2.0/24 drop id 10", "dst 10.1.2.3 drop id 11"})
        rules.push_back(rule_of(line));
    REQUIRE(check_filter_rules(rules, "test"));
    const auto tables = make_filter_tables(rules);
    REQUIRE(tables);
    REQUIRE(tables->prefixes.size() == 4); // one for both of the /24
    for (const auto &[key, hit] : tables->prefixes) {
        const bool dst = (ntohl(key.kind) & 1) != 0;
        CHECK(hit.first == (dst ? ftctl_filter_verdict(4, 1) : ftctl_filter_verdict(0, 0)));
    }
    CHECK(tables->set->general == 0);
}

TEST_CASE("addresses in no prefix are told from the others without the trie", "[filter]")
{
    std::mt19937 random(7); // the same each time
    const auto any = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    const auto first_of = [](const IpAddr &addr) {
        std::uint32_t first = 0;
        std::memcpy(&first, addr.bytes.data(), sizeof first);
        return ntohl(first);
    };
    for (const bool wide : {false, true}) {
        CAPTURE(wide);
        std::vector<FilterRule> rules(3000);
        std::vector<std::pair<std::uint32_t, IpAddr>> covered; // kind and an address in the rule's prefix
        for (FilterRule &rule : rules) {
            const bool six = any(2) != 0, dst = any(2) != 0;
            IpAddr addr;
            addr.family = six ? AF_INET6 : AF_INET;
            for (std::size_t i = 0; i < (six ? 16U : 4U); i++)
                addr.bytes.at(i) = static_cast<std::uint8_t>(any(256));
            const std::uint32_t bits = six ? 128 : 32, least = wide ? 0 : six ? 28 : 20;
            Prefix prefix{addr, static_cast<std::uint8_t>(least + any(bits + 1 - least))};
            covered.emplace_back(ftctl_filter_kind(six ? 6 : 4, dst ? 1 : 0), addr);
            for (std::uint32_t bit = prefix.len; bit < bits; bit++)
                prefix.addr.bytes.at(bit / 8) &= static_cast<std::uint8_t>(~(0x80U >> bit % 8));
            (dst ? rule.dst : rule.src) = prefix;
        }
        const auto tables = make_filter_tables(rules);
        REQUIRE(tables);
        for (const auto &[kind, addr] : covered)
            CHECK(ftctl_filter_may_cover(tables->set.get(), kind, first_of(addr)));
        unsigned may = 0;
        for (unsigned i = 0; i < 10000; i++)
            may += ftctl_filter_may_cover(tables->set.get(), any(4), static_cast<std::uint32_t>(random()));
        if (!wide)
            CHECK(may < 10000 / 25); // 1 in 64 by chance, and few are covered
    }
}

TEST_CASE("prefixes at the edges of what a bit stands for", "[filter]")
{
    struct Row {
        const char *rule;
        std::uint32_t kind, inside, outside;
    };
    for (const Row &row : {Row{"src 10.0.0.0/8 drop", 0, 0x0affffffU, 0x0b000000U},
                           Row{"src 172.16.0.0/12 drop", 0, 0xac1fffffU, 0xad100000U},
                           Row{"dst 224.0.0.0/4 drop", 1, 0xefffffffU, 0xdfffffffU},
                           Row{"dst 192.0.2.128/25 drop", 1, 0xc00002ffU, 0xc00003ffU},
                           Row{"src fc00::/7 drop", 2, 0xfdffffffU, 0xfe000000U},
                           Row{"src 2001:db8::/32 drop", 2, 0x20010db8U, 0x20010db9U},
                           Row{"dst 2001:d00::/24 drop", 3, 0x20010dffU, 0x20010eb8U}}) {
        CAPTURE(row.rule);
        const auto tables = make_filter_tables({rule_of(row.rule)});
        REQUIRE(tables);
        CHECK(ftctl_filter_may_cover(tables->set.get(), row.kind, row.inside));
        CHECK_FALSE(ftctl_filter_may_cover(tables->set.get(), row.kind, row.outside));
        CHECK_FALSE(ftctl_filter_may_cover(tables->set.get(), row.kind ^ 1, row.inside));
    }
    for (const char *all : {"src 0.0.0.0/0 drop", "dst ::/0 drop"})
        for (const std::uint32_t first : {0U, 0x7fffffffU, 0xffffffffU})
            CHECK(ftctl_filter_may_cover(make_filter_tables({rule_of(all)})->set.get(), all[0] == 's' ? 0 : 3,
                                         first));
}

TEST_CASE("there is room for so many rules of each kind, and an error beyond", "[filter]")
{
    std::vector<FilterRule> rules(FTCTL_FILTER_GENERAL);
    for (std::size_t i = 0; i < rules.size(); i++) {
        rules[i].id = static_cast<std::uint32_t>(i + 1);
        rules[i].drop = true;
        // as different as can be: each needs bitmaps of its own
        rules[i].sport = PortRange{static_cast<std::uint16_t>(i * 7), static_cast<std::uint16_t>(i * 11 + 5)};
        rules[i].dport = PortRange{static_cast<std::uint16_t>(i * 5), static_cast<std::uint16_t>(i * 13 + 3)};
        Prefix prefix;
        prefix.addr = IpAddr::from_v4(htonl(0x0a000000U + static_cast<std::uint32_t>(i) * 256));
        prefix.len = 24;
        rules[i].src = prefix;
        rules[i].proto = static_cast<std::uint8_t>(i);
        rules[i].inner = i % 2 != 0;
        rules[i].dev = "eth" + std::to_string(i % FTCTL_FILTER_DEVICES);
    }
    const auto tables = make_filter_tables(rules);
    REQUIRE(tables);
    CHECK(tables->set->used_masks <= FTCTL_FILTER_MASKS);
    rules.push_back(rules.back());
    rules.back().id++;
    CHECK(make_filter_tables(rules).error().why.find("1025 general rules") != std::string::npos);
}
