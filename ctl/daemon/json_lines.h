// SPDX-License-Identifier: GPL-2.0-only
// JSON with comments, and where in the text each part of it stands.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "util/result.h"

namespace ftctl {

struct LinedJson {
    nlohmann::json json;
    std::map<std::string, unsigned> lines; ///< JSON pointer -> line of its key or first character

    /// Line of a part, or of the nearest part around it.
    [[nodiscard]] unsigned line(const std::string &pointer) const;
};

/// Syntax errors, duplicate keys and deep nesting are errors named `origin:LINE`.
Result<LinedJson> parse_lined(std::string_view text, const std::string &origin);

} // namespace ftctl
