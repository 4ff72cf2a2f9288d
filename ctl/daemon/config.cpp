// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/config.h"

#include <fstream>
#include <iterator>
#include <set>

#include "daemon/config_reader.h"
#include "daemon/json_lines.h"

namespace ftctl {

namespace {

constexpr std::size_t kMaxFile = std::size_t{1} << 20;

Config read_config(ConfigReader &root)
{
    Config c;
    root.keys({"devices", "tunnels", "limits", "trickle_s", "policy", "mark", "packet_mark", "track"});
    std::set<std::string> names;
    root.each("devices", [&](ConfigReader &r) {
        DeviceConfig d = read_device(r);
        if (!d.name.empty() && !names.insert(d.name).second)
            r.complain("", "device '" + d.name + "' is given twice");
        c.devices.push_back(std::move(d));
    });
    root.each("tunnels", [&](ConfigReader &r) {
        TunnelDecl t = read_tunnel(r);
        if (!t.name.empty() && !names.insert("tunnel " + t.name).second)
            r.complain("", "tunnel '" + t.name + "' is given twice");
        c.tunnels.push_back(std::move(t));
    });
    root.object("limits", [&](ConfigReader &r) {
        r.keys({"flows", "rcvbuf_bytes"});
        c.limits.flows = static_cast<std::uint32_t>(r.number("flows", 0, 0, 16U << 20));
        c.limits.rcvbuf_bytes =
            static_cast<std::uint32_t>(r.number("rcvbuf_bytes", c.limits.rcvbuf_bytes, 65536, 1U << 30));
    });
    c.trickle_s = static_cast<std::uint8_t>(root.number("trickle_s", c.trickle_s, 0, 255));
    root.each("policy", [&](ConfigReader &r) { c.policy.push_back(read_policy(r)); });
    read_mark(root, c.mark_value, c.mark_mask);
    c.mark_from_conntrack = read_packet_mark(root);
    c.track = root.boolean("track", c.track);
    return c;
}

} // namespace

bool PolicyMatch::matches(const Tuple &orig, std::string_view iif) const
{
    return (!proto || *proto == orig.proto) && src.contains(orig.src) && dst.contains(orig.dst) &&
           (!sport || *sport == orig.sport) && (!dport || *dport == orig.dport) &&
           (dev.empty() || dev == iif);
}

bool policy_allows(const Config &config, const Tuple &orig, std::string_view iif)
{
    for (const auto &rule : config.policy)
        if (rule.match.matches(orig, iif))
            return rule.offload;
    return true;
}

Result<Config> parse_config(std::string_view text, const std::string &origin)
{
    auto lined = parse_lined(text, origin);
    if (!lined)
        return tl::unexpected(lined.error());
    ConfigProblem problem;
    ConfigReader root(lined->json, "", problem);
    auto config = read_config(root);
    if (problem.found)
        return fail(origin + ":" + std::to_string(lined->line(problem.pointer)), problem.why, problem.hint,
                    Code::usage);
    return config;
}

Result<Config> load_config(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    if (!file)
        return fail_errno("read " + path, errno);
    std::string text(kMaxFile + 1, '\0');
    errno = 0;
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (file.bad() || (text.empty() && errno != 0))
        return fail_errno("read " + path, errno);
    if (text.size() > kMaxFile)
        return fail("read " + path, "larger than 1 MiB", {}, Code::usage);
    return parse_config(text, path);
}

Result<TunnelDecl> parse_tunnel(const nlohmann::json &words)
{
    if (!words.is_object())
        return fail("tunnel", "not an object", {}, Code::usage);
    auto copy = words;
    copy.erase("cmd");
    ConfigProblem problem;
    ConfigReader reader(copy, "", problem);
    auto tunnel = read_tunnel(reader);
    if (problem.found)
        return fail("tunnel " + (tunnel.name.empty() ? std::string("add") : tunnel.name), problem.why,
                    problem.hint, Code::usage);
    return tunnel;
}

} // namespace ftctl
