// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/config_reader.h"

#include <algorithm>

#include "util/suggest.h"

namespace ftctl {

namespace {

std::string shown(const nlohmann::json &value)
{
    auto text = value.is_string() ? value.get<std::string>()
                                  : value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    if (text.size() > 40)
        text = text.substr(0, 40) + "...";
    return text;
}

} // namespace

bool valid_device_name(const std::string &name)
{
    if (name.empty() || name.size() > 15 || name == "." || name == "..")
        return false;
    return std::none_of(name.begin(), name.end(), [](char c) {
        return c == '/' || c == ':' || c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';
    });
}

ConfigReader::ConfigReader(const nlohmann::json &json, std::string pointer, ConfigProblem &problem)
    : json_(json), pointer_(std::move(pointer)), problem_(problem)
{
    if (!json_.is_object() && !json_.is_string())
        complain("", "'" + shown(json_) + "' is no object ({...})");
}

void ConfigReader::complain(const std::string &key, std::string why, std::string hint)
{
    if (problem_.found)
        return;
    problem_.found = true;
    problem_.pointer = key.empty() ? pointer_ : pointer_ + "/" + key;
    problem_.why = std::move(why);
    problem_.hint = std::move(hint);
}

void ConfigReader::keys(const std::vector<std::string> &known)
{
    if (!json_.is_object()) {
        complain("", "'" + shown(json_) + "' is no object ({...})");
        return;
    }
    for (const auto &[key, value] : json_.items())
        if (std::find(known.begin(), known.end(), key) == known.end())
            complain(key, "unknown key '" + key + "'" + did_you_mean(key, known),
                     "known here: " + join_words(known));
}

const nlohmann::json *ConfigReader::find(const std::string &key) const
{
    if (!json_.is_object())
        return nullptr;
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigReader::require(const std::string &key)
{
    if (find(key))
        return true;
    complain("", "'" + key + "' is missing");
    return false;
}

std::string ConfigReader::text(const std::string &key, const std::string &fallback)
{
    const auto *v = find(key);
    if (!v)
        return fallback;
    if (!v->is_string()) {
        complain(key, "'" + key + "' is no text (\"...\")");
        return fallback;
    }
    return v->get<std::string>();
}

std::int64_t ConfigReader::number(const std::string &key, std::int64_t fallback, std::int64_t min,
                                  std::int64_t max)
{
    const auto *v = find(key);
    if (!v)
        return fallback;
    const bool whole =
        v->is_number_integer() && !(v->is_number_unsigned() && v->get<std::uint64_t>() > INT64_MAX);
    const auto n = whole ? v->get<std::int64_t>() : 0;
    if (!whole || n < min || n > max) {
        complain(key, "'" + key + "' is " + shown(*v),
                 "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
        return fallback;
    }
    return n;
}

bool ConfigReader::boolean(const std::string &key, bool fallback)
{
    const auto *v = find(key);
    if (!v)
        return fallback;
    if (!v->is_boolean()) {
        complain(key, "'" + key + "' is " + shown(*v), "true or false");
        return fallback;
    }
    return v->get<bool>();
}

std::string ConfigReader::choice(const std::string &key, const std::string &fallback,
                                 const std::vector<std::string> &allowed)
{
    auto value = text(key, fallback);
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
        complain(key, "'" + key + "' is '" + value.substr(0, 40) + "'" + did_you_mean(value, allowed),
                 "one of " + join_words(allowed));
    return value;
}

std::string ConfigReader::device(const std::string &key)
{
    auto name = text(key);
    if (find(key) && !valid_device_name(name))
        complain(key, "'" + name.substr(0, 40) + "' is no device name",
                 "1 to 15 characters without space, '/' and ':'");
    return name;
}

IpAddr ConfigReader::address(const std::string &key)
{
    const auto t = text(key);
    if (t.empty())
        return {};
    const auto a = IpAddr::parse(t);
    if (!a)
        complain(key, "'" + key + "' is '" + t.substr(0, 40) + "', which is no address");
    return a.value_or(IpAddr{});
}

Prefix ConfigReader::prefix(const std::string &key)
{
    const auto t = text(key);
    if (!find(key))
        return {};
    const auto p = Prefix::parse(t);
    if (!p)
        complain(key, "'" + key + "' is '" + t.substr(0, 40) + "', which is neither an address nor a prefix",
                 "for example 192.0.2.0/24");
    return p.value_or(Prefix{});
}

void ConfigReader::object(const std::string &key, const std::function<void(ConfigReader &)> &handler)
{
    const auto *v = find(key);
    if (!v)
        return;
    ConfigReader inner(*v, pointer_ + "/" + key, problem_);
    handler(inner);
}

void ConfigReader::each(const std::string &key, const std::function<void(ConfigReader &)> &handler)
{
    const auto *v = find(key);
    if (!v)
        return;
    if (!v->is_array()) {
        complain(key, "'" + key + "' is no list ([...])");
        return;
    }
    for (std::size_t i = 0; i < v->size(); i++) {
        ConfigReader inner((*v)[i], pointer_ + "/" + key + "/" + std::to_string(i), problem_);
        handler(inner);
    }
}

} // namespace ftctl
