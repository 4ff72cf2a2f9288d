// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/state_file.h"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "bpf/datapath.h"

namespace ftctl {

namespace {

using nlohmann::json;

json tunnel_words(const TunnelDecl &tunnel)
{
    const auto &c = tunnel.config;
    json words{{"name", tunnel.name},
               {"mode", mode_name(c.mode)},
               {"local", c.local.str()},
               {"remote", c.remote.str()}};
    if (c.ttl == 0)
        words["ttl"] = "inherit";
    else
        words["ttl"] = c.ttl;
    if (c.tos & 1)
        words["tos"] = "inherit";
    else
        words["tos"] = c.tos;
    if (outer_family(c.mode) == AF_INET6) {
        words["encaplimit"] = c.encap_limit ? json(*c.encap_limit) : json("none");
        words["flowlabel"] = c.flow_label_inherit ? json("inherit") : json(c.flow_label);
    }
    if (!tunnel.dev.empty())
        words["dev"] = tunnel.dev;
    return words;
}

SavedState from_json(const json &saved)
{
    SavedState state;
    for (const auto &[name, device] : saved.at("devices").items())
        state.devices[name] = {device.at("mode").get<std::string>(), device.at("force").get<bool>(),
                               device.value("rpf", "")};
    for (const auto &words : saved.at("tunnels"))
        if (auto tunnel = parse_tunnel(words))
            state.tunnels.push_back(std::move(*tunnel));
    state.track = saved.at("track").get<bool>();
    return state;
}

} // namespace

std::string state_path(const std::string &instance)
{
    return std::string(kRunDir) + "/" + instance + ".state";
}

SavedState load_state(const std::string &instance)
{
    std::ifstream file(state_path(instance));
    if (!file)
        return {};
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    try {
        return from_json(json::parse(text));
    } catch (const json::exception &e) {
        spdlog::warn("{}: {}; starting without it", state_path(instance), e.what());
        return {};
    }
}

Status save_state(const std::string &instance, const SavedState &state)
{
    const std::string path = state_path(instance);
    if (state.devices.empty() && state.tunnels.empty()) {
        if (unlink(path.c_str()) != 0 && errno != ENOENT)
            return fail_errno("remove " + path, errno);
        return {};
    }
    json saved{{"devices", json::object()}, {"tunnels", json::array()}, {"track", state.track}};
    for (const auto &[name, options] : state.devices)
        saved["devices"][name] = {{"mode", options.mode}, {"force", options.force}, {"rpf", options.rpf}};
    for (const TunnelDecl &tunnel : state.tunnels)
        saved["tunnels"].push_back(tunnel_words(tunnel));
    const std::string fresh = path + ".new";
    {
        std::ofstream file(fresh, std::ios::trunc);
        file << saved.dump(2) << '\n';
        if (!file.flush())
            return fail_errno("write " + fresh, errno);
    }
    if (rename(fresh.c_str(), path.c_str()) != 0)
        return fail_errno("write " + path, errno);
    return {};
}

} // namespace ftctl
