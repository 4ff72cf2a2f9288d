// SPDX-License-Identifier: GPL-2.0-only
#include <catch2/catch.hpp>

#include "flow/admission.h"
#include "flow_fakes.h"

using namespace ftctl;
using namespace ftctl::test;

namespace {

/// The reason an entry is refused for; 0: admitted.
int reason(const CtEntry &e, const MarkRule &mark = {})
{
    const auto refusal = refuse_entry(e, mark);
    return refusal ? refusal->reason : 0;
}

} // namespace

TEST_CASE("settled TCP and UDP connections are admitted", "[flow][admission]")
{
    CHECK(reason(entry(IPPROTO_TCP)) == 0);
    CHECK(reason(entry(IPPROTO_UDP)) == 0);
    CHECK(reason(entry6(IPPROTO_TCP)) == 0);
    CHECK(reason(entry6(IPPROTO_UDP)) == 0);
}

TEST_CASE("each obstacle in an entry has its reason", "[flow][admission]")
{
    CtEntry e = entry();
    SECTION("helper attribute")
    {
        e.helper = true;
        CHECK(reason(e) == FTCTL_R_HELPER);
    }
    SECTION("helper bit")
    {
        e.status |= IPS_HELPER;
        CHECK(reason(e) == FTCTL_R_HELPER);
    }
    SECTION("sequence adjustment")
    {
        e.seqadj = true;
        CHECK(reason(e) == FTCTL_R_SEQADJ);
    }
    SECTION("sequence adjustment bit")
    {
        e.status |= IPS_SEQ_ADJUST;
        CHECK(reason(e) == FTCTL_R_SEQADJ);
    }
    SECTION("SYN proxy")
    {
        e.synproxy = true;
        CHECK(reason(e) == FTCTL_R_SYNPROXY);
    }
    SECTION("NAT clash or untracked")
    {
        e.status |= IPS_UNTRACKED;
        CHECK(reason(e) == FTCTL_R_NAT_CLASH);
    }
    SECTION("the kernel's flowtable has it")
    {
        e.status |= IPS_OFFLOAD;
        CHECK(reason(e) == FTCTL_R_KERNEL_OFFLOAD);
    }
    SECTION("dying")
    {
        e.status |= IPS_DYING;
        CHECK(reason(e) == FTCTL_R_CLOSED);
    }
    SECTION("zone")
    {
        e.zone = 1;
        CHECK(reason(e) == FTCTL_R_ZONE);
    }
    SECTION("no reply yet")
    {
        e.status &= ~static_cast<std::uint32_t>(IPS_SEEN_REPLY);
        CHECK(reason(e) == FTCTL_R_NOT_ASSURED);
    }
    SECTION("not assured")
    {
        e.status &= ~static_cast<std::uint32_t>(IPS_ASSURED);
        CHECK(reason(e) == FTCTL_R_NOT_ASSURED);
    }
    SECTION("not confirmed")
    {
        e.status &= ~static_cast<std::uint32_t>(IPS_CONFIRMED);
        CHECK(reason(e) == FTCTL_R_NOT_ASSURED);
    }
    SECTION("handshake")
    {
        e.tcp_state = TCP_CONNTRACK_SYN_RECV;
        CHECK(reason(e) == FTCTL_R_NOT_ASSURED);
    }
    SECTION("ending")
    {
        e.tcp_state = TCP_CONNTRACK_FIN_WAIT;
        CHECK(reason(e) == FTCTL_R_CLOSED);
    }
    SECTION("state not told")
    {
        e.tcp_state.reset();
        CHECK(reason(e) == FTCTL_R_NOT_ASSURED);
    }
    SECTION("other protocols")
    {
        e.orig.proto = IPPROTO_ICMP;
        CHECK(reason(e) == FTCTL_R_NOT_TCP_UDP);
    }
    SECTION("ICMPv6")
    {
        e = entry6(IPPROTO_ICMPV6);
        CHECK(reason(e) == FTCTL_R_NOT_TCP_UDP);
    }
    SECTION("two families in one entry")
    {
        e.orig.src = ip("2001:db8::1");
        CHECK(reason(e) == FTCTL_R_FAMILY);
        e = entry6();
        e.reply.src = ip("192.0.2.1");
        CHECK(reason(e) == FTCTL_R_FAMILY);
    }
    SECTION("no family")
    {
        e.orig.src = {};
        CHECK(reason(e) == FTCTL_R_FAMILY);
    }
    SECTION("link-local, named")
    {
        e = entry6();
        e.orig.src = ip("fe80::2");
        REQUIRE(refuse_entry(e, {}));
        CHECK(*refuse_entry(e, {}) == Refusal{FTCTL_R_ADDRESS, "fe80::2"});
    }
    SECTION("multicast")
    {
        e.reply.src = ip("224.0.0.1");
        CHECK(reason(e) == FTCTL_R_ADDRESS);
    }
}

