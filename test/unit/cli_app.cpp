// SPDX-License-Identifier: GPL-2.0-only
// The command line as a user meets it: exit codes, errors, help. No daemon runs.
#include <catch2/catch.hpp>

#include <cstdio>
#include <fstream>
#include <sstream>

#include <unistd.h>

#include "cli/app.h"

using namespace ftctl;

namespace {

struct Ran {
    int code;
    std::string out;
    std::string err;
};

Ran run(const std::vector<std::string> &args)
{
    std::ostringstream out;
    std::ostringstream err;
    const int code = run_cli(args, out, err);
    return {code, out.str(), err.str()};
}

void expect_usage(const std::vector<std::string> &args, const std::string &part)
{
    const auto r = run(args);
    INFO(r.err << r.out);
    CHECK(r.code == 1);
    CHECK(r.out.empty());
    CHECK(r.err.starts_with("ftctl: "));
    CHECK_THAT(r.err, Catch::Contains(part));
}

/// An instance that certainly has no daemon.
const std::vector<std::string> kNobody{"-i", "unit-test-nobody"};

std::vector<std::string> nobody(std::vector<std::string> args)
{
    args.insert(args.begin(), kNobody.begin(), kNobody.end());
    return args;
}

} // namespace

TEST_CASE("help and version exit with 0 and print to stdout", "[cli]")
{
    for (const auto &args : std::vector<std::vector<std::string>>{{"--help"},
                                                                  {"-h"},
                                                                  {"help"},
                                                                  {"help", "flows"},
                                                                  {"flows", "--help"},
                                                                  {"tunnel", "add", "--help"},
                                                                  {"--version"},
                                                                  {"config", "check", "--help"},
                                                                  {"attach", "--help"},
                                                                  {"help", "tunnel", "add"}}) {
        const auto r = run(args);
        INFO(args.front());
        CHECK(r.code == 0);
        CHECK(r.err.empty());
        CHECK_FALSE(r.out.empty());
    }
    CHECK_THAT(run({"flows", "--help"}).out, Catch::Contains("ftctl flows proto tcp"));
    CHECK_THAT(run({"--help"}).out, Catch::Contains("attach"));
    CHECK_THAT(run({"tunnel", "add", "--help"}).out, Catch::Contains("remote 203.0.113.2"));
}

TEST_CASE("usage errors exit with 1 and name the word", "[cli]")
{
    expect_usage({}, "no command");
    expect_usage({"stats", "eth0"}, "unexpected word 'eth0'");
    expect_usage({"sttas"}, "unknown command 'sttas'; did you mean 'stats'?");
    expect_usage({"flows", "--cuont"}, "--cuont");
    expect_usage({"--jsn", "flows"}, "--jsn");
    expect_usage({"attach"}, "attach");
    expect_usage({"attach", "eth0", "--mode", "xpd"}, "xpd");
    expect_usage({"attach", "eth0", "--rpf", "on"}, "on");
    expect_usage({"attach", "eth0", "--mode"}, "--mode");
    expect_usage({"detach"}, "no device given");
    expect_usage({"detach", "--all", "eth0"}, "eth0");
    expect_usage({"flows", "scr", "192.0.2.1"}, "did you mean 'src'?");
    expect_usage({"flush", "src"}, "'src' needs a value");
    expect_usage({"explain", "tcp"}, "explain PROTO");
    expect_usage({"explain", "tcp", "192.0.2.2:x", "198.51.100.2:80"}, "192.0.2.2:x");
    expect_usage({"tunnel", "add"}, "no name");
    expect_usage({"tunnel", "del"}, "NAME");
    expect_usage({"tunnel", "lst"}, "lst");
    expect_usage({"config"}, "config");
    expect_usage({"config", "check"}, "FILE");
    expect_usage({"-i", "../x", "status"}, "../x");
    expect_usage({"help", "flow"}, "did you mean 'flows'?");
    expect_usage({"-j", "flows", "state", "alive"}, "alive");
}

TEST_CASE("options may follow the command", "[cli]")
{
    CHECK(run(nobody({"flows", "-j", "state", "live"})).code == 3);
    CHECK(run({"flows", "-j", "-i", "unit-test-nobody"}).code == 3);
    CHECK(run({"tunnel", "list", "-i", "unit-test-nobody", "-p"}).code == 3);
}

TEST_CASE("without a daemon and pins everything that needs them exits with 3 and says what to do", "[cli]")
{
    for (const auto &args :
         std::vector<std::vector<std::string>>{{"status"},
                                               {"flows"},
                                               {"-j", "flows", "--count"},
                                               {"flush"},
                                               {"-j", "stats"},
                                               {"attach", "eth0"},
                                               {"detach", "--all"},
                                               {"explain", "tcp", "192.0.2.2:1", "192.0.2.3:2"},
                                               {"tunnel"},
                                               {"tunnel", "del", "t"},
                                               {"monitor"},
                                               {"top"}}) {
        const auto r = run(nobody(args));
        INFO(args.front() << ": " << r.err);
        CHECK(r.code == 3);
        CHECK(r.out.empty());
        CHECK(r.err.starts_with("ftctl: "));
        CHECK_THAT(r.err, Catch::Contains("hint: "));
    }
    CHECK_THAT(run(nobody({"attach", "eth0"})).err, Catch::Contains("ftctld -i unit-test-nobody"));
}

TEST_CASE("rules of the early filter are checked before the daemon is asked", "[cli]")
{
    expect_usage({"filter", "add", "scr", "192.0.2.1", "drop"}, "did you mean 'src'?");
    expect_usage({"filter", "add", "src", "192.0.2.1"}, "neither 'accept' nor 'drop'");
    expect_usage({"filter", "del", "x"}, "'x' is no id");
    expect_usage({"rpf", "eth0", "strikt"}, "did you mean 'strict'?");
    expect_usage({"rpf", "eth0"}, "a mode");
    for (const auto &args : std::vector<std::vector<std::string>>{{"filter"},
                                                                  {"filter", "list"},
                                                                  {"filter", "add", "drop"},
                                                                  {"filter", "flush"},
                                                                  {"rpf", "eth0", "log"}})
        CHECK(run(nobody(args)).code == 3);
}

TEST_CASE("config check needs no daemon", "[cli]")
{
    std::string name = "/tmp/ftctl-unit-XXXXXX";
    const int fd = mkstemp(name.data());
    REQUIRE(fd >= 0);
    close(fd);
    std::ofstream(name) << "{ // comment\n \"devices\": [\"eth0\"]\n}\n";
    const auto good = run({"config", "check", name});
    CHECK(good.code == 0);
    CHECK_THAT(good.out, Catch::Contains("ok"));
    CHECK_THAT(run({"-j", "config", "check", name}).out, Catch::Contains("\"ok\":true"));
    std::ofstream(name) << "{\n \"devcies\": []\n}\n";
    const auto bad = run({"config", "check", name});
    CHECK(bad.code == 1);
    CHECK(
        bad.err.starts_with("ftctl: " + name + ":2: unknown key 'devcies'; did you mean 'devices'?\nhint: "));
    unlink(name.c_str());
    CHECK(run({"config", "check", name}).code == 2);
}
