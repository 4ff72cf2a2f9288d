// SPDX-License-Identifier: GPL-2.0-only
// What each command prints as text.
#pragma once

#include <iosfwd>

#include <nlohmann/json.hpp>

#include "cli/render.h"

namespace ftctl {

void view_attach(std::ostream &out, const nlohmann::json &data, bool colour);
void view_detach(std::ostream &out, const nlohmann::json &data, bool colour);
void view_status(std::ostream &out, const nlohmann::json &data, bool colour);
/// Prints flows as they come, as view_flows() does and emit(), without keeping more than some thousand: a
/// longer table begins again with its titles.
class FlowPrinter {
  public:
    FlowPrinter(std::ostream &out, const Output &output) : out_(out), output_(output) {}
    void add(nlohmann::json flow);
    void end(); ///< after the last one

  private:
    std::ostream &out_;
    Output output_;
    nlohmann::json kept_ = nlohmann::json::array();
    bool any_ = false;
};
void view_flows(std::ostream &out, const nlohmann::json &data, bool colour);
void view_count(std::ostream &out, const nlohmann::json &data, bool colour);
void view_flush(std::ostream &out, const nlohmann::json &data, bool colour);
void view_stats(std::ostream &out, const nlohmann::json &data, bool colour);
void view_explain(std::ostream &out, const nlohmann::json &data, bool colour);
void view_tunnels(std::ostream &out, const nlohmann::json &data, bool colour);
void view_filter(std::ostream &out, const nlohmann::json &data, bool colour);
void view_filter_load(std::ostream &out, const nlohmann::json &data, bool colour);
void view_done(std::ostream &out, const nlohmann::json &data, bool colour); ///< nothing to say
void view_doctor(std::ostream &out, const nlohmann::json &data, bool colour);
void view_config(std::ostream &out, const nlohmann::json &data, bool colour);

/// Two rows a flow, one for each direction; what `top` and `flows` show.
nlohmann::json direction_rows(const nlohmann::json &flow);

} // namespace ftctl
