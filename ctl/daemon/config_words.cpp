// SPDX-License-Identifier: GPL-2.0-only
// The parts of the configuration that have words of their own.
#include "daemon/config_reader.h"
#include "daemon/rpf_mode.h"

#include <charconv>

#include "daemon/flow_filter.h"

namespace ftctl {

namespace {

/// Decimal or 0x hexadecimal, the whole text.
std::optional<std::uint32_t> parse_u32(std::string_view text)
{
    int base = 10;
    if (text.starts_with("0x") || text.starts_with("0X")) {
        text.remove_prefix(2);
        base = 16;
    }
    std::uint32_t n = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n, base);
    if (ec != std::errc{} || end != text.data() + text.size())
        return std::nullopt;
    return n;
}

/// A number in a range, as text also in hexadecimal ("0xb8"); none for the word "inherit".
std::optional<std::uint32_t> number_or_inherit(ConfigReader &r, const std::string &key, std::uint32_t min,
                                               std::uint32_t max)
{
    const auto *v = r.find(key);
    if (!v || *v == "inherit")
        return std::nullopt;
    if (!v->is_string())
        return static_cast<std::uint32_t>(r.number(key, min, min, max));
    const auto text = v->get<std::string>();
    const auto n = parse_u32(text);
    if (n && *n >= min && *n <= max)
        return n;
    r.complain(key, "'" + key + "' is '" + text.substr(0, 40) + "'",
               "a number from " + std::to_string(min) + " to " + std::to_string(max) +
                   " (or 0x...), or inherit");
    return std::nullopt;
}

void read_ends(ConfigReader &r, TunnelDecl &t)
{
    const int family = outer_family(t.config.mode);
    for (const auto *key : {"local", "remote"}) {
        if (!r.require(key))
            return;
        const auto a = r.address(key);
        if (a && a.family != family)
            r.complain(key, std::string("'") + key + "' is " + a.str() + ", of the wrong family",
                       family == AF_INET ? "this mode has IPv4 outside" : "this mode has IPv6 outside");
        (key == std::string("local") ? t.config.local : t.config.remote) = a;
    }
    if (t.config.local && t.config.local == t.config.remote)
        r.complain("remote", "'local' and 'remote' are the same address");
}

/// Words that only an IPv6 outer header has. Defaults as `ip link add type ip6tnl` has them: an
/// encapsulation limit of 4, flow label 0.
void read_ipv6_words(ConfigReader &r, TunnelConfig &c)
{
    constexpr std::uint8_t default_limit = 4; // IPV6_DEFAULT_TNL_ENCAP_LIMIT
    constexpr std::uint32_t max_label = 0xfffff;
    if (outer_family(c.mode) == AF_INET) {
        for (const auto *key : {"encaplimit", "flowlabel"})
            if (const auto *v = r.find(key); v && *v != "none")
                r.complain(key, "'" + std::string(key) + "' goes with IPv6 outside only");
        return;
    }
    const auto *limit = r.find("encaplimit");
    if (!limit || *limit != "none")
        c.encap_limit = static_cast<std::uint8_t>(r.number("encaplimit", default_limit, 0, 255));

    if (!r.find("flowlabel"))
        return;
    const auto label = number_or_inherit(r, "flowlabel", 0, max_label);
    c.flow_label_inherit = !label;
    c.flow_label = label.value_or(0);
}

} // namespace

DeviceConfig read_device(ConfigReader &r)
{
    DeviceConfig d;
    if (r.json().is_string()) {
        d.name = r.json().get<std::string>();
        if (!valid_device_name(d.name))
            r.complain("", "'" + d.name.substr(0, 40) + "' is no device name",
                       "1 to 15 characters without space, '/' and ':'");
        return d;
    }
    r.keys({"name", "mode", "rpf"});
    r.require("name");
    d.name = r.device("name");
    d.mode = r.choice("mode", d.mode, {"auto", "xdp", "tc"});
    d.rpf = r.choice("rpf", "off", rpf_words());
    return d;
}

