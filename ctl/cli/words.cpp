// SPDX-License-Identifier: GPL-2.0-only
#include "cli/words.h"

#include <algorithm>
#include <charconv>

#include "daemon/config.h"
#include "daemon/flow_filter.h"
#include "util/addr.h"
#include "util/suggest.h"

namespace ftctl {

namespace {

tl::unexpected<Error> usage(const std::string &what, const std::string &why, const std::string &hint = {})
{
    return fail(what, why, hint, Code::usage);
}

nlohmann::json value_json(const std::string &text)
{
    std::uint32_t n = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (!text.empty() && ec == std::errc{} && end == text.data() + text.size())
        return n;
    return text;
}

} // namespace

Result<nlohmann::json> parse_pairs(const std::string &what, const Words &words, const Words &keys)
{
    auto out = nlohmann::json::object();
    const std::string hint = "words: " + join_words(keys);
    for (std::size_t i = 0; i < words.size(); i += 2) {
        const auto &key = words[i];
        if (std::find(keys.begin(), keys.end(), key) == keys.end())
            return usage(what, "unknown word '" + key + "'" + did_you_mean(key, keys), hint);
        if (i + 1 == words.size())
            return usage(what, "'" + key + "' needs a value", hint);
        if (out.contains(key))
            return usage(what, "'" + key + "' is given twice");
        out[key] = value_json(words[i + 1]);
    }
    return out;
}

Result<nlohmann::json> parse_filter(const std::string &what, const Words &words)
{
    auto filter = parse_pairs(what, words, filter_words());
    if (!filter)
        return filter;
    // A device may be called "7"; a port may not be called "http".
    for (const auto *key : {"dev", "state", "tunnel", "src", "dst", "proto"})
        if (const auto it = filter->find(key); it != filter->end() && it->is_number())
            *it = it->dump();
    if (const auto checked = parse_flow_filter(*filter); !checked)
        return usage(what, checked.error().why, checked.error().hint);
    return filter;
}

Result<Endpoint> parse_endpoint(const std::string &what, const std::string &text)
{
    const char *hint = "write 192.0.2.2:80 or [2001:db8::2]:80";
    std::string addr = text;
    std::string port;
    bool has_port = false;
    if (text.starts_with('[')) {
        const auto close = text.find(']');
        if (close == std::string::npos)
            return usage(what, "'" + text + "' has no closing ']'", hint);
        addr = text.substr(1, close - 1);
        if (close + 1 < text.size()) {
            if (text[close + 1] != ':')
                return usage(what, "'" + text + "' has something other than a port after ']'", hint);
            port = text.substr(close + 2);
            has_port = true;
        }
    } else if (std::count(text.begin(), text.end(), ':') == 1) {
        // With more colons it is an IPv6 address without a port.
        const auto colon = text.find(':');
        addr = text.substr(0, colon);
        port = text.substr(colon + 1);
        has_port = true;
    }
    if (!IpAddr::parse(addr))
        return usage(what, "'" + text + "': '" + addr + "' is no address", hint);
    Endpoint out{addr, 0};
    if (has_port) {
        const auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), out.port);
        if (port.empty() || ec != std::errc{} || end != port.data() + port.size() || out.port > 65535)
            return usage(what, "'" + text + "': '" + port + "' is no port", "a number from 0 to 65535");
    }
    return out;
}

Result<nlohmann::json> parse_explain(const Words &words)
{
    const std::string what = "explain";
    const char *hint = "explain PROTO SRC[:PORT] DST[:PORT] [dev D], for example "
                       "explain tcp 192.0.2.2:40000 198.51.100.2:80 dev eth0";
    if (words.size() < 3)
        return usage(what, words.empty() ? "nothing to explain" : "'" + words.back() + "' is not all", hint);
    if (!parse_proto(words[0]))
        return usage(
            what, "'" + words[0] + "' is no protocol" + did_you_mean(words[0], {"tcp", "udp", "icmp", "gre"}),
            hint);
    const auto src = parse_endpoint(what, words[1]);
    if (!src)
        return tl::unexpected(src.error());
    const auto dst = parse_endpoint(what, words[2]);
    if (!dst)
        return tl::unexpected(dst.error());
    if (IpAddr::parse(src->addr)->family != IpAddr::parse(dst->addr)->family)
        return usage(what, "'" + words[1] + "' and '" + words[2] + "' are of different families", hint);
    auto rest = parse_pairs(what, Words(words.begin() + 3, words.end()), {"dev"});
    if (!rest)
        return rest;
    nlohmann::json request{{"proto", words[0]}, {"src", src->addr},   {"sport", src->port},
                           {"dst", dst->addr},  {"dport", dst->port}, {"dev", nullptr}};
    if (const auto dev = rest->find("dev"); dev != rest->end())
        request["dev"] = dev->is_string() ? *dev : nlohmann::json(dev->dump());
    return request;
}

Result<nlohmann::json> parse_tunnel_add(const Words &words)
{
    const std::string what = "tunnel add";
    const char *hint = "tunnel add NAME mode ipip local A remote A";
    if (words.empty())
        return usage(what, "no name", hint);
    auto request = parse_pairs(what, Words(words.begin() + 1, words.end()),
                               {"mode", "local", "remote", "ttl", "tos", "encaplimit", "flowlabel", "dev"});
    if (!request)
        return request;
    (*request)["name"] = words[0];
    if (const auto dev = request->find("dev"); dev != request->end() && dev->is_number())
        *dev = dev->dump();
    if (const auto checked = parse_tunnel(*request); !checked)
        return usage(what, checked.error().why, checked.error().hint.empty() ? hint : checked.error().hint);
    return request;
}

} // namespace ftctl
