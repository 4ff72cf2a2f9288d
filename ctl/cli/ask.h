// SPDX-License-Identifier: GPL-2.0-only
// What most commands are: a question to the daemon, and its answer printed.
#pragma once

#include <functional>
#include <string>

#include "cli/client.h"
#include "cli/commands.h"

namespace ftctl {

/// Prints what came, and what did not.
int finish(const Call &call, const Result<Answer> &answer, View view);

Result<Client> open_client(const Call &call, const std::string &cmd);
Result<Answer> ask(const Call &call, const std::string &cmd,
                   const nlohmann::json &arguments = nlohmann::json::object());

/// Asks the daemon; where there is none, looks at the pinned maps.
Result<Answer> ask_or(const Call &call, const std::string &cmd, const nlohmann::json &arguments,
                      const std::function<Result<nlohmann::json>()> &offline);

} // namespace ftctl
