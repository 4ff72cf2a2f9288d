// SPDX-License-Identifier: GPL-2.0-only
#include "cli/render.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ostream>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

namespace ftctl {

namespace {

using nlohmann::json;

/// Characters, not bytes: continuation bytes of UTF-8 take no place.
std::size_t width(const std::string &text)
{
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string padded(const std::string &text, std::size_t to, bool right)
{
    const std::string fill(to - std::min(to, width(text)), ' ');
    return right ? fill + text : text + fill;
}

std::string painted(const std::string &text, const std::string &cell, Paint paint, bool colour)
{
    const char *code = colour && paint ? paint(cell) : nullptr;
    return code ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
}

std::string endpoint(const json &v, const char *addr_key, const char *port_key)
{
    const auto addr = plain(value_at(v, std::string("/") + addr_key));
    const auto &port = value_at(v, std::string("/") + port_key);
    const bool v6 = addr.find(':') != std::string::npos;
    return fmt::format("{}{}{}:{}", v6 ? "[" : "", addr, v6 ? "]" : "", plain(port));
}

} // namespace

std::string printable(const std::string &text)
{
    std::string out = text;
    for (char &c : out)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            c = '?';
    return out;
}

std::string plain(const json &value)
{
    if (value.is_null())
        return "-";
    if (value.is_string())
        return printable(value.get<std::string>());
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string names(const json &value)
{
    std::string text;
    if (value.is_array())
        for (const auto &name : value)
            text += (text.empty() ? "" : " ") + plain(name);
    return text.empty() ? "-" : text;
}

std::string number(const json &value)
{
    return value.is_number() ? value.dump() : "-";
}

std::string amount(const json &value)
{
    if (!value.is_number())
        return "-";
    auto n = value.get<double>();
    constexpr std::array<const char *, 7> units{"", "k", "M", "G", "T", "P", "E"};
    std::size_t unit = 0;
    while (n >= 999.5 && unit + 1 < units.size()) {
        n /= 1000;
        unit++;
    }
    if (unit == 0)
        return fmt::format("{:.0f}", n);
    return fmt::format("{:.{}f}{}", n, n < 9.995 ? 2 : n < 99.95 ? 1 : 0, units.at(unit));
}

std::string span(const json &value)
{
    if (!value.is_number())
        return "-";
    const auto seconds = std::clamp(value.get<double>(), 0.0, 1e12);
    if (seconds < 9.95)
        return fmt::format("{:.1f}s", seconds);
    const auto s = std::llround(seconds);
    if (s < 60)
        return fmt::format("{}s", s);
    if (s < 3600)
        return fmt::format("{}m{:02}s", s / 60, s % 60);
    if (s < 86400)
        return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
    return fmt::format("{}d{:02}h", s / 86400, s % 86400 / 3600);
}

std::string yes_no(const json &value)
{
    return value.is_boolean() ? (value.get<bool>() ? "yes" : "no") : "-";
}

std::string endpoints(const json &value)
{
    if (!value.is_object())
        return "-";
    return endpoint(value, "src", "sport") + " -> " + endpoint(value, "dst", "dport");
}

const char *paint_state(const std::string &cell)
{
    for (const auto *word : {"live", "running", "PASS", "ok", "fast"})
        if (cell == word)
            return "32";
    for (const auto *word : {"pending", "stale", "closing", "WARN", "stack"})
        if (cell == word)
            return "33";
    for (const auto *word : {"refused", "not running", "FAIL", "no", "drop"})
        if (cell == word)
            return "31";
    return nullptr;
}

const json &value_at(const json &object, const std::string &pointer)
{
    static const json null;
    const json::json_pointer p(pointer);
    return object.contains(p) ? object.at(p) : null;
}

void render_table(std::ostream &out, const std::vector<Column> &columns, const json &rows, bool colour)
{
    struct Laid {
        const Column *column;
        std::vector<std::string> cells;
        std::size_t width;
    };
    std::vector<Laid> laid;
    for (const auto &column : columns) {
        Laid l{&column, {}, width(column.title)};
        bool says = !column.optional;
        for (const auto &row : rows) {
            l.cells.push_back(column.format(value_at(row, column.pointer)));
            l.width = std::max(l.width, width(l.cells.back()));
            says = says || (l.cells.back() != "-" && !l.cells.back().empty());
        }
        if (says)
            laid.push_back(std::move(l));
    }
    // The last column is not padded: no blanks at the end of a line.
    const auto line = [&](auto &&cell) {
        for (std::size_t i = 0; i < laid.size(); i++) {
            const auto &l = laid[i];
            const std::string text = cell(l);
            const bool last = i + 1 == laid.size();
            const auto shown = last && !l.column->right ? text : padded(text, l.width, l.column->right);
            out << (i > 0 ? "  " : "") << painted(shown, text, l.column->paint, colour);
        }
        out << '\n';
    };
    line([](const Laid &l) { return l.column->title; });
    for (std::size_t r = 0; r < rows.size(); r++)
        line([r](const Laid &l) { return l.cells[r]; });
}

void render_record(std::ostream &out, const std::vector<Field> &fields, const json &record, bool colour)
{
    std::size_t widest = 0;
    for (const auto &f : fields)
        if (!value_at(record, f.pointer).is_null())
            widest = std::max(widest, width(f.title));
    for (const auto &f : fields) {
        const auto &value = value_at(record, f.pointer);
        if (value.is_null())
            continue;
        const auto text = f.format(value);
        out << padded(f.title + ":", widest + 2, false) << painted(text, text, f.paint, colour) << '\n';
    }
}

bool want_colour(int fd)
{
    const char *no = std::getenv("NO_COLOR");
    const char *term = std::getenv("TERM");
    return isatty(fd) != 0 && !(no && *no) && !(term && std::string_view(term) == "dumb");
}

void emit(std::ostream &out, const Output &output, const json &data, View view)
{
    if (output.format == Format::text)
        view(out, data, output.colour);
    else
        out << data.dump(output.format == Format::pretty ? 2 : -1, ' ', false, json::error_handler_t::replace)
            << '\n';
}

void print_error(std::ostream &err, const Error &error)
{
    err << "ftctl: " << printable(error.what) << ": " << printable(error.why) << '\n';
    if (!error.hint.empty())
        err << "hint: " << printable(error.hint) << '\n';
}

} // namespace ftctl
