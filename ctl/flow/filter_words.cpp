// SPDX-License-Identifier: GPL-2.0-only
#include "flow/filter_rule.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "util/suggest.h"

namespace ftctl {

namespace {

using nlohmann::json;

constexpr const char *kHint =
    "[dev D] [src A/n] [dst A/n] [proto P] [sport N[-M]] [dport N[-M]] [inner] accept|drop "
    "[comment TEXT] [id N]";

tl::unexpected<Error> usage(const std::string &what, const std::string &why, const std::string &hint = kHint)
{
    return fail(what, why, hint, Code::usage);
}

std::string quoted(const std::string &word)
{
    return "'" + word.substr(0, 40) + "'";
}

template <typename T>
bool parse_number(std::string_view text, T &to)
{
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), to);
    return !text.empty() && ec == std::errc{} && end == text.data() + text.size();
}

std::optional<PortRange> parse_ports(const std::string &text)
{
    const auto dash = text.find('-');
    PortRange range;
    if (!parse_number(std::string_view(text).substr(0, dash), range.first))
        return std::nullopt;
    range.last = range.first;
    if (dash != std::string::npos && !parse_number(std::string_view(text).substr(dash + 1), range.last))
        return std::nullopt;
    return range.last < range.first ? std::nullopt : std::optional(range);
}

/// Without the bits behind the prefix length, so that equal prefixes are equal.
std::optional<Prefix> parse_prefix(const std::string &text)
{
    auto prefix = Prefix::parse(text);
    if (!prefix || !prefix->addr)
        return std::nullopt;
    for (std::size_t i = 0; i < prefix->addr.size(); i++) {
        const int keep = std::clamp(static_cast<int>(prefix->len) - static_cast<int>(8 * i), 0, 8);
        prefix->addr.bytes.at(i) &= static_cast<std::uint8_t>(0xff00 >> keep);
    }
    return prefix;
}

/// A name the kernel would take for a device (dev_valid_name()).
bool device_name(const std::string &name)
{
    return !name.empty() && name.size() < FTCTL_FILTER_NAME && name != "." && name != ".." &&
           std::none_of(name.begin(), name.end(),
                        [](unsigned char c) { return c == '/' || c == ':' || c <= ' ' || c == 0x7f; });
}

/// The value of a word.
Status set_value(FilterRule &rule, const std::string &word, const std::string &value, const std::string &what)
{
    const auto bad = [&](const std::string &why, const std::string &hint) {
        return usage(what, word + " " + quoted(value) + " " + why, hint);
    };
    if (word == "src" || word == "dst") {
        const auto prefix = parse_prefix(value);
        if (!prefix)
            return bad("is neither an address nor a prefix", "for example 192.0.2.0/24");
        (word == "src" ? rule.src : rule.dst) = prefix;
    } else if (word == "sport" || word == "dport") {
        const auto ports = parse_ports(value);
        if (!ports)
            return bad("is neither a port nor a range", "for example 53 or 1024-65535");
        (word == "sport" ? rule.sport : rule.dport) = ports;
    } else if (word == "proto") {
        rule.proto = parse_proto(value);
        if (!rule.proto)
            return bad("is no protocol", "tcp, udp, gre, icmp or a number up to 255");
    } else if (word == "dev") {
        if (!device_name(value))
            return bad("is no device name", "1 to 15 characters without space, '/' and ':'");
        rule.dev = value;
    } else if (word == "id") {
        if (!parse_number(value, rule.id) || rule.id == 0 || rule.id > kMaxFilterId)
            return bad("is no id", "a number from 1 to 2147483647");
    } else {
        if (value.size() >= FTCTL_FILTER_COMMENT ||
            std::any_of(value.begin(), value.end(),
                        [](unsigned char c) { return c < ' ' || c == 0x7f || c == '"'; }))
            return bad("is too long or has a quote or a control character in it", "at most 63 bytes");
        rule.comment = value;
    }
    return {};
}

