// SPDX-License-Identifier: GPL-2.0-only
#include "flow/filter_rule.h"

#include <algorithm>
#include <cstring>

#include "util/abi_addr.h"

namespace ftctl {

namespace {

using nlohmann::json;

ftctl_addr prefix_to_abi(const std::optional<Prefix> &prefix)
{
    return prefix ? ftctl::to_abi(prefix->addr) : ftctl_addr{};
}

std::optional<Prefix> prefix_from_abi(const ftctl_addr &addr, std::uint8_t family, std::uint8_t len)
{
    return Prefix{ftctl::from_abi(addr, family), len};
}

void copy_name(char *to, std::size_t size, const std::string &from)
{
    std::copy_n(from.begin(), std::min(from.size(), size - 1), to); // the rest is zero
}

std::string name_from(const char *text, std::size_t size)
{
    return {text, strnlen(text, size)};
}

std::string ports_text(const PortRange &range)
{
    return std::to_string(range.first) + (range.last == range.first ? "" : "-" + std::to_string(range.last));
}

} // namespace

json filter_rule_json(const FilterRule &rule)
{
    const auto ports = [](const std::optional<PortRange> &range) -> json {
        if (!range)
            return nullptr;
        return range->first == range->last ? json(range->first) : json(ports_text(*range));
    };
    const auto text = [](const std::string &value) { return value.empty() ? json(nullptr) : json(value); };
    return {{"id", rule.id},
            {"dev", text(rule.dev)},
            {"src", rule.src ? json(rule.src->str()) : json(nullptr)},
            {"dst", rule.dst ? json(rule.dst->str()) : json(nullptr)},
            {"proto", rule.proto ? json(proto_name(*rule.proto)) : json(nullptr)},
            {"sport", ports(rule.sport)},
            {"dport", ports(rule.dport)},
            {"inner", rule.inner},
            {"action", rule.drop ? "drop" : "accept"},
            {"comment", text(rule.comment)}};
}

std::string filter_rule_text(const FilterRule &rule)
{
    std::string text;
    const auto add = [&](const std::string &words) { text += (text.empty() ? "" : " ") + words; };
    if (!rule.dev.empty())
        add("dev " + rule.dev);
    if (rule.src)
        add("src " + rule.src->str());
    if (rule.dst)
        add("dst " + rule.dst->str());
    if (rule.proto)
        add("proto " + proto_name(*rule.proto));
    if (rule.sport)
        add("sport " + ports_text(*rule.sport));
    if (rule.dport)
        add("dport " + ports_text(*rule.dport));
    if (rule.inner)
        add("inner");
    add(rule.drop ? "drop" : "accept");
    if (!rule.comment.empty())
        add("comment \"" + rule.comment + "\"");
    if (rule.id != 0)
        add("id " + std::to_string(rule.id));
    return text;
}

ftctl_filter_rule to_abi(const FilterRule &rule)
{
    ftctl_filter_rule out{};
    const auto flag = [&out](bool on, unsigned bit) {
        out.flags |= static_cast<std::uint8_t>(on ? bit : 0U);
    };
    out.id = rule.id;
    flag(rule.drop, FTCTL_FILTER_F_DROP);
    flag(rule.inner, FTCTL_FILTER_F_INNER);
    flag(rule.proto.has_value(), FTCTL_FILTER_F_PROTO);
    flag(rule.src.has_value(), FTCTL_FILTER_F_SRC);
    flag(rule.dst.has_value(), FTCTL_FILTER_F_DST);
    flag(rule.sport.has_value(), FTCTL_FILTER_F_SPORT);
    flag(rule.dport.has_value(), FTCTL_FILTER_F_DPORT);
    out.family = rule.family() == AF_INET6 ? 6 : rule.family() == AF_INET ? 4 : 0;
    out.proto = rule.proto.value_or(0);
    out.src_len = rule.src ? rule.src->len : 0;
    out.dst_len = rule.dst ? rule.dst->len : 0;
    const PortRange sport = rule.sport.value_or(PortRange{}), dport = rule.dport.value_or(PortRange{});
    out.sport[0] = sport.first;
    out.sport[1] = sport.last;
    out.dport[0] = dport.first;
    out.dport[1] = dport.last;
    out.src = prefix_to_abi(rule.src);
    out.dst = prefix_to_abi(rule.dst);
    copy_name(out.dev, sizeof(out.dev), rule.dev);
    copy_name(out.comment, sizeof(out.comment), rule.comment);
    return out;
}

FilterRule from_abi(const ftctl_filter_rule &rule)
{
    FilterRule out;
    out.id = rule.id;
    out.drop = (rule.flags & FTCTL_FILTER_F_DROP) != 0;
    out.inner = (rule.flags & FTCTL_FILTER_F_INNER) != 0;
    if ((rule.flags & FTCTL_FILTER_F_PROTO) != 0)
        out.proto = rule.proto;
    if ((rule.flags & FTCTL_FILTER_F_SRC) != 0)
        out.src = prefix_from_abi(rule.src, rule.family, rule.src_len);
    if ((rule.flags & FTCTL_FILTER_F_DST) != 0)
        out.dst = prefix_from_abi(rule.dst, rule.family, rule.dst_len);
    if ((rule.flags & FTCTL_FILTER_F_SPORT) != 0)
        out.sport = PortRange{rule.sport[0], rule.sport[1]};
    if ((rule.flags & FTCTL_FILTER_F_DPORT) != 0)
        out.dport = PortRange{rule.dport[0], rule.dport[1]};
    out.dev = name_from(rule.dev, sizeof(rule.dev));
    out.comment = name_from(rule.comment, sizeof(rule.comment));
    return out;
}

Status check_filter_rules(std::vector<FilterRule> &rules, const std::string &what)
{
    std::stable_sort(rules.begin(), rules.end(),
                     [](const FilterRule &a, const FilterRule &b) { return a.id < b.id; });
    const auto twin = std::adjacent_find(
        rules.begin(), rules.end(), [](const FilterRule &a, const FilterRule &b) { return a.id == b.id; });
    if (twin != rules.end())
        return fail(what, "two rules have id " + std::to_string(twin->id),
                    "`ftctl filter list` shows the ids in use", Code::usage);
    return {};
}

} // namespace ftctl
