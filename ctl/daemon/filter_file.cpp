// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/filter_file.h"

#include "daemon/json_lines.h"

namespace ftctl {

namespace {

using Rules = std::vector<FilterRule>;

std::string at_line(const std::string &origin, std::size_t line)
{
    return origin + ":" + std::to_string(line);
}

Result<Rules> from_lines(const std::string &text, const std::string &origin)
{
    Rules rules;
    std::size_t number = 0;
    for (std::size_t start = 0; start < text.size();) {
        const auto end = std::min(text.find('\n', start), text.size());
        const std::string what = at_line(origin, ++number);
        auto rule = parse_filter_line(text.substr(start, end - start), what);
        if (!rule)
            return tl::unexpected(rule.error());
        if (*rule) {
            if (auto done = number_filter_rule(**rule, rules.empty() ? 0 : rules.back().id, what); !done)
                return tl::unexpected(done.error());
            rules.push_back(std::move(**rule));
        }
        start = end + 1;
    }
    return rules;
}

Result<Rules> from_json(const std::string &text, const std::string &origin)
{
    const auto lined = parse_lined(text, origin);
    if (!lined)
        return tl::unexpected(lined.error());
    if (!lined->json.is_array())
        return fail(at_line(origin, 1), "rules are a list ([...])", {}, Code::usage);
    Rules rules;
    for (std::size_t i = 0; i < lined->json.size(); i++) {
        const std::string what = at_line(origin, lined->line("/" + std::to_string(i)));
        auto rule = parse_filter_json(lined->json[i], what);
        if (!rule)
            return tl::unexpected(rule.error());
        if (auto done = number_filter_rule(*rule, rules.empty() ? 0 : rules.back().id, what); !done)
            return tl::unexpected(done.error());
        rules.push_back(std::move(*rule));
    }
    return rules;
}

} // namespace

Status number_filter_rule(FilterRule &rule, std::uint32_t last, const std::string &what)
{
    if (rule.id != 0)
        return {};
    if (last >= kMaxFilterId)
        return fail(what, "no id is left after " + std::to_string(last), "give the rule an id of its own",
                    Code::usage);
    rule.id = last + 1;
    return {};
}

Result<Rules> parse_filter_file(const std::string &text, const std::string &origin)
{
    const auto first = text.find_first_not_of(" \t\r\n");
    const bool is_json = first != std::string::npos && (text[first] == '[' || text[first] == '{');
    auto rules = is_json ? from_json(text, origin) : from_lines(text, origin);
    if (!rules)
        return rules;
    if (auto done = check_filter_rules(*rules, origin); !done)
        return tl::unexpected(done.error());
    return rules;
}

} // namespace ftctl