TunnelDecl read_tunnel(ConfigReader &r)
{
    TunnelDecl t;
    t.config.declared = true;
    r.keys({"name", "mode", "local", "remote", "ttl", "tos", "encaplimit", "flowlabel", "dev"});
    if (r.require("name"))
        t.name = r.device("name");
    if (!r.require("mode"))
        return t;
    const auto mode = r.choice("mode", "", tunnel_types());
    for (const auto m : {TunnelConfig::Mode::ipip, TunnelConfig::Mode::ip6ip6, TunnelConfig::Mode::ip4in6,
                         TunnelConfig::Mode::ip6in4})
        if (mode == mode_name(m))
            t.config.mode = m;
    read_ends(r, t);
    // The kernel's encoding: TTL 0 means inherit, bit 0 of the TOS means inherit. The defaults are those
    // of iproute2 for a device of that kind: 64 hops with IPv6 outside, else inherit; TOS 0.
    constexpr std::uint8_t ip6tnl_hops = 64; // DEFAULT_TNL_HOP_LIMIT
    t.config.ttl = outer_family(t.config.mode) == AF_INET6 ? ip6tnl_hops : 0;
    if (r.find("ttl"))
        t.config.ttl = static_cast<std::uint8_t>(number_or_inherit(r, "ttl", 1, 255).value_or(0));
    if (r.find("tos")) {
        const auto tos = number_or_inherit(r, "tos", 0, 255);
        if (tos && (*tos & 1) != 0)
            r.complain("tos", "'tos' is odd", "the lowest bit is part of ECN and must be 0");
        t.config.tos = static_cast<std::uint8_t>(tos.value_or(1));
    }
    read_ipv6_words(r, t.config);
    t.dev = r.device("dev");
    return t;
}

PolicyRule read_policy(ConfigReader &r)
{
    PolicyRule rule;
    r.keys({"match", "action"});
    r.require("action");
    rule.offload = r.choice("action", "offload", {"offload", "skip"}) == "offload";
    r.object("match", [&](ConfigReader &m) {
        m.keys({"proto", "src", "dst", "sport", "dport", "dev"});
        if (const auto *proto = m.find("proto")) {
            const auto text = proto->is_number() ? proto->dump() : m.text("proto");
            rule.match.proto = parse_proto(text);
            if (!rule.match.proto)
                m.complain("proto", "'" + text.substr(0, 40) + "' is no protocol",
                           "tcp, udp, gre, icmp or a number up to 255");
        }
        rule.match.src = m.prefix("src");
        rule.match.dst = m.prefix("dst");
        if (m.find("sport"))
            rule.match.sport = static_cast<std::uint16_t>(m.number("sport", 0, 0, 65535));
        if (m.find("dport"))
            rule.match.dport = static_cast<std::uint16_t>(m.number("dport", 0, 0, 65535));
        rule.match.dev = m.device("dev");
    });
    return rule;
}

void read_mark(ConfigReader &r, std::uint32_t &value, std::uint32_t &mask)
{
    const auto *v = r.find("mark");
    if (!v)
        return;
    const std::string text = r.text("mark");
    if (text == "none") {
        value = 0;
        mask = 0;
        return;
    }
    const auto slash = text.find('/');
    const auto parsed = parse_u32(std::string_view(text).substr(0, slash));
    const auto parsed_mask = slash == std::string::npos ? std::optional(0xffffffffU)
                                                        : parse_u32(std::string_view(text).substr(slash + 1));
    if (!parsed || !parsed_mask || *parsed_mask == 0) {
        r.complain("mark", "'mark' is '" + text.substr(0, 40) + "'",
                   "VALUE/MASK, for example \"0x80000000/0x80000000\", or \"none\"");
        return;
    }
    if ((*parsed & ~*parsed_mask) != 0) {
        r.complain("mark", "'mark' is '" + text.substr(0, 40) + "': the value has bits outside the mask",
                   "no mark would ever be equal");
        return;
    }
    value = *parsed;
    mask = *parsed_mask;
}

bool read_packet_mark(ConfigReader &r)
{
    if (!r.find("packet_mark"))
        return false;
    const std::string text = r.text("packet_mark");
    if (text != "unknown" && text != "conntrack")
        r.complain("packet_mark", "'packet_mark' is '" + text.substr(0, 40) + "'",
                   "\"unknown\", or \"conntrack\" where nft sets each packet's mark to its connection's");
    return text == "conntrack";
}

} // namespace ftctl
