// SPDX-License-Identifier: GPL-2.0-only
#include <catch2/catch.hpp>

#include <netinet/in.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nf_tables_compat.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_hook.h>
#include <linux/xfrm.h>

#include "netlink/nft_ruleset.h"
#include "netlink/xfrm_message.h"
#include "netlink_messages.h"

using namespace ftctl;
using netlink_test::Builder;
using netlink_test::maul;
using netlink_test::parse_exact;

namespace {

Tuple tuple(const char *src, std::uint16_t sport, const char *dst, std::uint16_t dport)
{
    return {IpAddr::parse(src).value(), IpAddr::parse(dst).value(), sport, dport, IPPROTO_TCP};
}

Builder policy(std::uint8_t dir, std::uint8_t action)
{
    Builder b(XFRM_MSG_NEWPOLICY, 0);
    auto &p = b.head<xfrm_userpolicy_info>();
    p.dir = dir;
    p.action = action;
    p.sel.family = AF_INET;
    p.sel.saddr.a4 = htobe32(0xc0000200); // 192.0.2.0
    p.sel.prefixlen_s = 24;
    p.sel.daddr.a4 = htobe32(0xc6336400); // 198.51.100.0
    p.sel.prefixlen_d = 24;
    p.sel.dport = htobe16(80);
    p.sel.dport_mask = 0xffff;
    return b;
}

} // namespace

TEST_CASE("xfrm: which policies touch forwarded packets", "[netlink]")
{
    CHECK(parse_exact(policy(XFRM_POLICY_OUT, XFRM_POLICY_BLOCK).bytes(), nl::parse_xfrm_policy));
    CHECK(parse_exact(policy(XFRM_POLICY_FWD, XFRM_POLICY_BLOCK).bytes(), nl::parse_xfrm_policy));
    CHECK_FALSE(parse_exact(policy(XFRM_POLICY_IN, XFRM_POLICY_BLOCK).bytes(), nl::parse_xfrm_policy));
    CHECK_FALSE(parse_exact(policy(4, XFRM_POLICY_BLOCK).bytes(), nl::parse_xfrm_policy)); // a socket's
    Builder allow = policy(XFRM_POLICY_OUT, XFRM_POLICY_ALLOW);
    CHECK_FALSE(parse_exact(allow.bytes(), nl::parse_xfrm_policy));
    const xfrm_user_tmpl tmpl{};
    allow.put(XFRMA_TMPL, &tmpl, sizeof(tmpl));
    CHECK(parse_exact(allow.bytes(), nl::parse_xfrm_policy));
    maul(allow.bytes(), nl::parse_xfrm_policy);
    allow.u32(XFRMA_IF_ID, 42); // for the packets of one xfrm interface
    CHECK_FALSE(parse_exact(allow.bytes(), nl::parse_xfrm_policy));
}

TEST_CASE("xfrm: selectors match both directions", "[netlink]")
{
    XfrmPolicies p;
    const Tuple web = tuple("192.0.2.2", 40000, "198.51.100.2", 80);
    CHECK_FALSE(p.touches(web));
    p.selectors.push_back(
        parse_exact(policy(XFRM_POLICY_OUT, XFRM_POLICY_BLOCK).bytes(), nl::parse_xfrm_policy).value());
    CHECK(p.touches(web));
    CHECK(p.touches(web.reversed()));
    CHECK_FALSE(p.touches(tuple("192.0.2.2", 40000, "198.51.100.2", 81)));
    CHECK_FALSE(p.touches(tuple("192.0.3.2", 40000, "198.51.100.2", 80)));
    CHECK_FALSE(p.touches(tuple("2001:db8::1", 40000, "2001:db8::2", 80)));
    p.selectors[0].proto = IPPROTO_UDP;
    CHECK_FALSE(p.touches(web));
    p.selectors = {XfrmSelector{}};
    CHECK(p.touches(tuple("2001:db8::1", 40000, "2001:db8::2", 80)));
    p.selectors.clear();
    p.default_block = true;
    CHECK(p.touches(web));
}

