// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/flow_filter.h"

#include <algorithm>

#include "util/suggest.h"

namespace ftctl {

namespace {

using nlohmann::json;

tl::unexpected<Error> bad(const std::string &why, const std::string &hint = {})
{
    return fail("filter", why, hint, Code::usage);
}

/// Value of a word as text and, where it is one, as number.
struct Value {
    std::string text;
    std::optional<std::int64_t> number;
};

std::optional<Value> value_of(const json &v)
{
    if (v.is_string())
        return Value{v.get<std::string>(), std::nullopt};
    if (v.is_number_unsigned() && v.get<std::uint64_t>() > INT64_MAX)
        return std::nullopt;
    if (v.is_number_integer())
        return Value{v.dump(), v.get<std::int64_t>()};
    return std::nullopt;
}

Status set_proto(FlowFilter &f, const Value &v)
{
    f.proto = parse_proto(v.text);
    if (!f.proto)
        return bad("proto '" + v.text + "' is no protocol", "tcp, udp, gre, icmp or a number up to 255");
    return {};
}

Status set_prefix(std::optional<Prefix> &to, const char *word, const Value &v)
{
    to = Prefix::parse(v.text);
    if (!to)
        return bad(std::string(word) + " '" + v.text + "' is neither an address nor a prefix",
                   "for example 192.0.2.2 or 192.0.2.0/24");
    return {};
}

Status set_port(std::optional<std::uint16_t> &to, const char *word, const Value &v)
{
    if (!v.number || *v.number < 0 || *v.number > 65535)
        return bad(std::string(word) + " '" + v.text + "' is no port", "a number from 0 to 65535");
    to = static_cast<std::uint16_t>(*v.number);
    return {};
}

Status set_name(std::string &to, const char *word, const Value &v)
{
    // IFNAMSIZ includes the terminating zero.
    if (v.text.empty() || v.text.size() > 15)
        return bad(std::string(word) + " '" + v.text.substr(0, 32) + "' is no device name");
    to = v.text;
    return {};
}

Status set_state(FlowFilter &f, const Value &v)
{
    const auto &states = flow_states();
    if (std::find(states.begin(), states.end(), v.text) == states.end())
        return bad("unknown state '" + v.text.substr(0, 32) + "'" + did_you_mean(v.text, states),
                   "states: " + join_words(states));
    f.state = v.text;
    return {};
}

Status set_word(FlowFilter &f, const std::string &word, const Value &v)
{
    if (word == "proto")
        return set_proto(f, v);
    if (word == "src")
        return set_prefix(f.src, "src", v);
    if (word == "dst")
        return set_prefix(f.dst, "dst", v);
    if (word == "sport")
        return set_port(f.sport, "sport", v);
    if (word == "dport")
        return set_port(f.dport, "dport", v);
    if (word == "dev")
        return set_name(f.dev, "dev", v);
    if (word == "state")
        return set_state(f, v);
    return set_name(f.tunnel, "tunnel", v);
}

std::optional<IpAddr> address_at(const json &tuple, const char *key)
{
    const auto it = tuple.find(key);
    return it != tuple.end() && it->is_string() ? IpAddr::parse(it->get_ref<const std::string &>())
                                                : std::nullopt;
}

bool prefix_holds(const std::optional<Prefix> &prefix, const json &tuple, const char *key)
{
    if (!prefix)
        return true;
    const auto addr = address_at(tuple, key);
    return addr && prefix->contains(*addr);
}

bool port_holds(const std::optional<std::uint16_t> &port, const json &tuple, const char *key)
{
    return !port || tuple.value(key, -1) == *port;
}

bool tuple_holds(const json &dir, const FlowFilter &f)
{
    const auto &match = dir.at("match");
    return prefix_holds(f.src, match, "src") && prefix_holds(f.dst, match, "dst") &&
           port_holds(f.sport, match, "sport") && port_holds(f.dport, match, "dport");
}

bool dev_holds(const json &dir, const std::string &dev)
{
    return dir.at("iif") == dev || dir.at("oif") == dev;
}

bool one_tunnel_holds(const json &tunnel, const FlowFilter &f)
{
    if (!tunnel.is_object())
        return false;
    if (!f.tunnel_ends)
        return tunnel.at("type") == f.tunnel;
    const auto src = address_at(tunnel, "src");
    const auto dst = address_at(tunnel, "dst");
    const auto &[a, b] = *f.tunnel_ends;
    return (src == a && dst == b) || (src == b && dst == a);
}

bool tunnel_holds(const json &dir, const FlowFilter &f)
{
    return one_tunnel_holds(dir.at("match").at("tunnel"), f) ||
           one_tunnel_holds(dir.at("push").at("tunnel"), f);
}

} // namespace

const std::vector<std::string> &filter_words()
{
    static const std::vector<std::string> words{"proto", "src", "dst",   "sport",
                                                "dport", "dev", "state", "tunnel"};
    return words;
}

const std::vector<std::string> &flow_states()
{
    static const std::vector<std::string> states{"pending", "live", "closing", "stale", "refused"};
    return states;
}

const std::vector<std::string> &tunnel_types()
{
    static const std::vector<std::string> types{"ipip", "ip6ip6", "4in6", "6in4"};
    return types;
}

bool FlowFilter::empty() const
{
    return !proto && !src && !dst && !sport && !dport && dev.empty() && state.empty() && tunnel.empty();
}

bool FlowFilter::names_tunnel_device() const
{
    const auto &types = tunnel_types();
    return !tunnel.empty() && std::find(types.begin(), types.end(), tunnel) == types.end();
}

Result<FlowFilter> parse_flow_filter(const json &filter)
{
    FlowFilter out;
    if (filter.is_null())
        return out;
    if (!filter.is_object())
        return bad("the filter is no object");
    for (const auto &[word, value] : filter.items()) {
        const auto &words = filter_words();
        if (std::find(words.begin(), words.end(), word) == words.end())
            return bad("unknown word '" + word.substr(0, 32) + "'" + did_you_mean(word, words),
                       "words: " + join_words(words));
        const auto v = value_of(value);
        if (!v)
            return bad("the value of '" + word + "' is neither text nor a number");
        if (auto status = set_word(out, word, *v); !status)
            return tl::unexpected(status.error());
    }
    return out;
}

bool filter_matches(const json &flow, const FlowFilter &f)
{
    const auto &orig = flow.at("orig");
    const auto &reply = flow.at("reply");
    if (f.state.empty() ? flow.at("state") == "refused" : flow.at("state") != f.state)
        return false;
    if (f.proto && flow.at("l4proto") != proto_name(*f.proto))
        return false;
    if (!tuple_holds(orig, f) && !tuple_holds(reply, f))
        return false;
    if (!f.dev.empty() && !dev_holds(orig, f.dev) && !dev_holds(reply, f.dev))
        return false;
    return f.tunnel.empty() || tunnel_holds(orig, f) || tunnel_holds(reply, f);
}

} // namespace ftctl