TEST_CASE("the mark that means leave alone", "[flow][admission]")
{
    CtEntry e = entry();
    e.mark = 0x80000001;
    CHECK(reason(e) == FTCTL_R_MARK);
    CHECK(reason(e, {0x80000000, 0}) == 0);
    CHECK(reason(e, {2, 0xff}) == 0);
    e.mark = 0x7fffffff;
    CHECK(reason(e) == 0);
}

TEST_CASE("only established TCP stays", "[flow][admission]")
{
    CtEntry e = entry();
    CHECK_FALSE(entry_closed(e));
    e.tcp_state = TCP_CONNTRACK_LAST_ACK;
    CHECK(entry_closed(e));
    e = entry(IPPROTO_UDP);
    CHECK_FALSE(entry_closed(e));
    e.status |= IPS_DYING;
    CHECK(entry_closed(e));
}

TEST_CASE("addresses that ip_forward takes", "[flow][admission]")
{
    for (const char *good : {"1.0.0.1", "10.0.0.1", "126.255.255.255", "128.0.0.1", "223.255.255.255"})
        CHECK(forwardable(ip(good)));
    for (const char *bad : {"0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"})
        CHECK_FALSE(forwardable(ip(bad)));
}

TEST_CASE("addresses that ip6_forward takes", "[flow][admission]")
{
    for (const char *good : {"2001:db8::1", "fc00::1", "fec0::1", "64:ff9b::c000:201", "::2", "::1:0:0:1",
                             "::ffff:0:192.0.2.1", "::192.0.2.1"})
        CHECK(forwardable(ip(good)));
    for (const char *bad : {"::", "::1", "ff02::1", "ff0e::1", "fe80::1", "febf::1", "::ffff:192.0.2.1"})
        CHECK_FALSE(forwardable(ip(bad)));
    CHECK_FALSE(forwardable(IpAddr{}));
}

TEST_CASE("GRE of version 0 without NAT is admitted", "[flow][admission]")
{
    CtEntry e = entry(IPPROTO_GRE);
    e.orig.sport = e.orig.dport = 0;
    e.reply = e.orig.reversed();
    CHECK_FALSE(refuse_entry(e, {}));
    SECTION("NAT")
    {
        e.reply.dst = ip("203.0.113.9");
        CHECK(refuse_entry(e, {}) == Refusal{FTCTL_R_NOT_TCP_UDP, "gre with NAT"});
    }
    SECTION("version 1 has call IDs")
    {
        e.orig.dport = 17;
        CHECK(refuse_entry(e, {}) == Refusal{FTCTL_R_NOT_TCP_UDP, "gre version 1"});
    }
    SECTION("one-way")
    {
        e.status &= ~static_cast<std::uint32_t>(IPS_ASSURED);
        CHECK(refuse_entry(e, {}) == Refusal{FTCTL_R_NOT_ASSURED, {}});
    }
}
