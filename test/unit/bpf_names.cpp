// SPDX-License-Identifier: GPL-2.0-only
// ctl/bpf without a kernel: names of reasons, pins and instances, and what is found in libbpf's words.
#include <set>
#include <string>

#include <bpf/libbpf.h>
#include <catch2/catch.hpp>

#include "bpf/datapath.h"
#include "bpf/kernel_log.h"
#include "bpf/pins.h"

using namespace ftctl;
using bpf::LinkPin;
using bpf::PinKind;

TEST_CASE("reasons have names and help", "[bpf]")
{
    CHECK(std::string(reason_name(FTCTL_R_NO_FLOW)) == "no-flow");
    CHECK(std::string(reason_name(FTCTL_R_KERNEL)) == "kernel");
    CHECK(std::string(reason_name(0)) == "?");
    CHECK(std::string(reason_name(47)) == "?");
    CHECK(std::string(reason_name(100000)) == "?");
    CHECK(std::string(reason_help(FTCTL_R_MTU)).find("MTU") != std::string::npos);
    CHECK(std::string(reason_help(0)).empty());

    std::set<std::string> names;
    for (const unsigned reason : packet_reasons()) {
        CHECK(reason > 0);
        CHECK(reason < FTCTL_PACKET_REASONS);
        names.insert(reason_name(reason));
    }
    CHECK(names.size() == packet_reasons().size());
    CHECK(names.contains("csum-unknown"));
    CHECK_FALSE(names.contains("helper"));
}

TEST_CASE("names of link pins go both ways", "[bpf]")
{
    for (const PinKind kind : {PinKind::xdp, PinKind::ingress, PinKind::egress, PinKind::clsact_ingress,
                               PinKind::clsact_egress, PinKind::clsact_qdisc}) {
        const LinkPin pin{42, kind};
        const auto parsed = LinkPin::parse(pin.name());
        REQUIRE(parsed);
        CHECK(parsed->ifindex == 42);
        CHECK(parsed->kind == kind);
    }
    CHECK(LinkPin{7, PinKind::xdp}.name() == "7-xdp");
    for (const char *name : {"", "7", "7-", "-xdp", "7-xdp-new", "7xdp", "x-xdp", "0-xdp", "16777216-xdp",
                             "99999999999-xdp", "tp-on_devmap_xmit"}) {
        INFO(name);
        CHECK_FALSE(LinkPin::parse(name));
    }
}

TEST_CASE("an instance's name is a file name", "[bpf]")
{
    for (const char *name : {"default", "blue", "a_b-9", "X"})
        CHECK(bpf::check_instance_name(name));
    for (const char *name : {"", ".", "..", "a.b", "a/b", "a b", "\n", "\xc3\xa9"}) {
        const auto status = bpf::check_instance_name(name);
        REQUIRE_FALSE(status);
        CHECK(status.error().code == Code::usage);
    }
    CHECK(bpf::check_instance_name(std::string(64, 'a')));
    CHECK_FALSE(bpf::check_instance_name(std::string(65, 'a')));
}

TEST_CASE("error texts are found in the log", "[bpf]")
{
    const auto say = [](const std::string &text) { bpf::capture_append(text.data(), text.size()); };
    {
        const bpf::LogCapture log;
        CHECK(log.extack().empty());
        CHECK(log.load_error().empty());
        say("libbpf: Kernel error message: veth: Peer MTU is too large to set XDP\n");
        CHECK(log.extack() == "veth: Peer MTU is too large to set XDP");
        {
            const bpf::LogCapture inner;
            say("inner\n");
            CHECK(inner.load_error() == "inner");
        }
        CHECK(log.load_error().find("inner") == std::string::npos);
    }
    {
        const bpf::LogCapture log;
        say("libbpf: prog 'xdp_ingress': BPF program load failed: Permission denied\n"
            "libbpf: prog 'xdp_ingress': -- BEGIN PROG LOAD LOG --\n"
            "0: (61) r2 = *(u32 *)(r1 +0)\n"
            "R2 invalid mem access 'scalar'\n"
            "processed 12 insns (limit 1000000) max_states_per_insn 0\n"
            "-- END PROG LOAD LOG --\n"
            "libbpf: failed to load object 'ftctl_xdp'\n");
        CHECK(log.load_error() == "R2 invalid mem access 'scalar'");
    }
    // Only the end is kept, and the end is where the reason is.
    const bpf::LogCapture log;
    for (int i = 0; i < 10000; ++i)
        say("1: some instruction\n");
    say("the reason\nprocessed 5 insns\n");
    CHECK(log.load_error() == "the reason");
}
