// SPDX-License-Identifier: GPL-2.0-only
// How long the programs take for one packet: `bpf_tests "[bench]"`, which test/bench/run.sh fixtures runs.
// Hidden: no test. Prints "fixture NAME HOOK NS" once a round ($FTCTL_BENCH_ROUNDS).
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <unistd.h>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "routes.h"
#include "scenario.h"

using namespace ftctl::test;

namespace {

constexpr unsigned kCalls = 3000;  // of one run each
constexpr unsigned kRuns = 100000; // in one call

/// What is to become of the packet.
enum class End { fast, pass, drop };

/// A reverse path filter: whose answers are kept for a second, or which asks for the route each time.
enum class Reverse { off, kept, asked };

struct Fixture {
    std::string name;
    Scenario scenario;
    End end = End::fast;
    bool known = true; ///< a flow's packet
    unsigned prefixes = 0;
    unsigned general = 0; ///< rules of the other kind
    Reverse rpf = Reverse::off;
};

/// Spread as in test/bench/filters.py. None has an address of the scenarios.
std::vector<ftctl::FilterRule> rules(const Fixture &fixture)
{
    static std::map<std::pair<unsigned, unsigned>, std::vector<ftctl::FilterRule>> made;
    std::vector<ftctl::FilterRule> &out = made[{fixture.prefixes, fixture.general}];
    if (!out.empty())
        return out;
    const auto add = [&](const std::string &line) {
        out.push_back(ftctl::parse_filter_line(line, "bench").value().value());
        out.back().id = static_cast<std::uint32_t>(out.size());
    };
    for (std::uint32_t number = 0; out.size() < fixture.prefixes; number++) {
        const unsigned length = 24 + number * 5 % 9;
        const std::uint32_t net = (number * 0x9E3779B1U + 0xc6120000U) & (0xffffffffU << (32 - length));
        const std::uint32_t near = net >> 8;
        if (near != 0xc00002 && near != 0xc63364 && near != 0xcb0071 && near != 0x0a0900)
            add(fmt::format("src {}.{}.{}.{}/{} drop", net >> 24, net >> 16 & 255, net >> 8 & 255, net & 255,
                            length));
    }
    for (unsigned number = 0; number < fixture.general; number++)
        add(fmt::format("src 10.200.{}.0/24 proto udp dport {} drop", number & 255, 1000 + number));
    return out;
}

Packet packet(const Fixture &fixture)
{
    Packet out = fixture.scenario.packet(fixture.scenario.v6 ? 4 : 18);
    if (fixture.end == End::drop)
        out.ip.src = ip4("198.18.0.7"); // in the first prefix
    if (!fixture.known)
        out.udp().sport = out.udp().dport = 4242;
    return out;
}

std::vector<Fixture> fixtures()
{
    std::vector<Fixture> out;
    Scenario plain;
    plain.proto = kUdp;
    Scenario plain6 = plain;
    plain6.v6 = true;
    const auto add = [&out](const char *name, const Scenario &scenario) { out.push_back({name, scenario}); };
    const auto both = [&](const std::string &name, const char *there, const char *back,
                          const Scenario &scenario) {
        out.push_back({name + there, scenario});
        out.push_back({name + back, scenario.other_direction()});
    };
    const auto tunnel = [&](const char *name, Scenario scenario, bool outer6, ftctl::test::Nat nat) {
        scenario.tunnel_b = true;
        scenario.outer6_b = outer6;
        scenario.nat = nat;
        both(name, "-encap", "-decap", scenario);
    };
    add("plain4", plain);
    Scenario changed = plain;
    changed.nat = Nat::snat;
    add("nat4", changed);
    add("plain6", plain6);
    changed = plain6;
    changed.nat = Nat::snat;
    add("nat66", changed);
    tunnel("ipip", plain, false, Nat::snat);
    tunnel("ip6ip6", plain6, true, Nat::none);
    tunnel("4in6", plain, true, Nat::none);
    tunnel("6in4", plain6, false, Nat::none);
    changed = plain;
    changed.vlans_b = {10};
    both("vlan", "-push", "-pop", changed);
    changed = plain;
    changed.pppoe_b = 1;
    both("pppoe", "-push", "-pop", changed);

    const auto miss = [&](const char *name, unsigned prefixes, unsigned general = 0,
                          Reverse rpf = Reverse::off) {
        out.push_back({name, plain, End::pass, false, prefixes, general, rpf});
    };
    miss("miss", 0);
    miss("filter-1", 1);
    miss("filter-1000", 1000);
    miss("filter-100000", 100000);
    miss("general-1", 0, 1);
    miss("general-1000", 0, 1000);
    miss("filter-100000-general-1000", 100000, 1000);
    miss("rpf", 0, 0, Reverse::kept);
    miss("rpf-first", 0, 0, Reverse::asked);
    out.push_back({"filter-100000-drop", plain, End::drop, false, 100000});
    // Packets of a flow pay for the filter as well.
    out.push_back({"plain4-filter-1", plain, End::fast, true, 1});
    out.push_back({"plain4-filter-100000", plain, End::fast, true, 100000});
    return out;
}

/// Programs that do nothing: what a test run's clock takes.
int nothing(Hook hook)
{
    const auto verdict = static_cast<std::int32_t>(hook == Hook::xdp ? kXdpPass : kTcUnspec);
    const bpf_insn insns[] = {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, verdict},
                              {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
    const int fd = bpf_prog_load(hook == Hook::xdp ? BPF_PROG_TYPE_XDP : BPF_PROG_TYPE_SCHED_CLS, "nothing",
                                 "GPL", insns, std::size(insns), nullptr);
    REQUIRE(fd >= 0);
    return fd;
}

void report(const std::string &name, Hook hook, const char *how, double ns)
{
    std::printf("fixture %s %s%s %.1f\n", name.c_str(), hook_name(hook), how, ns);
}

std::uint32_t verdict_of(Hook hook, End end)
{
    switch (end) {
    case End::fast:
        return hook == Hook::xdp ? kXdpRedirect : kTcRedirect;
    case End::drop:
        return hook == Hook::xdp ? kXdpDrop : kTcShot;
    case End::pass:
        break;
    }
    return hook == Hook::xdp ? kXdpPass : kTcUnspec;
}

/// The fixture is in place, and its packet goes the way that is to be timed.
void prepare(const Fixture &fixture, const Scenario &scenario, const Bytes &frame)
{
    const std::vector<ftctl::FilterRule> filter = rules(fixture);
    scenario.install();
    Rig::get().set_filter(filter);
    if (fixture.rpf != Reverse::off)
        set_rpf(scenario.in_device(), FTCTL_RPF_STRICT);
    ftctl_config config = Rig::get().config();
    config.heartbeat_ns = now_ns();
    if (fixture.rpf == Reverse::asked) // nothing is kept where there may be several next hops
        config.multipath = FTCTL_MULTIPATH_4;
    Rig::get().set_config(config);
    INFO(fixture.name);
    const Outcome outcome = observe(scenario, frame);
    CHECK(outcome.fast == (fixture.end == End::fast));
    if (!outcome.fast)
        CHECK(outcome.reason == (fixture.end == End::drop ? FTCTL_R_FILTER : FTCTL_R_NO_FLOW));
}

/// Fresh frames, one run each; and, where the packet stays as it is, many runs in one call.
void time(const std::string &name, Hook hook, Device device, const Bytes &frame, End end, int program = -1)
{
    std::vector<std::uint32_t> values;
    unsigned wrong = 0;
    for (unsigned call = 0; call < kCalls; call++) {
        const Timing one = Rig::get().time(hook, device, frame, 1, program);
        wrong += one.verdict == verdict_of(hook, end) ? 0 : 1;
        values.push_back(one.ns);
    }
    INFO(name << " " << hook_name(hook));
    CHECK(wrong == 0);
    // The mean of the middle half: one reading of the clock may be a multiple of 10 ns.
    std::sort(values.begin(), values.end());
    report(name, hook, "",
           std::accumulate(values.begin() + kCalls / 4, values.end() - kCalls / 4, 0.0) / (kCalls / 2));
    if (end != End::fast) {
        const Timing many = Rig::get().time(hook, device, frame, kRuns, program);
        CHECK(many.verdict == verdict_of(hook, end));
        report(name, hook, "-loop", many.ns);
    }
}

} // namespace

TEST_CASE("how long a packet takes", "[.][bench]")
{
    const char *text = std::getenv("FTCTL_BENCH_ROUNDS");
    const int rounds = text != nullptr ? std::atoi(text) : 3;
    const Routes routes;
    const std::vector<Fixture> all = fixtures();
    for (int round = 0; round < rounds; round++) {
        for (const Hook hook : {Hook::xdp, Hook::tc}) {
            const int program = nothing(hook);
            time("nothing", hook, kDevA, packet(all.front()).bytes(), End::pass, program);
            close(program);
            for (const Fixture &fixture : all) {
                Scenario scenario = fixture.scenario;
                scenario.hook = hook;
                if (scenario.changes_family_in_vain())
                    continue; // not fast on this kernel
                const Bytes frame = packet(fixture).bytes();
                prepare(fixture, scenario, frame);
                time(fixture.name, hook, scenario.in_device(), frame, fixture.end);
            }
            Rig::get().set_filter({});
        }
    }
}
