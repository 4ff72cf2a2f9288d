// SPDX-License-Identifier: GPL-2.0-only
// The command line: words to commands.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace ftctl {

/// Runs one command; `args` is without the program's name. Returns the exit code; never throws.
int run_cli(const std::vector<std::string> &args, std::ostream &out, std::ostream &err);

} // namespace ftctl
