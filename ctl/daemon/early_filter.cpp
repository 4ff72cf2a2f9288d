// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/early_filter.h"

#include <algorithm>

#include "daemon/filter_file.h"
#include "flow/filter_set.h"

namespace ftctl {

namespace {

/// A load whose sender has been silent for so long is given up.
constexpr std::uint64_t kLoadingNs = 30 * FTCTL_NSEC_PER_SEC;

} // namespace

EarlyFilter::EarlyFilter(Datapath &datapath) : datapath_(datapath)
{
    for (const ftctl_filter_rule &rule : datapath_.filter_rules())
        rules_.push_back(from_abi(rule));
}

Status EarlyFilter::use(std::vector<FilterRule> rules)
{
    const auto tables = make_filter_tables(rules);
    if (!tables)
        return tl::unexpected(tables.error());
    if (auto done = datapath_.filter_replace(*tables); !done)
        return done;
    rules_ = std::move(rules);
    return {};
}

Result<std::uint32_t> EarlyFilter::add(FilterRule rule)
{
    const std::string what = "filter add";
    if (auto numbered = number_filter_rule(rule, rules_.empty() ? 0 : rules_.back().id, what); !numbered)
        return tl::unexpected(numbered.error());
    const std::uint32_t id = rule.id;
    auto rules = rules_;
    rules.push_back(std::move(rule));
    if (auto done = check_filter_rules(rules, what); !done)
        return tl::unexpected(done.error());
    if (auto done = use(std::move(rules)); !done)
        return tl::unexpected(done.error());
    return id;
}

Status EarlyFilter::remove(const std::vector<std::uint32_t> &ids)
{
    auto rules = rules_;
    for (const std::uint32_t id : ids) {
        const auto it =
            std::find_if(rules.begin(), rules.end(), [id](const FilterRule &rule) { return rule.id == id; });
        if (it == rules.end())
            return fail("filter del", "no rule has id " + std::to_string(id),
                        "`ftctl filter list` shows the ids in use");
        rules.erase(it);
    }
    return use(std::move(rules));
}

Status EarlyFilter::replace(std::vector<FilterRule> rules)
{
    if (auto done = check_filter_rules(rules, "filter load"); !done)
        return done;
    return use(std::move(rules));
}

Result<std::size_t> EarlyFilter::load(const Part &part, std::uint64_t now_ns)
{
    if (part.token != loading_.token) {
        if (!loading_.token.empty() && now_ns - loading_.last_ns < kLoadingNs)
            return fail("filter load", "another one is going on", "try again in a moment");
        loading_ = {part.token, now_ns, {}};
    }
    loading_.last_ns = now_ns;
    for (const std::string &line : part.lines) {
        auto rule = parse_filter_line(line, "filter load: rule '" + line.substr(0, 60) + "'");
        if (!rule || !*rule || (*rule)->id == 0) {
            loading_ = {};
            return rule ? fail("filter load", "a rule without words or without an id", {}, Code::usage)
                        : tl::unexpected(rule.error());
        }
        loading_.rules.push_back(std::move(**rule));
    }
    if (part.more)
        return loading_.rules.size();
    const Loading whole = std::exchange(loading_, {});
    if (auto done = replace(whole.rules); !done)
        return tl::unexpected(done.error());
    return rules_.size();
}

nlohmann::json filter_list_json(const std::vector<ftctl_filter_rule> &rules)
{
    auto list = nlohmann::json::array();
    for (const ftctl_filter_rule &rule : rules) {
        auto item = filter_rule_json(from_abi(rule));
        item["packets"] = rule.packets;
        item["bytes"] = rule.bytes;
        list.push_back(std::move(item));
    }
    return list;
}

} // namespace ftctl
