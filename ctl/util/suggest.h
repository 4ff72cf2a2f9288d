// SPDX-License-Identifier: GPL-2.0-only
// "Did you mean ...": the nearest of a list of known words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ftctl {

/// Number of single-character changes (insert, delete, replace, swap of neighbours) between two words.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known word nearest to `word`, or "" when none is near enough to be meant.
std::string nearest(std::string_view word, const std::vector<std::string> &known);

/// "; did you mean 'Y'?" for the nearest word, or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string> &known);

/// The words, separated by ", ".
std::string join_words(const std::vector<std::string> &words);

} // namespace ftctl