/// "a \"b c\" d # e" to words.
Result<std::vector<std::string>> split(const std::string &line, const std::string &what)
{
    std::vector<std::string> words;
    for (std::size_t i = 0; i < line.size();) {
        if (std::strchr(" \t\r", line[i]) != nullptr) {
            i++;
            continue;
        }
        if (line[i] == '#')
            break;
        if (line[i] == '"') {
            const auto end = line.find('"', i + 1);
            if (end == std::string::npos)
                return usage(what, "the quote before " + quoted(line.substr(i + 1)) + " is not closed");
            words.push_back(line.substr(i + 1, end - i - 1));
            i = end + 1;
            continue;
        }
        const auto end = std::min(line.find_first_of(" \t\r", i), line.size());
        words.push_back(line.substr(i, end - i));
        i = end;
    }
    return words;
}

} // namespace

const std::vector<std::string> &filter_rule_words()
{
    static const std::vector<std::string> words{"dev",   "src",    "dst",  "proto",   "sport", "dport",
                                                "inner", "accept", "drop", "comment", "id"};
    return words;
}

Result<FilterRule> parse_filter_rule(const std::vector<std::string> &words, const std::string &what)
{
    FilterRule rule;
    std::vector<std::string> seen;
    bool action = false;
    const auto &known = filter_rule_words();
    for (std::size_t i = 0; i < words.size(); i++) {
        const std::string &word = words[i];
        if (std::find(known.begin(), known.end(), word) == known.end())
            return usage(what, "unknown word " + quoted(word) + did_you_mean(word, known));
        if (std::find(seen.begin(), seen.end(), word) != seen.end())
            return usage(what, quoted(word) + " is given twice");
        seen.push_back(word);
        if (word == "accept" || word == "drop") {
            if (action)
                return usage(what, "both 'accept' and 'drop'");
            action = true;
            rule.drop = word == "drop";
        } else if (word == "inner") {
            rule.inner = true;
        } else if (++i == words.size()) {
            return usage(what, quoted(word) + " needs a value");
        } else if (auto done = set_value(rule, word, words[i], what); !done) {
            return tl::unexpected(done.error());
        }
    }
    if (!action)
        return usage(what, "neither 'accept' nor 'drop'");
    if (rule.src && rule.dst && rule.src->addr.family != rule.dst->addr.family)
        return usage(what, "src " + quoted(rule.src->str()) + " and dst " + quoted(rule.dst->str()) +
                               " are of different families");
    return rule;
}

Result<std::optional<FilterRule>> parse_filter_line(const std::string &line, const std::string &what)
{
    const auto words = split(line, what);
    if (!words)
        return tl::unexpected(words.error());
    if (words->empty())
        return std::optional<FilterRule>();
    auto rule = parse_filter_rule(*words, what);
    if (!rule)
        return tl::unexpected(rule.error());
    return std::optional(std::move(*rule));
}

Result<FilterRule> parse_filter_json(const json &object, const std::string &what)
{
    if (!object.is_object())
        return usage(what, "a rule is an object ({...})");
    std::vector<std::string> words;
    for (const auto &[key, value] : object.items()) {
        if (value.is_null() || key == "packets" || key == "bytes")
            continue;
        if (key == "action" && value.is_string()) {
            words.push_back(value.get<std::string>());
        } else if (key == "inner" && value.is_boolean()) {
            if (value.get<bool>())
                words.emplace_back("inner");
        } else if (key == "action" || key == "inner" || key == "accept" || key == "drop") {
            return usage(what, "the value of " + quoted(key) + " is of the wrong kind",
                         R"("action": "accept" or "drop", "inner": true or false)");
        } else if (value.is_string() || value.is_number_integer()) {
            words.push_back(key);
            words.push_back(value.is_string() ? value.get<std::string>() : value.dump());
        } else {
            return usage(what, "the value of " + quoted(key) + " is neither text nor a number");
        }
    }
    return parse_filter_rule(words, what);
}

} // namespace ftctl