TEST_CASE("xfrm: the default action", "[netlink]")
{
    Builder b(XFRM_MSG_GETDEFAULT, 0);
    auto &d = b.head<xfrm_userpolicy_default>();
    d.in = XFRM_USERPOLICY_BLOCK;
    d.fwd = d.out = XFRM_USERPOLICY_ACCEPT;
    CHECK(parse_exact(b.bytes(), nl::parse_xfrm_default) == false);
    d.fwd = XFRM_USERPOLICY_BLOCK;
    CHECK(parse_exact(b.bytes(), nl::parse_xfrm_default) == true);
    maul(b.bytes(), nl::parse_xfrm_default);
}

TEST_CASE("nft: who holds conntrack on", "[netlink]")
{
    const auto rule = [](const char *expr, const char *inner = nullptr) {
        Builder b(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE, 0);
        b.head<nfgenmsg>().nfgen_family = NFPROTO_INET;
        b.text(NFTA_RULE_TABLE, "filter").text(NFTA_RULE_CHAIN, "forward");
        b.nest(NFTA_RULE_EXPRESSIONS, [&] {
            b.nest(NFTA_LIST_ELEM, [&] { b.text(NFTA_EXPR_NAME, "meta"); });
            b.nest(NFTA_LIST_ELEM, [&] {
                b.text(NFTA_EXPR_NAME, expr);
                if (inner)
                    b.nest(NFTA_EXPR_DATA, [&] { b.text(NFTA_MATCH_NAME, inner); });
            });
        });
        maul(b.bytes(), [](const nl::Message &m) { return nl::parse_nft_user(m).has_value(); });
        const auto msg = b.bytes();
        return parse_exact(msg, [](const nl::Message &m) {
            const auto u = nl::parse_nft_user(m);
            return u && u->family == NFPROTO_INET && u->table == "filter" && u->conntrack;
        });
    };
    for (const char *name : {"ct", "nat", "masq", "redir", "flow_offload", "connlimit", "synproxy"})
        CHECK(rule(name));
    for (const char *name : {"counter", "notrack", "fib", "immediate", "tproxy"})
        CHECK_FALSE(rule(name));
    CHECK(rule("match", "conntrack"));
    CHECK(rule("target", "MASQUERADE"));
    CHECK_FALSE(rule("match", "multiport"));

    Builder object(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWOBJ, 0);
    object.head<nfgenmsg>().nfgen_family = NFPROTO_IPV4;
    object.text(NFTA_OBJ_TABLE, "t").be32(NFTA_OBJ_TYPE, NFT_OBJECT_CT_HELPER);
    CHECK(parse_exact(object.bytes(), [](const nl::Message &m) { return nl::parse_nft_user(m)->conntrack; }));
}

TEST_CASE("nft: conntrack's hooks", "[netlink]")
{
    const auto hook = [](const char *function) {
        Builder b(NFNL_SUBSYS_HOOK << 8 | NFNL_MSG_HOOK_GET, NLM_F_MULTI);
        b.head<nfgenmsg>().nfgen_family = NFPROTO_IPV4;
        b.text(NFNLA_HOOK_FUNCTION_NAME, function).text(NFNLA_HOOK_MODULE_NAME, "nf_conntrack");
        b.be32(NFNLA_HOOK_PRIORITY, static_cast<std::uint32_t>(-200));
        maul(b.bytes(), nl::is_conntrack_hook);
        return parse_exact(b.bytes(), nl::is_conntrack_hook);
    };
    CHECK(hook("ipv4_conntrack_in"));
    CHECK(hook("ipv6_conntrack_in"));
    CHECK_FALSE(hook("ipv4_conntrack_defrag"));
}

TEST_CASE("sysctl: names", "[netlink]")
{
    CHECK(sysctl_number("net/ipv4/conf/lo/forwarding"));
    CHECK(sysctl_number("net.ipv4.conf.lo.forwarding") == sysctl_number("net/ipv4/conf/lo/forwarding"));
    CHECK_FALSE(sysctl_number("net/ipv4/no_such_thing"));
    CHECK_FALSE(sysctl_number("net/../kernel/pid_max"));
    CHECK_FALSE(sysctl_number("kernel/pid_max"));
    CHECK_FALSE(sysctl_number(""));
}
