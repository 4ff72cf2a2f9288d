// SPDX-License-Identifier: GPL-2.0-only
// What the operator asked for by command, kept so that a daemon that comes back knows it:
// /run/ftctl/NAME.state. It does not outlive a reboot; /etc/ftctl/ftctl.json does.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "daemon/config.h"
#include "daemon/devices.h"
#include "util/result.h"

namespace ftctl {

struct SavedState {
    std::map<std::string, AttachOptions> devices;
    std::vector<TunnelDecl> tunnels;
    bool track = true;
};

std::string state_path(const std::string &instance);
/// Nothing saved, or nothing usable (said in the log): an empty state.
SavedState load_state(const std::string &instance);
/// Replaces the file at once; an empty state removes it.
Status save_state(const std::string &instance, const SavedState &state);

} // namespace ftctl
