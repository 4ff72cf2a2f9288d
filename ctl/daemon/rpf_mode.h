// SPDX-License-Identifier: GPL-2.0-only
// The words of the reverse path filter: off, loose, strict, and with ",log" only counted.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ftctl/abi.h"

namespace ftctl {

inline constexpr std::array<std::pair<std::string_view, std::uint32_t>, 5> kRpfModes = {{
    {"off", 0},
    {"loose", FTCTL_RPF_LOOSE},
    {"strict", FTCTL_RPF_STRICT},
    {"loose,log", FTCTL_RPF_LOOSE | FTCTL_RPF_LOG},
    {"strict,log", FTCTL_RPF_STRICT | FTCTL_RPF_LOG},
}};

/// FTCTL_RPF_* of a mode; none: there is no such mode. An empty word is "off", "log" is "strict,log".
inline std::optional<std::uint32_t> parse_rpf(std::string_view word)
{
    if (word.empty())
        word = "off";
    if (word == "log")
        word = "strict,log";
    for (const auto &[name, flags] : kRpfModes)
        if (name == word)
            return flags;
    return std::nullopt;
}

/// The mode's name.
inline std::string rpf_text(std::uint32_t flags)
{
    for (const auto &[name, mode] : kRpfModes)
        if (mode == (flags & ~static_cast<std::uint32_t>(FTCTL_RPF_UNSURE)))
            return std::string(name);
    return "off";
}

/// All words that parse_rpf() takes.
inline std::vector<std::string> rpf_words()
{
    std::vector<std::string> words;
    words.reserve(kRpfModes.size() + 1);
    for (const auto &[name, flags] : kRpfModes)
        words.emplace_back(name);
    words.emplace_back("log");
    return words;
}

} // namespace ftctl
