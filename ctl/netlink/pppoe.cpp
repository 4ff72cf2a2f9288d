// SPDX-License-Identifier: GPL-2.0-only
#include "netlink/pppoe.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

#include <arpa/inet.h>

namespace ftctl {

namespace {

constexpr std::size_t kMaxText = 4U << 20; // some hundred thousand sessions

/// Printed as a number, though it stands in network order.
std::optional<std::uint16_t> session_id(const std::string &word)
{
    std::uint32_t raw = 0;
    const auto *end = word.data() + word.size();
    const auto parsed = std::from_chars(word.data(), end, raw, 16);
    if (parsed.ec != std::errc{} || parsed.ptr != end || raw == 0 || raw > 0xffff)
        return std::nullopt;
    return ntohs(static_cast<std::uint16_t>(raw));
}

} // namespace

std::vector<PppoeSession> parse_pppoe(std::string_view text)
{
    std::vector<PppoeSession> sessions;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string id;
        std::string mac;
        std::string device;
        if (!(words >> id >> mac >> device))
            continue;
        const auto number = session_id(id); // the heading has none
        const auto peer = Mac::parse(mac);
        if (number && peer)
            sessions.push_back({*number, *peer, device});
    }
    std::sort(sessions.begin(), sessions.end());
    return sessions;
}

std::vector<PppoeSession> pppoe_sessions()
{
    std::ifstream file("/proc/net/pppoe");
    std::string text;
    for (std::string line; text.size() < kMaxText && std::getline(file, line);)
        text += line + '\n';
    return parse_pppoe(text);
}

} // namespace ftctl
