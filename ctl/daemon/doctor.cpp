// SPDX-License-Identifier: GPL-2.0-only
// `ftctl doctor`: what this kernel and these devices can do, and what to change.
#include <fmt/format.h>
#include <net/if.h>
#include <net/if_arp.h>

#include "daemon/engine.h"

namespace ftctl {

namespace {

using nlohmann::json;

json as_json(const Probe &probe)
{
    return {{"name", probe.name},
            {"ok", probe.ok},
            {"required", probe.required},
            {"detail", probe.detail},
            {"hint", probe.ok ? "" : probe.hint}};
}

/// Settings that change what the fast path may do.
/// `policy`: the families whose connections a rule keeps off the fast path.
std::vector<Probe> probe_settings(const std::string &policy)
{
    std::vector<Probe> out;
    const auto add = [&out](std::string name, bool ok, std::string detail, std::string hint) {
        out.push_back({std::move(name), ok, false, std::move(detail), std::move(hint)});
    };
    const long forward = sysctl_number("net/ipv4/ip_forward").value_or(0);
    add("ip-forward", forward != 0, fmt::format("net.ipv4.ip_forward = {}", forward),
        "this namespace does not forward IPv4: sysctl net.ipv4.ip_forward=1");
    const long checksum = sysctl_number("net/netfilter/nf_conntrack_checksum").value_or(0);
    add("conntrack-checksum", checksum == 0, fmt::format("nf_conntrack_checksum = {}", checksum),
        "packets with a wrong L4 checksum are INVALID to the slow path but translated by the fast path; "
        "set it to 0 to make both alike");
    add("policy-routing", policy.empty(),
        policy.empty() ? "none in the way" : "an ip rule looks at mark or TOS (" + policy + ")",
        "no connection is taken while a rule depends on what cannot be known before a packet comes");
    return out;
}

std::vector<Probe> probe_device(const Link &link)
{
    std::vector<Probe> out;
    const auto obstacle = xdp_obstacle(link);
    out.push_back({"xdp", !obstacle, false, obstacle.value_or("native XDP forwards"), "auto uses TC here"});
    const bool ethernet = link.type == ARPHRD_ETHER;
    const bool upper = stands_for_others(link);
    out.push_back({"ethernet", ethernet || upper, true,
                   upper      ? "it stands for what its frames use, which attach finds"
                   : ethernet ? "yes"
                              : "not an Ethernet device",
                   "attach the device the frames really use"});
    const bool free = link.master == 0 || link.master_kind == "bridge";
    out.push_back({"port", free, true, link.master == 0 ? "no master" : "a port of a " + link.master_kind,
                   "attach the device above instead"});
    const auto features = device_features(link.name);
    const bool lro = features && features->lro;
    out.push_back({"lro", !lro, true, lro ? "on" : "off", "ethtool -K " + link.name + " lro off"});
    return out;
}

} // namespace

Reply Engine::cmd_doctor() const
{
    json kernel = json::array();
    for (const Probe &probe : probes_)
        kernel.push_back(as_json(probe));
    for (const Probe &probe : probe_conntrack())
        kernel.push_back(as_json(probe));
    std::string policy;
    for (const auto &[family, name] : {std::pair{AF_INET, "IPv4"}, std::pair{AF_INET6, "IPv6"}})
        if (kernel_->policy_routed(static_cast<std::uint8_t>(family)))
            policy += (policy.empty() ? "" : ", ") + std::string(name);
    for (const Probe &probe : probe_settings(policy))
        kernel.push_back(as_json(probe));
    json devices = json::array();
    for (const auto &[index, link] : kernel_->links()) {
        if (link.flags & IFF_LOOPBACK)
            continue;
        json checks = json::array();
        for (const Probe &probe : probe_device(link))
            checks.push_back(as_json(probe));
        devices.push_back({{"name", link.name}, {"checks", checks}});
    }
    Reply reply;
    reply.data = {{"kernel", kernel}, {"devices", devices}};
    return reply;
}

} // namespace ftctl
