// SPDX-License-Identifier: GPL-2.0-only
// What commands read from requests, and how they answer (daemon/control_protocol.h).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "daemon/control_server.h"

namespace ftctl {

inline Reply failure(Error error)
{
    Reply reply;
    reply.error = std::move(error);
    return reply;
}

inline Reply usage(const std::string &what, const std::string &why)
{
    return failure({what, why, "", Code::usage, 0});
}

inline Reply answer(nlohmann::json data)
{
    Reply reply;
    reply.data = std::move(data);
    return reply;
}

/// The boolean at `name`; `otherwise` when it is something else, or nothing.
inline bool flag(const nlohmann::json &request, const char *name, bool otherwise)
{
    const auto it = request.find(name);
    return it != request.end() && it->is_boolean() ? it->get<bool>() : otherwise;
}

/// The string at `name`; `otherwise` when it is something else, or nothing.
inline std::string word(const nlohmann::json &request, const char *name, const std::string &otherwise = {})
{
    const auto it = request.find(name);
    return it != request.end() && it->is_string() ? it->get<std::string>() : otherwise;
}

/// The array of strings at `name`; none when it is something else.
inline std::optional<std::vector<std::string>> words(const nlohmann::json &request, const char *name)
{
    const auto it = request.find(name);
    if (it == request.end() || !it->is_array())
        return std::nullopt;
    std::vector<std::string> out;
    for (const nlohmann::json &text : *it) {
        if (!text.is_string())
            return std::nullopt;
        out.push_back(text.get<std::string>());
    }
    return out;
}

} // namespace ftctl
