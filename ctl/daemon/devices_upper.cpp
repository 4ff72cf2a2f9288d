// SPDX-License-Identifier: GPL-2.0-only
// What the operator names and what it stands for: a bridge means its ports, a VLAN, ppp or tunnel
// device the one below, now and whenever that changes.
#include <algorithm>

#include <fmt/format.h>
#include <linux/rtnetlink.h>
#include <spdlog/spdlog.h>

#include "daemon/devices.h"

namespace ftctl {

namespace {

constexpr int kMaxDepth = 6;

} // namespace

bool stands_for_others(const Link &link)
{
    return link.kind == "ppp" || (link.vlan && link.lower != 0) || link.bridge || link.tunnel;
}

/// The devices whose frames these are; added to `found`.
Status Devices::below(const Link &link, int depth, std::vector<std::string> &found)
{
    const auto further = [&](const Link *lower, const std::string &missing) -> Status {
        if (!lower || depth == kMaxDepth)
            return fail("attach " + link.name, missing, "attach the device that its frames really use");
        return below(*lower, depth + 1, found);
    };
    if (link.kind == "ppp") {
        const auto session = kernel_.pppoe(link);
        return further(session ? kernel_.link_by_name(session->device) : nullptr,
                       "no PPPoE session is known to be its own (/proc/net/pppoe)");
    }
    if (link.vlan && link.lower != 0)
        return further(kernel_.link(link.lower), "the device below it is not to be seen");
    if (link.tunnel) {
        const auto route = kernel_.route(underlay_query(*link.tunnel));
        return further(route && route->type == RTN_UNICAST ? kernel_.link(route->oif) : nullptr,
                       "no route to its remote end");
    }
    if (link.bridge) {
        for (const auto &[index, port] : kernel_.links())
            if (port.master == link.index)
                if (auto done = below(port, depth + 1, found); !done)
                    return done;
        return {};
    }
    if (std::find(found.begin(), found.end(), link.name) == found.end())
        found.push_back(link.name);
    return {};
}

Result<std::vector<std::string>> Devices::below(const std::string &name)
{
    const Link *link = kernel_.link_by_name(name);
    if (!link || !stands_for_others(*link) || devices_.count(name) > 0)
        return std::vector<std::string>{name};
    std::vector<std::string> found;
    if (auto done = below(*link, 0, found); !done)
        return tl::unexpected(done.error());
    return found;
}

Result<Devices::Attached> Devices::attach(const std::vector<std::string> &names, const AttachOptions &options,
                                          bool dry_run)
{
    Attached result;
    std::vector<std::string> links;
    for (const std::string &name : names) {
        auto found = below(name);
        if (!found)
            return tl::unexpected(found.error());
        if (found->empty())
            return fail("attach " + name, "it is a bridge without ports",
                        "add a port first: ip link set DEV master " + name);
        links.insert(links.end(), found->begin(), found->end());
        if (*found != std::vector<std::string>{name})
            result.uppers[name] = std::move(*found);
    }
    const auto before = devices_;
    AttachOptions there = options;
    if (!result.uppers.empty())
        there.rpf.clear(); // it would judge other packets than those of the device that was named
    auto outcomes = attach_links(links, there, dry_run);
    if (!outcomes)
        return tl::unexpected(outcomes.error());
    result.devices = std::move(*outcomes);
    if (dry_run)
        return result;
    for (const Outcome &outcome : result.devices) {
        Device &device = devices_.at(outcome.device.name);
        const auto was = before.find(device.name);
        device.named = (was != before.end() && was->second.named) ||
                       std::find(names.begin(), names.end(), device.name) != names.end();
    }
    for (const auto &[name, devices] : result.uppers) {
        uppers_[name] = options;
        for (const std::string &device : devices)
            devices_.at(device).uppers.insert(name);
        resolved_[name] = devices;
    }
    return result;
}

std::vector<std::string> Devices::meant_by(const std::string &name) const
{
    if (const auto it = resolved_.find(name); it != resolved_.end())
        return it->second;
    return devices_.count(name) > 0 ? std::vector<std::string>{name} : std::vector<std::string>{};
}

/// It is not below this upper device any more. True when that detached it.
bool Devices::drop(const std::string &name, const std::string &upper)
{
    const auto it = devices_.find(name);
    if (it == devices_.end())
        return false;
    it->second.uppers.erase(upper);
    if (it->second.named || !it->second.uppers.empty())
        return false;
    if (auto done = detach_one(it->second); !done)
        spdlog::warn("{}: {}", done.error().what, done.error().why);
    devices_.erase(it);
    return true;
}

Result<bool> Devices::detach(const std::string &name)
{
    if (uppers_.erase(name) > 0) {
        const auto devices = std::exchange(resolved_[name], {});
        resolved_.erase(name);
        for (const std::string &device : devices)
            (void)drop(device, name);
        return true;
    }
    const auto it = devices_.find(name);
    if (it == devices_.end())
        return false;
    if (!it->second.uppers.empty()) {
        const std::string &upper = *it->second.uppers.begin();
        if (std::exchange(it->second.named, false))
            return true; // it stays for the other's sake
        return fail("detach " + name, "it is attached on behalf of " + upper, "ftctl detach " + upper);
    }
    const auto done = detach_one(it->second);
    devices_.erase(it);
    if (!done)
        return tl::unexpected(done.error());
    return true;
}

std::map<std::string, AttachOptions> Devices::wanted() const
{
    std::map<std::string, AttachOptions> wanted = uppers_;
    for (const auto &[name, device] : devices_)
        if (device.named)
            wanted.emplace(name, device.options);
    return wanted;
}

/// A device that was asked for and cannot be attached now: it stays wanted.
void Devices::want(const std::string &name, const AttachOptions &options, const std::string &why)
{
    const Link *link = kernel_.link_by_name(name);
    if (link && stands_for_others(*link)) {
        uppers_[name] = options;
        resolved_[name] = {};
        return;
    }
    Device absent;
    absent.name = name;
    absent.options = options;
    absent.why = why;
    devices_[name] = absent;
}

void Devices::adopt(const std::map<std::string, AttachOptions> &wanted)
{
    for (const Attachment &old : datapath_.attachments()) {
        const Link *link = kernel_.link(old.ifindex);
        if (!link) {
            (void)datapath_.detach(old.ifindex);
            continue;
        }
        const auto it = wanted.find(link->name);
        const AttachOptions options = it == wanted.end() ? AttachOptions{} : it->second;
        if (auto done = attach_one(*link, options, {old.hook, "taken over"}); !done)
            spdlog::warn("{}: {}: {}", link->name, done.error().what, done.error().why);
        else
            devices_.at(link->name).named = it != wanted.end();
    }
    for (const auto &[name, options] : wanted)
        if (devices_.count(name) == 0)
            if (const auto done = attach({name}, options, false); !done)
                want(name, options, kernel_.link_by_name(name) ? done.error().why : "not there");
    for (auto &[name, device] : devices_)
        device.named |= device.uppers.empty(); // nobody tells why: what is attached stays so
}

bool Devices::follow()
{
    bool changed = false;
    for (const auto &[upper, options] : uppers_) {
        auto now = kernel_.link_by_name(upper) ? below(upper).value_or(std::vector<std::string>{})
                                               : std::vector<std::string>{};
        const auto was = std::exchange(resolved_[upper], now);
        for (const std::string &name : was)
            if (std::find(now.begin(), now.end(), name) == now.end()) {
                spdlog::info("{} is not below {} any more", name, upper);
                changed |= drop(name, upper);
            }
        for (const std::string &name : now) {
            if (std::find(was.begin(), was.end(), name) != was.end())
                continue;
            const bool known = devices_.count(name) > 0;
            if (auto done = attach_links({name}, options, false); !done) {
                spdlog::warn("{}: {} (below {})", done.error().what, done.error().why, upper);
                continue;
            }
            spdlog::info("{} is below {} now", name, upper);
            Device &device = devices_.at(name);
            device.named = known && device.named;
            device.uppers.insert(upper);
            changed = true;
        }
    }
    for (const auto &[name, device] : devices_)
        if (const Link *link = device.ifindex ? kernel_.link(device.ifindex) : nullptr)
            set_mac(device, link->mac);
    return changed;
}

/// Frames redirected to a device that takes none any more would be lost (a veth whose peer stops its NAPI).
void Devices::check_redirect(const Device &device, const Link &link)
{
    const auto why = xdp_impossible(link);
    if (why.has_value() == (deaf_.count(device.name) > 0))
        return;
    if (auto done = datapath_.devmap_set(device.ifindex, !why); !done) {
        spdlog::error("{}: {}", done.error().what, done.error().why);
        return;
    }
    if (why) {
        deaf_.insert(device.name);
        spdlog::warn("{}: {}: packets that would leave by it go to the stack", device.name, *why);
    } else {
        deaf_.erase(device.name);
        spdlog::info("{} takes redirected frames again", device.name);
    }
}

void Devices::check_hidden_tags(const Device &device, const Link &link)
{
    const auto features = device_features(device.name);
    const bool hidden = !device.options.force && features && features->rx_vlan_offload;
    if (hidden == (hidden_tags_.count(device.name) > 0))
        return;
    if (hidden) {
        hidden_tags_.insert(device.name);
        spdlog::warn(
            "{}: rx-vlan-offload was switched on and hides VLAN tags from XDP: its packets go to the "
            "stack (ethtool -K {} rxvlan off)",
            device.name, device.name);
    } else {
        hidden_tags_.erase(device.name);
        spdlog::info("{}: rx-vlan-offload is off again", device.name);
    }
    set_mac(device, link.mac);
}

void Devices::check_offloads()
{
    for (const auto &[name, device] : devices_) {
        const Link *link =
            device.hook == FTCTL_HOOK_XDP && device.ifindex != 0 ? kernel_.link(device.ifindex) : nullptr;
        if (!link)
            continue;
        check_redirect(device, *link);
        check_hidden_tags(device, *link);
    }
}

} // namespace ftctl
