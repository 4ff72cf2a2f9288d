// SPDX-License-Identifier: GPL-2.0-only
// IPsec policies. Kernel: copy_to_user_policy(), xfrm_get_default() (net/xfrm/xfrm_user.c),
// xfrm_selector_match(), xfrm_policy_match() (net/xfrm/xfrm_policy.c).
#include "netlink/xfrm_message.h"

#include <linux/xfrm.h>

#include "netlink/socket.h"

namespace ftctl {
namespace nl {
namespace {

IpAddr selector_addr(const xfrm_address_t &a, std::uint8_t family, std::uint8_t prefix_len)
{
    if (prefix_len == 0)
        return {};
    return IpAddr::from_bytes(family, &a, family == AF_INET ? sizeof(a.a4) : sizeof(a.a6));
}

} // namespace

std::optional<XfrmSelector> parse_xfrm_policy(const Message &m)
{
    const auto info = m.head<xfrm_userpolicy_info>();
    if (m.type != XFRM_MSG_NEWPOLICY || !info)
        return std::nullopt;
    // "in" is about packets to this machine; directions above are socket policies.
    if (info->dir != XFRM_POLICY_OUT && info->dir != XFRM_POLICY_FWD)
        return std::nullopt;
    bool templates = false;
    for (const Attr &a : m.attrs(sizeof(xfrm_userpolicy_info))) {
        if (a.type == XFRMA_TMPL)
            templates |= !a.data.empty();
        // A policy of an xfrm interface: the packets of other devices never look at it.
        else if (a.type == XFRMA_IF_ID && a.u32().value_or(0) != 0)
            return std::nullopt;
    }
    if (info->action == XFRM_POLICY_ALLOW && !templates)
        return std::nullopt;

    const xfrm_selector &sel = info->sel;
    XfrmSelector s;
    // Policies of one family may have a selector of none, which then has no addresses either.
    s.family = sel.family == AF_INET || sel.family == AF_INET6 ? static_cast<std::uint8_t>(sel.family) : 0;
    // A length beyond the address makes no sense to anybody: let it match everything.
    const unsigned bits = s.family == AF_INET ? 32 : 128;
    if (s.family != 0 && sel.prefixlen_s <= bits)
        s.src = {selector_addr(sel.saddr, s.family, sel.prefixlen_s), sel.prefixlen_s};
    if (s.family != 0 && sel.prefixlen_d <= bits)
        s.dst = {selector_addr(sel.daddr, s.family, sel.prefixlen_d), sel.prefixlen_d};
    s.proto = sel.proto;
    s.sport = be16toh(sel.sport);
    s.sport_mask = be16toh(sel.sport_mask);
    s.dport = be16toh(sel.dport);
    s.dport_mask = be16toh(sel.dport_mask);
    s.ifindex = static_cast<std::uint32_t>(sel.ifindex);
    return s;
}

std::optional<bool> parse_xfrm_default(const Message &m)
{
    const auto d = m.head<xfrm_userpolicy_default>();
    if (m.type != XFRM_MSG_GETDEFAULT || !d)
        return std::nullopt;
    return d->fwd == XFRM_USERPOLICY_BLOCK || d->out == XFRM_USERPOLICY_BLOCK;
}

} // namespace nl

bool XfrmSelector::matches(const Tuple &t) const
{
    return (family == 0 || family == t.src.family) && src.contains(t.src) && dst.contains(t.dst) &&
           (proto == 0 || proto == t.proto) && ((t.sport ^ sport) & sport_mask) == 0 &&
           ((t.dport ^ dport) & dport_mask) == 0;
}

bool XfrmPolicies::touches(const Tuple &t) const
{
    if (default_block)
        return true;
    const Tuple back = t.reversed();
    for (const XfrmSelector &s : selectors)
        if (s.matches(t) || s.matches(back))
            return true;
    return false;
}

namespace {

class Absent final : public XfrmWatch {
  public:
    [[nodiscard]] int fd() const override { return -1; }
    Result<bool> read() override { return false; }
    Result<XfrmPolicies> policies() override { return XfrmPolicies{}; }
};

class Watch final : public XfrmWatch {
  public:
    Watch(nl::EventSocket events, nl::Socket control)
        : events_(std::move(events)), control_(std::move(control))
    {
    }
    [[nodiscard]] int fd() const override { return events_.fd(); }

    Result<bool> read() override
    {
        bool changed = false;
        const auto state = events_.read([&changed](const nl::Message &) { changed = true; }, 4096);
        if (!state)
            return tl::unexpected(state.error());
        return changed || *state == nl::EventSocket::State::overrun;
    }

    Result<XfrmPolicies> policies() override
    {
        const char *what = "list IPsec policies";
        XfrmPolicies p;
        nl::Request dump(XFRM_MSG_GETPOLICY, NLM_F_DUMP);
        dump.head<xfrm_userpolicy_id>();
        int err = control_.dump_consistent(
            dump, [&p] { p.selectors.clear(); },
            [&p](const nl::Message &m) {
                if (const auto s = nl::parse_xfrm_policy(m))
                    p.selectors.push_back(*s);
                return true;
            });
        if (err)
            return control_.error(what, err);

        nl::Request ask(XFRM_MSG_GETDEFAULT, 0);
        ask.head<xfrm_userpolicy_default>();
        err = control_.ask(ask, [&p](const nl::Message &m) {
            p.default_block = nl::parse_xfrm_default(m).value_or(false);
            return true;
        });
        // Kernels before 5.15 do not know the request: there the default is to accept.
        if (err && err != EINVAL && err != EOPNOTSUPP)
            return control_.error(what, err);
        return p;
    }

  private:
    nl::EventSocket events_;
    nl::Socket control_;
};

} // namespace

Result<std::unique_ptr<XfrmWatch>> XfrmWatch::open()
{
    auto events = nl::EventSocket::open(NETLINK_XFRM, {XFRMNLGRP_POLICY}, 1U << 20);
    if (!events && events.error().err == EPROTONOSUPPORT)
        return std::make_unique<Absent>();
    if (!events)
        return tl::unexpected(events.error());
    auto control = nl::Socket::open(NETLINK_XFRM);
    if (!control)
        return tl::unexpected(control.error());
    return std::make_unique<Watch>(std::move(*events), std::move(*control));
}

} // namespace ftctl
