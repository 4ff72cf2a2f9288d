// SPDX-License-Identifier: GPL-2.0-only
// Texts of --help that teach by example.
#pragma once

#include <string>

namespace ftctl {

/// Below the options of a command ("flows", "tunnel add"; "" for ftctl itself); may be empty.
std::string help_examples(const std::string &command);

/// What the words of a FILTER are.
std::string filter_help();

} // namespace ftctl
