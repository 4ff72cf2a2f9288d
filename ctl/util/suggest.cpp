// SPDX-License-Identifier: GPL-2.0-only
#include "util/suggest.h"

#include <algorithm>

namespace ftctl {

std::size_t edit_distance(std::string_view a, std::string_view b)
{
    // Three rows of the usual matrix; the oldest is needed for swapped neighbours.
    std::vector<std::size_t> before(b.size() + 1);
    std::vector<std::size_t> above(b.size() + 1);
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); j++)
        above[j] = j;
    for (std::size_t i = 1; i <= a.size(); i++) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); j++) {
            const std::size_t change = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({above[j] + 1, row[j - 1] + 1, change});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before[j - 2] + 1);
        }
        std::swap(before, above);
        std::swap(above, row);
    }
    return above[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string> &known)
{
    if (word.empty() || word.size() > 64)
        return {};
    std::string best;
    std::size_t best_distance = word.size() <= 3 ? 2 : 1 + word.size() / 3 + 1;
    for (const auto &candidate : known) {
        const auto distance = edit_distance(word, candidate);
        if (distance < best_distance) {
            best = candidate;
            best_distance = distance;
        }
    }
    if (!best.empty())
        return best;
    // A word that was cut short ("conn" for "connection").
    for (const auto &candidate : known)
        if (word.size() >= 2 && candidate.starts_with(word))
            return candidate;
    return {};
}

std::string did_you_mean(std::string_view word, const std::vector<std::string> &known)
{
    const auto best = nearest(word, known);
    return best.empty() ? std::string() : "; did you mean '" + best + "'?";
}

std::string join_words(const std::vector<std::string> &words)
{
    std::string out;
    for (const auto &w : words)
        out += (out.empty() ? "" : ", ") + w;
    return out;
}

} // namespace ftctl
