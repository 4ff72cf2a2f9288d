// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/tunnels.h"

#include <algorithm>

#include <spdlog/spdlog.h>

#include "tunnel/rules.h"

namespace ftctl {

using nlohmann::json;

Result<std::uint32_t> Tunnels::add(const TunnelDecl &declaration)
{
    const std::string what = "tunnel add " + declaration.name;
    TunnelDecl wanted = declaration;
    if (!wanted.dev.empty()) {
        const auto link = kernel_.control().link(wanted.dev);
        if (!link)
            return fail(what, "no such device: " + wanted.dev);
        wanted.config.link = link->index;
    }
    auto config = validate_tunnel(wanted.config);
    if (!config)
        return tl::unexpected(config.error());
    wanted.config = *config;

    if (const auto it = declared_.find(wanted.name); it != declared_.end()) {
        if (it->second.declaration.config == wanted.config)
            return it->second.device->ifindex();
        return fail(what, "a tunnel of this name exists with other settings",
                    "ftctl tunnel del " + wanted.name);
    }
    for (const auto &[name, other] : declared_)
        if (tunnels_overlap(other.declaration.config, wanted.config))
            return fail(what, name + " already has these ends", "ftctl tunnel del " + name);

    auto device = TunTunnel::create(wanted.name, wanted.config);
    if (!device)
        return tl::unexpected(device.error());
    TunTunnel *tunnel = device->get();
    for (const int fd : tunnel->fds())
        if (auto added = loop_.add(fd, [tunnel, fd] { tunnel->handle(fd); }); !added)
            return tl::unexpected(added.error());
    const std::uint32_t ifindex = tunnel->ifindex();
    if (auto link = kernel_.control().link(ifindex))
        kernel_.apply(LinkChanged{*link});
    kernel_.declare_tunnel(wanted.name, wanted.config);
    declared_[wanted.name] = {wanted, std::move(*device)};
    return ifindex;
}

Status Tunnels::remove(const std::string &name)
{
    const auto it = declared_.find(name);
    if (it == declared_.end())
        return fail("tunnel del " + name, "no such declared tunnel", "`ftctl tunnel list` shows them",
                    Code::not_running);
    for (const int fd : it->second.device->fds())
        loop_.remove(fd);
    auto done = it->second.device->destroy();
    declared_.erase(it);
    kernel_.forget_tunnel(name);
    return done;
}

bool Tunnels::on_gone(std::uint32_t ifindex)
{
    const auto it = std::find_if(declared_.begin(), declared_.end(),
                                 [&](const auto &item) { return item.second.device->ifindex() == ifindex; });
    if (it == declared_.end())
        return false;
    spdlog::warn("tunnel {}: its device was deleted; the tunnel is forgotten", it->first);
    for (const int fd : it->second.device->fds())
        loop_.remove(fd);
    kernel_.forget_tunnel(it->first);
    declared_.erase(it);
    return true;
}

std::vector<TunnelDecl> Tunnels::declared() const
{
    std::vector<TunnelDecl> out;
    for (const auto &[name, tunnel] : declared_)
        out.push_back(tunnel.declaration);
    return out;
}

std::uint32_t Tunnels::count() const
{
    const auto &links = kernel_.links();
    return static_cast<std::uint32_t>(std::count_if(
        links.begin(), links.end(), [](const auto &item) { return item.second.tunnel.has_value(); }));
}

json Tunnels::list() const
{
    json out = json::array();
    for (const auto &[index, link] : kernel_.links()) {
        if (!link.tunnel)
            continue;
        const TunnelConfig &c = *link.tunnel;
        json element{{"name", link.name},
                     {"mode", mode_name(c.mode)},
                     {"local", c.local ? json(c.local.str()) : json("any")},
                     {"remote", c.remote ? json(c.remote.str()) : json("any")},
                     {"ttl", c.ttl ? json(c.ttl) : json("inherit")},
                     {"tos", c.tos & 1 ? json("inherit") : json(c.tos)},
                     {"dev", c.link ? json(kernel_.name(c.link)) : json(nullptr)},
                     {"driver", declared_.count(link.name) ? "tun" : "kernel"},
                     {"index", index},
                     {"mtu", link.mtu}};
        if (outer_family(c.mode) == AF_INET6) {
            element["encaplimit"] = c.encap_limit ? json(*c.encap_limit) : json("none");
            element["flowlabel"] = c.flow_label_inherit ? json("inherit") : json(c.flow_label);
        }
        if (c.any) // the payload of a packet decides between two modes
            element["any"] = true;
        if (const auto it = declared_.find(link.name); it != declared_.end()) {
            const auto &n = it->second.device->counters();
            element["counters"] = {{"encap", n.encap},
                                   {"decap", n.decap},
                                   {"dropped_ecn", n.dropped_ecn},
                                   {"too_big", n.too_big},
                                   {"errors", n.errors}};
        }
        out.push_back(std::move(element));
    }
    return out;
}

} // namespace ftctl
