// SPDX-License-Identifier: GPL-2.0-only
#include "netlink/nft_ruleset.h"

#include <algorithm>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nf_tables_compat.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_hook.h>

namespace ftctl::nl {
namespace {

constexpr std::uint16_t nft_type(unsigned msg)
{
    return static_cast<std::uint16_t>(NFNL_SUBSYS_NFTABLES << 8 | msg);
}

void start(Request &r, std::uint8_t family)
{
    auto &head = r.head<nfgenmsg>();
    head.nfgen_family = family;
    head.version = NFNETLINK_V0;
}

template <std::size_t N>
bool one_of(std::string_view name, const std::array<std::string_view, N> &list)
{
    return std::find(list.begin(), list.end(), name) != list.end();
}

/// Expressions whose init calls nf_ct_netns_get().
bool expr_holds(std::string_view name)
{
    static constexpr std::array<std::string_view, 7> names{"ct",           "nat",       "masq",    "redir",
                                                           "flow_offload", "connlimit", "synproxy"};
    return one_of(name, names);
}

/// Matches and targets of iptables, which iptables-nft wraps into "match" and "target".
bool xtables_holds(std::string_view name)
{
    static constexpr std::array<std::string_view, 17> names{
        "conntrack", "state",    "connmark",    "connbytes", "connlimit", "connlabel",
        "helper",    "cluster",  "MASQUERADE",  "SNAT",      "DNAT",      "REDIRECT",
        "NETMAP",    "CONNMARK", "CONNSECMARK", "CT",        "SYNPROXY"};
    return one_of(name, names);
}

bool expression_holds(const Attr &expr)
{
    const auto name = expr.nested().find(NFTA_EXPR_NAME);
    if (!name)
        return false;
    if (expr_holds(name->text()))
        return true;
    const bool match = name->text() == "match";
    if (!match && name->text() != "target")
        return false;
    const auto data = expr.nested().find(NFTA_EXPR_DATA);
    if (!data)
        return false;
    static_assert(int{NFTA_MATCH_NAME} == int{NFTA_TARGET_NAME});
    const auto inner = data->nested().find(NFTA_MATCH_NAME);
    return inner && xtables_holds(inner->text());
}

bool object_holds(std::uint32_t type)
{
    switch (type) {
    case NFT_OBJECT_CT_HELPER:
    case NFT_OBJECT_CT_TIMEOUT:
    case NFT_OBJECT_CT_EXPECT:
    case NFT_OBJECT_CONNLIMIT:
    case NFT_OBJECT_SYNPROXY:
        return true;
    default:
        return false;
    }
}

} // namespace

std::optional<NftUser> parse_nft_user(const Message &m)
{
    const auto head = m.head<nfgenmsg>();
    if (!head)
        return std::nullopt;
    NftUser u;
    u.family = head->nfgen_family;
    const Attrs attrs = m.attrs(sizeof(nfgenmsg));
    if (m.type == nft_type(NFT_MSG_NEWRULE)) {
        for (const Attr &a : attrs) {
            if (a.type == NFTA_RULE_TABLE)
                u.table = a.text();
            else if (a.type == NFTA_RULE_EXPRESSIONS)
                for (const Attr &expr : a.nested())
                    u.conntrack |= expression_holds(expr);
        }
        return u;
    }
    if (m.type == nft_type(NFT_MSG_NEWOBJ)) {
        for (const Attr &a : attrs) {
            if (a.type == NFTA_OBJ_TABLE)
                u.table = a.text();
            else if (a.type == NFTA_OBJ_TYPE)
                u.conntrack = object_holds(a.be32().value_or(NFT_OBJECT_UNSPEC));
        }
        return u;
    }
    return std::nullopt;
}

bool is_conntrack_hook(const Message &m)
{
    if (m.type != (NFNL_SUBSYS_HOOK << 8 | NFNL_MSG_HOOK_GET))
        return false;
    const auto function = m.attrs(sizeof(nfgenmsg)).find(NFNLA_HOOK_FUNCTION_NAME);
    return function && (function->text() == "ipv4_conntrack_in" || function->text() == "ipv6_conntrack_in");
}

Result<bool> conntrack_hooked(Socket &socket, std::uint8_t family)
{
    Request r(NFNL_SUBSYS_HOOK << 8 | NFNL_MSG_HOOK_GET, NLM_F_DUMP);
    start(r, family);
    r.put_be32(NFNLA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
    bool found = false;
    bool named = false;
    const int err = socket.dump_consistent(
        r, [&] { found = named = false; },
        [&](const Message &m) {
            named |= m.attrs(sizeof(nfgenmsg)).find(NFNLA_HOOK_FUNCTION_NAME).has_value();
            found |= is_conntrack_hook(m);
            return !found;
        });
    if (err == ENOENT)
        return false; // no hook at all
    if (err)
        return socket.error("list netfilter hooks", err);
    // Function names need CONFIG_KALLSYMS; a list of nameless hooks tells nothing.
    if (!found && !named)
        return fail_errno("list netfilter hooks", EOPNOTSUPP);
    return found;
}

Result<bool> ruleset_any(Socket &socket, const std::function<bool(const NftUser &)> &match)
{
    bool found = false;
    for (const unsigned what : {NFT_MSG_GETRULE, NFT_MSG_GETOBJ}) {
        Request r(nft_type(what), NLM_F_DUMP);
        start(r, NFPROTO_UNSPEC);
        const int err = socket.dump_consistent(
            r, [&found] { found = false; },
            [&](const Message &m) {
                if (const auto user = parse_nft_user(m))
                    found |= user->conntrack && match(*user);
                return !found;
            });
        if (err)
            return socket.error("read the nftables ruleset", err);
        if (found)
            return true;
    }
    return false;
}

} // namespace ftctl::nl
