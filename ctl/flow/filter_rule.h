// SPDX-License-Identifier: GPL-2.0-only
// A rule of the early filter: its words, its JSON, and its form in the maps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ftctl/filter.h"
#include "util/addr.h"
#include "util/result.h"

namespace ftctl {

struct PortRange {
    std::uint16_t first = 0;
    std::uint16_t last = 0;
    auto operator<=>(const PortRange &) const = default;
};

/// What is unset matches everything.
struct FilterRule {
    std::uint32_t id = 0; ///< 0: to be given one
    std::string dev;
    std::optional<Prefix> src;
    std::optional<Prefix> dst;
    std::optional<std::uint8_t> proto;
    std::optional<PortRange> sport;
    std::optional<PortRange> dport;
    bool inner = false; ///< the header inside of a tunnel's
    bool drop = false;
    std::string comment;

    auto operator<=>(const FilterRule &) const = default;
    /// AF_INET or AF_INET6 where a prefix says so, else 0.
    [[nodiscard]] std::uint8_t family() const { return src ? src->addr.family : dst ? dst->addr.family : 0; }
    /// One prefix and nothing else: there may be many of these.
    [[nodiscard]] bool is_prefix() const
    {
        return src.has_value() != dst.has_value() && dev.empty() && !proto && !sport && !dport && !inner;
    }
};

inline constexpr std::uint32_t kMaxFilterId = 0x7fffffff;

/// The words that a rule may have.
const std::vector<std::string> &filter_rule_words();

/// The words of `filter add`. Errors carry Code::usage; `what` says which rule it is.
Result<FilterRule> parse_filter_rule(const std::vector<std::string> &words, const std::string &what);
/// One line of words; text in double quotes is one word, '#' at the beginning of a word ends the line. None:
/// there is no rule in it.
Result<std::optional<FilterRule>> parse_filter_line(const std::string &line, const std::string &what);
/// An object as `filter list -j` prints it; the counters in it do not count.
Result<FilterRule> parse_filter_json(const nlohmann::json &object, const std::string &what);

/// The rule as a line that parse_filter_line() takes.
std::string filter_rule_text(const FilterRule &rule);
nlohmann::json filter_rule_json(const FilterRule &rule);

ftctl_filter_rule to_abi(const FilterRule &rule);
FilterRule from_abi(const ftctl_filter_rule &rule);

/// Sorts them by id; an id that is there twice is an error.
Status check_filter_rules(std::vector<FilterRule> &rules, const std::string &what);

} // namespace ftctl
