// SPDX-License-Identifier: GPL-2.0-only
// From an answer's data to what is printed. JSON and text come from the same data; text is
// described by tables (columns) and records (fields) of JSON pointers and formatters.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "util/result.h"

namespace ftctl {

/// Turns the value at a column's pointer into text. Null and absent values are passed as null.
using Formatter = std::string (*)(const nlohmann::json &value);

std::string plain(const nlohmann::json &value);     ///< text as it is, "-" for null
std::string names(const nlohmann::json &value);     // a list of names, with spaces between
std::string number(const nlohmann::json &value);    ///< 1234567
std::string amount(const nlohmann::json &value);    ///< 1.23M; decimal units
std::string span(const nlohmann::json &value);      ///< seconds: 0.1s, 12s, 3m04s, 2h05m, 3d04h
std::string yes_no(const nlohmann::json &value);    ///< yes, no
std::string endpoints(const nlohmann::json &value); ///< {"src", "sport", "dst", "dport"}: A:P -> A:P

/// ANSI colour of a cell (digits and semicolons), or null.
using Paint = const char *(*)(const std::string &cell);

/// By the word: green for what is well, yellow for what waits, red for what failed.
const char *paint_state(const std::string &cell);

struct Column {
    std::string title;
    std::string pointer; ///< JSON pointer into the row
    Formatter format = plain;
    bool right = false;
    bool optional = false; ///< left out where no row has anything to say
    Paint paint = nullptr;
};

struct Field {
    std::string title;
    std::string pointer;
    Formatter format = plain;
    Paint paint = nullptr;
};

/// Rows: an array of objects. Nothing but the titles when it is empty.
void render_table(std::ostream &out, const std::vector<Column> &columns, const nlohmann::json &rows,
                  bool colour);

/// "title: value" lines; fields whose value is null are left out.
void render_record(std::ostream &out, const std::vector<Field> &fields, const nlohmann::json &record,
                   bool colour);

/// Text for a terminal: control characters (a device's name may hold them) become '?'.
std::string printable(const std::string &text);

/// The value at a pointer, null where there is none.
const nlohmann::json &value_at(const nlohmann::json &json, const std::string &pointer);

enum class Format { text, json, pretty };

struct Output {
    Format format = Format::text;
    bool colour = false;
};

/// Colour goes to a terminal only, and not with NO_COLOR set or a dumb terminal.
bool want_colour(int fd);

/// A command's text.
using View = void (*)(std::ostream &out, const nlohmann::json &data, bool colour);

/// The one place where an answer is printed.
void emit(std::ostream &out, const Output &output, const nlohmann::json &data, View view);

/// `ftctl: WHAT: WHY` and `hint: HINT`.
void print_error(std::ostream &err, const Error &error);

} // namespace ftctl
