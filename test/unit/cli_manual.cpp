// SPDX-License-Identifier: GPL-2.0-only
// The manual, the completion and the command must name the same things.
#include <catch2/catch.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "bpf/datapath.h"
#include "cli/app.h"
#include "daemon/flow_filter.h"

using namespace ftctl;

namespace {

/// A file of the source tree, "" when it is not there.
std::string source_file(const std::string &name)
{
    std::ifstream file(std::string(FTCTL_SOURCE_DIR "/") + name);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string help()
{
    std::ostringstream out;
    std::ostringstream err;
    REQUIRE(run_cli({"--help"}, out, err) == 0);
    return out.str();
}

const std::vector<std::string> kCommands{"attach", "detach",  "status", "flows",  "flush",
                                         "stats",  "explain", "tunnel", "filter", "monitor",
                                         "top",    "doctor",  "config", "rpf"};

} // namespace

TEST_CASE("ftctl(8) explains every reason", "[cli]")
{
    const auto page = source_file("docs/man/ftctl.8.scd");
    REQUIRE_FALSE(page.empty());
#define FTCTL_REASON(id, sym, name, help)                                                                    \
    {                                                                                                        \
        INFO(name);                                                                                          \
        CHECK(page.find("\n*" name "*\n\t") != std::string::npos);                                           \
    }
#include "ftctl/reasons.def"
#undef FTCTL_REASON
}

TEST_CASE("commands and filter words are in the manual and in the completion", "[cli]")
{
    const auto page = source_file("docs/man/ftctl.8.scd");
    const auto completion = source_file("packaging/completions/ftctl.bash");
    const auto text = help();
    REQUIRE_FALSE(completion.empty());
    for (const auto &command : kCommands) {
        INFO(command);
        CHECK(text.find("  " + command) != std::string::npos);
        CHECK(page.find("\n*" + command) != std::string::npos);
        CHECK(completion.find(command) != std::string::npos);
    }
    for (const auto *list : {&filter_words(), &flow_states(), &tunnel_types()})
        for (const auto &word : *list) {
            INFO(word);
            CHECK(page.find("*" + word + "*") != std::string::npos);
            CHECK(completion.find(word) != std::string::npos);
        }
}

TEST_CASE("ftctl.json(5) names every key of a flow and of the configuration", "[cli]")
{
    auto page = source_file("docs/man/ftctl.json.5.scd");
    page.erase(std::remove(page.begin(), page.end(), '\\'), page.end());
    for (const auto *key :
         {"id",           "family",    "l4proto",     "state",    "zone",       "mark",         "age_s",
          "orig",         "reply",     "live",        "iif",      "iif_index",  "hook",         "match",
          "src",          "sport",     "dst",         "dport",    "vlan",       "pppoe",        "tunnel",
          "rewrite",      "oif",       "oif_index",   "next_hop", "dst_mac",    "mtu",          "push",
          "packets",      "bytes",     "idle_s",      "devices",  "tunnels",    "limits",       "flows",
          "rcvbuf_bytes", "trickle_s", "policy",      "track",    "rx_packets", "fast_packets", "fast_bytes",
          "tx_failed",    "reasons",   "insert_full", "overruns", "resyncs",    "refusals"}) {
        INFO(key);
        CHECK(page.find("*" + std::string(key) + "*") != std::string::npos);
    }
}
