// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/control_protocol.h"

#include <algorithm>

namespace ftctl {

namespace {

/// No request needs more; the bound keeps every later recursion over the document shallow.
constexpr int kMaxDepth = 16;

/// Depth of brackets outside strings. Needs no valid JSON: the parser has the last word.
int nesting(std::string_view text)
{
    int depth = 0;
    int deepest = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            deepest = std::max(deepest, ++depth);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return deepest;
}

std::string text_of(const nlohmann::json &json, const char *key)
{
    const auto it = json.find(key);
    return it != json.end() && it->is_string() ? it->get<std::string>() : std::string();
}

} // namespace

std::string socket_path(const std::string &instance)
{
    return "/run/ftctl/" + instance + ".sock";
}

bool valid_instance(const std::string &name)
{
    if (name.empty() || name.size() > 64)
        return false;
    return std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
               c == '-';
    });
}

Result<nlohmann::json> parse_request(std::string_view line)
{
    const char *hint = "a request is one JSON object on a line, with a string \"cmd\"";
    if (nesting(line) > kMaxDepth)
        return fail("request", "nested too deeply", hint, Code::usage);
    auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded())
        return fail("request", "not valid JSON", hint, Code::usage);
    if (!json.is_object())
        return fail("request", "not a JSON object", hint, Code::usage);
    const auto cmd = json.find("cmd");
    if (cmd == json.end() || !cmd->is_string())
        return fail("request", "no \"cmd\"", hint, Code::usage);
    return json;
}

nlohmann::json error_json(const Error &error)
{
    return {{"what", error.what},
            {"why", error.why},
            {"hint", error.hint},
            {"code", static_cast<int>(error.code)}};
}

Error error_from_json(const nlohmann::json &json)
{
    Error error{"request", "the daemon gave no reason", {}, Code::refused, 0};
    if (!json.is_object())
        return error;
    if (auto what = text_of(json, "what"); !what.empty())
        error.what = std::move(what);
    if (auto why = text_of(json, "why"); !why.empty())
        error.why = std::move(why);
    error.hint = text_of(json, "hint");
    const auto code = json.find("code");
    if (code != json.end() && code->is_number_integer()) {
        const auto n = code->get<long long>();
        if (n >= static_cast<int>(Code::usage) && n <= static_cast<int>(Code::partial))
            error.code = static_cast<Code>(n);
    }
    return error;
}

std::string dump_line(const nlohmann::json &json)
{
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

} // namespace ftctl
