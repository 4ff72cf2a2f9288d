// SPDX-License-Identifier: GPL-2.0-only
// What the commands do once their words are parsed. Each returns the exit code.
#pragma once

#include <iostream>
#include <string>
#include <vector>

#include "cli/render.h"
#include "cli/words.h"
#include "util/result.h"

namespace ftctl {

/// The global options.
struct Call {
    std::string instance = "default";
    Output output;
    std::ostream *out = &std::cout;
    std::ostream *err = &std::cerr;
};

struct AttachArgs {
    Words devices;
    std::string mode = "auto";
    std::string rpf; ///< "": as it is
    bool no_track = false;
    bool force = false;
    bool dry_run = false;
};

int cmd_attach(const Call &call, const AttachArgs &args);
int cmd_detach(const Call &call, const Words &devices, bool all);
int cmd_status(const Call &call);
int cmd_flows(const Call &call, const Words &filter, bool count);
int cmd_flush(const Call &call, const Words &filter);
int cmd_stats(const Call &call);
int cmd_explain(const Call &call, const Words &words);
int cmd_tunnel_add(const Call &call, const Words &words);
int cmd_tunnel_del(const Call &call, const std::string &name);
int cmd_tunnel_list(const Call &call);
int cmd_rpf(const Call &call, const Words &words);
int cmd_filter_add(const Call &call, const Words &words);
int cmd_filter_del(const Call &call, const Words &ids);
int cmd_filter_list(const Call &call);
int cmd_filter_flush(const Call &call);
int cmd_filter_load(const Call &call, const std::string &file);
int cmd_monitor(const Call &call);
int cmd_top(const Call &call);
int cmd_doctor(const Call &call);
int cmd_config_check(const Call &call, const std::string &file);

/// Prints an error and gives its exit code.
int report(const Call &call, const Error &error);

} // namespace ftctl
