// SPDX-License-Identifier: GPL-2.0-only
// From rules to what the datapath looks packets up in (include/ftctl/filter.h).
#pragma once

#include <vector>

#include "flow/filter_rule.h"
#include "util/filter_tables.h"

namespace ftctl {

/// Rules in order of their ids (check_filter_rules()).
Result<FilterTables> make_filter_tables(const std::vector<FilterRule> &rules);

} // namespace ftctl
