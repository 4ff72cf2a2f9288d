// SPDX-License-Identifier: GPL-2.0-only
// Rates from two listings of flows.
#pragma once

#include <iosfwd>

#include <nlohmann/json.hpp>

namespace ftctl {

/// Rows for every direction in `now`, busiest first: the keys of direction_rows(), and "pps" and
/// "bps" (bits a second) since `before`, which was taken `seconds` earlier. A connection that was
/// not there before counts from zero.
nlohmann::json top_rows(const nlohmann::json &before, const nlohmann::json &now, double seconds);

/// A line of totals and the first `limit` rows.
void view_top(std::ostream &out, const nlohmann::json &rows, std::size_t limit, bool colour);

} // namespace ftctl
