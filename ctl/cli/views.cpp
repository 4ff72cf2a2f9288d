// SPDX-License-Identifier: GPL-2.0-only
#include "cli/views.h"

#include <algorithm>
#include <ostream>
#include <string>

#include <fmt/format.h>

#include "bpf/datapath.h"
#include "cli/render.h"

namespace ftctl {

namespace {

using nlohmann::json;

/// What reasons.def says about a name; "mangled:ttl" is about "mangled".
std::string help_of(const std::string &name)
{
    const auto base = name.substr(0, name.find(':'));
    for (unsigned id = 1; id < 256; id++)
        if (base == reason_name(id))
            return reason_help(id);
    return "";
}

/// {"name": N, ...} to rows, largest first; zeros are left out.
json reason_rows(const json &counts, const json &total)
{
    json rows = json::array();
    if (!counts.is_object())
        return rows;
    const auto all = total.is_number() ? total.get<double>() : 0;
    for (const auto &[name, n] : counts.items())
        if (n.is_number() && n.get<double>() > 0)
            rows.push_back({{"name", name},
                            {"count", n},
                            {"share", all > 0 ? fmt::format("{:.1f}%", 100 * n.get<double>() / all) : "-"},
                            {"help", help_of(name)}});
    std::stable_sort(rows.begin(), rows.end(), [](const json &a, const json &b) {
        return a["count"].get<double>() > b["count"].get<double>();
    });
    return rows;
}

void view_notes(std::ostream &out, const json &data)
{
    const auto &notes = value_at(data, "/notes");
    if (notes.is_array())
        for (const auto &note : notes)
            out << "note: " << plain(note) << '\n';
}

std::string percent_of(const json &part, const json &whole)
{
    if (!part.is_number() || !whole.is_number() || whole.get<double>() <= 0)
        return "-";
    return fmt::format("{:.1f}%", 100 * part.get<double>() / whole.get<double>());
}

std::string yes_or_nothing(const json &value)
{
    return value == true ? "yes" : "-";
}

std::string running(const json &value)
{
    return value == true ? "running" : "not running";
}

} // namespace

void view_attach(std::ostream &out, const json &data, bool colour)
{
    static const std::vector<Column> columns{
        {"DEVICE", "/name"}, {"HOOK", "/hook"}, {"CHANGED", "/changed", yes_no}, {"WHY", "/why"}};
    const auto &devices = value_at(data, "/devices");
    if (devices.is_array() && !devices.empty())
        render_table(out, columns, devices, colour);
    view_notes(out, data);
}

void view_detach(std::ostream &out, const json &data, bool colour)
{
    static const std::vector<Column> columns{{"DEVICE", "/name"}, {"DETACHED", "/changed", yes_no}};
    const auto &devices = value_at(data, "/devices");
    if (devices.is_array() && !devices.empty())
        render_table(out, columns, devices, colour);
    view_notes(out, data);
}

void view_status(std::ostream &out, const json &data, bool colour)
{
    static const std::vector<Field> fields{
        {"instance", "/instance"},
        {"daemon", "/daemon/running", running, paint_state},
        {"version", "/daemon/version"},
        {"pid", "/daemon/pid", number},
        {"up", "/daemon/uptime_s", span},
        {"heartbeat", "/heartbeat/age_s", span},
        {"fast path", "/fast_path"},
        {"tracking", "/track"},
        {"flows live", "/flows/live", number},
        {"flows pending", "/flows/pending", number},
        {"flows max", "/flows/max", number},
        {"flow inserts refused (full)", "/flows/insert_full", number},
        {"conntrack events", "/conntrack/events", number},
        {"conntrack overruns", "/conntrack/overruns", number},
        {"conntrack resyncs", "/conntrack/resyncs", number},
    };
    static const std::vector<Column> columns{{"DEVICE", "/name"},
                                             {"INDEX", "/index", number, true},
                                             {"HOOK", "/hook"},
                                             {"MODE", "/mode", plain, false, true},
                                             {"RPF", "/rpf", plain, false, true},
                                             {"FOR", "/uppers", names, false, true},
                                             {"WHY", "/why", plain, false, true}};
    render_record(out, fields, data, colour);
    out << '\n';
    const auto &devices = value_at(data, "/devices");
    if (devices.is_array() && !devices.empty())
        render_table(out, columns, devices, colour);
    else
        out << "no device is attached\n";
    view_notes(out, data);
}

void view_stats(std::ostream &out, const json &data, bool colour)
{
    static const std::vector<Column> reasons{{"REASON", "/name"},
                                             {"PACKETS", "/count", number, true},
                                             {"SHARE", "/share", plain, true},
                                             {"MEANING", "/help"}};
    static const std::vector<Column> refusals{
        {"REFUSED BECAUSE", "/name"}, {"CONNECTIONS", "/count", number, true}, {"MEANING", "/help"}};
    static const std::vector<Field> totals{{"flows live", "/flows/live", number},
                                           {"flows pending", "/flows/pending", number},
                                           {"flows max", "/flows/max", number},
                                           {"inserts refused (full)", "/flows/insert_full", number},
                                           {"conntrack events", "/conntrack/events", number},
                                           {"conntrack overruns", "/conntrack/overruns", number},
                                           {"conntrack resyncs", "/conntrack/resyncs", number}};
    const auto &devices = value_at(data, "/devices");
    for (const auto &d : devices) {
        const auto &rx = value_at(d, "/rx_packets");
        const auto &fast = value_at(d, "/fast_packets");
        out << fmt::format("{} ({}): {} packets in, {} fast ({}), {} bytes fast, {} not sent\n",
                           plain(value_at(d, "/name")), plain(value_at(d, "/hook")), number(rx), number(fast),
                           percent_of(fast, rx), amount(value_at(d, "/fast_bytes")),
                           number(value_at(d, "/tx_failed")));
        const auto rows = reason_rows(value_at(d, "/reasons"), rx);
        if (!rows.empty())
            render_table(out, reasons, rows, colour);
        out << '\n';
    }
    if (devices.empty())
        out << "no device is attached\n\n";
    const auto refused = reason_rows(value_at(data, "/refusals"), nullptr);
    if (!refused.empty()) {
        render_table(out, refusals, refused, colour);
        out << '\n';
    }
    render_record(out, totals, data, colour);
}

void view_explain(std::ostream &out, const json &data, bool colour)
{
    static const std::vector<Field> fields{{"verdict", "/verdict", plain, paint_state},
                                           {"reason", "/reason"},
                                           {"which means", "/help"},
                                           {"device", "/dev"},
                                           {"hook", "/hook"},
                                           {"leaves as", "/rewrite", endpoints},
                                           {"connection", "/connection/state", plain, paint_state},
                                           {"because", "/connection/reason"}};
    render_record(out, fields, data, colour);
    const auto &lines = value_at(data, "/text");
    if (lines.is_array())
        for (const auto &line : lines)
            out << "  " << plain(line) << '\n';
}

void view_tunnels(std::ostream &out, const json &data, bool colour)
{
    static const std::vector<Column> columns{
        {"NAME", "/name"},     {"MODE", "/mode"}, {"LOCAL", "/local"}, {"REMOTE", "/remote"},
        {"TTL", "/ttl"},       {"TOS", "/tos"},   {"DEV", "/dev"},     {"MTU", "/mtu", number, true},
        {"DRIVER", "/driver"},
    };
    render_table(out, columns, data.is_array() ? data : json::array(), colour);
}

void view_filter(std::ostream &out, const json &data, bool colour)
{
    static const std::vector<Column> columns{{"ID", "/id", number, true},
                                             {"ACTION", "/action"},
                                             {"DEV", "/dev", plain, false, true},
                                             {"SRC", "/src", plain, false, true},
                                             {"DST", "/dst", plain, false, true},
                                             {"PROTO", "/proto", plain, false, true},
                                             {"SPORT", "/sport", plain, false, true},
                                             {"DPORT", "/dport", plain, false, true},
                                             {"INNER", "/inner", yes_or_nothing, false, true},
                                             {"PACKETS", "/packets", number, true},
                                             {"BYTES", "/bytes", number, true},
                                             {"COMMENT", "/comment", plain, false, true}};
    render_table(out, columns, data.is_array() ? data : json::array(), colour);
}

void view_filter_load(std::ostream &out, const json &data, bool /*colour*/)
{
    out << number(value_at(data, "/rules")) << " rules\n";
}

void view_done(std::ostream & /*out*/, const json & /*data*/, bool /*colour*/) {}

void view_doctor(std::ostream &out, const json &data, bool colour)
{
    static const std::vector<Column> columns{
        {"RESULT", "/result", plain, false, false, paint_state}, {"CHECK", "/name"}, {"FOUND", "/detail"}};
    const auto section = [&](const std::string &title, const json &probes) {
        if (!probes.is_array())
            return;
        json rows = json::array();
        for (const auto &p : probes) {
            json row = p;
            const bool ok = value_at(p, "/ok") == true;
            row["result"] = ok ? "PASS" : value_at(p, "/required") == true ? "FAIL" : "WARN";
            rows.push_back(std::move(row));
        }
        out << title << '\n';
        render_table(out, columns, rows, colour);
        for (const auto &p : rows)
            if (p["result"] != "PASS" && !plain(value_at(p, "/hint")).empty() &&
                !value_at(p, "/hint").is_null())
                out << "hint: " << plain(p["name"]) << ": " << plain(p["hint"]) << '\n';
        out << '\n';
    };
    section("kernel", value_at(data, "/kernel"));
    for (const auto &device : value_at(data, "/devices"))
        section("device " + plain(value_at(device, "/name")), value_at(device, "/checks"));
    view_notes(out, data);
}

void view_config(std::ostream &out, const json &data, bool /*colour*/)
{
    out << plain(value_at(data, "/file")) << ": ok, " << number(value_at(data, "/devices")) << " devices, "
        << number(value_at(data, "/tunnels")) << " tunnels, " << number(value_at(data, "/policy"))
        << " policy entries\n";
}

} // namespace ftctl
