// SPDX-License-Identifier: GPL-2.0-only
// The early filter's rules: what the operator asked for, one change at a time or all at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bpf/datapath.h"
#include "flow/filter_rule.h"

namespace ftctl {

class EarlyFilter {
  public:
    /// Goes on with the rules that are pinned.
    explicit EarlyFilter(Datapath &datapath);

    /// Returns the rule's id.
    Result<std::uint32_t> add(FilterRule rule);
    Status remove(const std::vector<std::uint32_t> &ids);
    Status replace(std::vector<FilterRule> rules);
    [[nodiscard]] std::size_t size() const { return rules_.size(); }

    /// A rule set that comes in parts, since a request is short: parts of one load carry the same token. With
    /// the last part it takes the place of the rules in use. Returns how many rules there are so far.
    struct Part {
        std::string token;
        std::vector<std::string> lines; ///< as filter_rule_text() has them
        bool more = false;
    };
    Result<std::size_t> load(const Part &part, std::uint64_t now_ns);

  private:
    Status use(std::vector<FilterRule> rules);

    Datapath &datapath_;
    std::vector<FilterRule> rules_; ///< by id
    struct Loading {
        std::string token;
        std::uint64_t last_ns = 0;
        std::vector<FilterRule> rules;
    } loading_;
};

/// The rules as `filter list` prints them.
nlohmann::json filter_list_json(const std::vector<ftctl_filter_rule> &rules);

} // namespace ftctl
