// SPDX-License-Identifier: GPL-2.0-only
#include "cli/views.h"

#include <ostream>
#include <string_view>

#include <fmt/format.h>

#include "cli/render.h"

namespace ftctl {

namespace {

using nlohmann::json;

/// "eth0/xdp": the way in and the hook that takes packets there.
std::string way_in(const json &dir)
{
    const auto name = plain(value_at(dir, "/iif"));
    const auto hook = plain(value_at(dir, "/hook"));
    if (name.empty())
        return "-";
    return hook == "none" || hook == "-" ? name : name + "/" + hook;
}

std::string way_out(const json &name)
{
    const auto text = plain(name);
    return text.empty() ? "-" : text;
}

/// "-vlan 10" is taken off, "+ipip A>B" is put on; in the order of the headers.
std::string encapsulations(const json &dir)
{
    std::string text;
    const auto add = [&](const char *sign, const json &side) {
        const auto word = [&](const std::string &what) {
            text += (text.empty() ? "" : " ") + std::string(sign) + what;
        };
        if (const auto &tags = value_at(side, "/vlan"); tags.is_array())
            for (const auto &tag : tags)
                word(fmt::format("{} {}", value_at(tag, "/proto") == "802.1ad" ? "svlan" : "vlan",
                                 number(value_at(tag, "/id"))));
        if (const auto &pppoe = value_at(side, "/pppoe"); pppoe.is_object())
            word(fmt::format("pppoe {}", number(value_at(pppoe, "/session"))));
        if (const auto &t = value_at(side, "/tunnel"); t.is_object())
            word(fmt::format("{} {}>{}", plain(value_at(t, "/type")), plain(value_at(t, "/src")),
                             plain(value_at(t, "/dst"))));
    };
    add("-", value_at(dir, "/match"));
    add("+", value_at(dir, "/push"));
    return text.empty() ? "-" : text;
}

/// Only what differs from the packet as it arrived.
std::string rewritten(const json &dir)
{
    const auto &match = value_at(dir, "/match");
    const auto &rewrite = value_at(dir, "/rewrite");
    if (!match.is_object() || !rewrite.is_object())
        return "-";
    for (const auto *key : {"/src", "/sport", "/dst", "/dport"})
        if (value_at(match, key) != value_at(rewrite, key))
            return endpoints(rewrite);
    return "-";
}

} // namespace

json direction_rows(const json &flow)
{
    json rows = json::array();
    const auto state = plain(value_at(flow, "/state"));
    for (const auto *side : {"/orig", "/reply"}) {
        const auto &dir = value_at(flow, side);
        json row = dir.is_object() ? dir : json::object();
        const bool live = value_at(dir, "/live") == true;
        row["state"] = live ? "live" : state == "live" ? "pending" : state;
        row["proto"] = value_at(flow, "/l4proto");
        row["age_s"] = value_at(flow, "/age_s");
        row["reason"] = value_at(flow, "/reason");
        row["id"] = value_at(flow, "/id");
        rows.push_back(std::move(row));
    }
    return rows;
}

void view_flows(std::ostream &out, const json &data, bool colour)
{
    static const std::vector<Column> columns{
        {"STATE", "/state", plain, false, false, paint_state},
        {"PROTO", "/proto"},
        {"PACKET", "/match", endpoints},
        {"LEAVES AS", "", rewritten, false, true},
        {"IN", "", way_in},
        {"OUT", "/oif", way_out},
        {"ENCAP", "", encapsulations, false, true},
        {"PACKETS", "/packets", amount, true},
        {"BYTES", "/bytes", amount, true},
        {"IDLE", "/idle_s", span, true},
        {"AGE", "/age_s", span, true},
        {"REASON", "/reason", plain, false, true},
    };
    json rows = json::array();
    if (data.is_array())
        for (const auto &flow : data)
            for (auto &row : direction_rows(flow))
                rows.push_back(std::move(row));
    render_table(out, columns, rows, colour);
}

void FlowPrinter::add(json flow)
{
    constexpr std::size_t kTable = 4096;
    if (output_.format == Format::text) {
        kept_.push_back(std::move(flow));
        if (kept_.size() < kTable)
            return;
        view_flows(out_, kept_, output_.colour);
        kept_ = json::array();
    } else {
        // an array of one, without its brackets
        kept_ = json::array({std::move(flow)});
        const bool pretty = output_.format == Format::pretty;
        const auto text = kept_.dump(pretty ? 2 : -1, ' ', false, json::error_handler_t::replace);
        out_ << (any_ ? "," : "[") << std::string_view(text).substr(1, text.size() - (pretty ? 3 : 2));
    }
    any_ = true;
}

void FlowPrinter::end()
{
    if (output_.format != Format::text)
        out_ << (!any_ ? "[]\n" : output_.format == Format::pretty ? "\n]\n" : "]\n");
    else if (!any_ || !kept_.empty())
        view_flows(out_, kept_, output_.colour);
}

void view_count(std::ostream &out, const json &data, bool /*colour*/)
{
    out << number(value_at(data, "/count")) << '\n';
}

void view_flush(std::ostream &out, const json &data, bool /*colour*/)
{
    out << number(value_at(data, "/flushed")) << " flows went back to the stack\n";
}

} // namespace ftctl
