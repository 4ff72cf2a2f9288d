// SPDX-License-Identifier: GPL-2.0-only
// The early filter's rules in the form of the maps (include/ftctl/filter.h): made by flow/, loaded by bpf/.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ftctl/filter.h"

namespace ftctl {

struct FilterTables {
    std::vector<std::pair<ftctl_filter_key, ftctl_filter_hit>> prefixes;
    std::unique_ptr<ftctl_filter_set> set; ///< without .slot, .stripes
    std::vector<ftctl_filter_rule> rules;  ///< by rank
};

} // namespace ftctl
