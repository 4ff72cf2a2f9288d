// SPDX-License-Identifier: GPL-2.0-only
// Rules of the early filter in bulk: one rule a line, or a JSON array of objects as `filter list -j` prints
// it.
#pragma once

#include <string>
#include <vector>

#include "flow/filter_rule.h"

namespace ftctl {

/// Sorted by id; a rule without one gets the id after that of the rule before it. Errors name `origin`, the
/// line and the word.
Result<std::vector<FilterRule>> parse_filter_file(const std::string &text, const std::string &origin);

/// Gives `rule` the id after `last` where it has none.
Status number_filter_rule(FilterRule &rule, std::uint32_t last, const std::string &what);

} // namespace ftctl
