// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/devices.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <spdlog/spdlog.h>

namespace ftctl {

namespace {

/// NETDEV_XDP_ACT_* (include/uapi/linux/netdev.h)
constexpr std::uint64_t kXdpRedirect = 2, kXdpNdoXmit = 4;

/// As struct ftctl_slot has it.
std::uint64_t as_number(const Mac &mac)
{
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < 6; i++)
        number |= static_cast<std::uint64_t>(mac.bytes.at(i)) << (8 * i);
    return number;
}

} // namespace

std::optional<std::string> xdp_impossible(const Link &link)
{
    // A veth shows NDO_XMIT only when its peer runs NAPI; without it redirected frames vanish.
    const auto features = xdp_features(link.index);
    if (!features || (*features & (kXdpRedirect | kXdpNdoXmit)) == (kXdpRedirect | kXdpNdoXmit))
        return std::nullopt;
    if (link.kind == "veth")
        return "frames redirected to it would be lost: its peer runs no NAPI (ethtool -K PEER gro on)";
    return "the driver cannot redirect frames at XDP";
}

bool shapes(const Link &link)
{
    constexpr std::array kPlain = {"", "noqueue", "mq", "pfifo_fast", "fq_codel", "fq", "noop"};
    return std::find(kPlain.begin(), kPlain.end(), link.qdisc) == kPlain.end();
}

std::optional<std::string> xdp_obstacle(const Link &link)
{
    if (auto impossible = xdp_impossible(link); impossible && link.kind != "veth")
        return impossible;
    if (link.kind == "veth")
        return "veth hands over frames with unfinished checksums and hidden VLAN tags";
    if (!link.kind.empty())
        return link.kind + " devices have no native XDP that forwards exactly";
    if (shapes(link))
        return "XDP would bypass the qdisc " + link.qdisc;
    if (const auto features = device_features(link.name); features && features->rx_vlan_offload)
        return "rx-vlan-offload hides VLAN tags from XDP (ethtool -K " + link.name + " rxvlan off)";
    return std::nullopt;
}

const Device *Devices::find(std::uint32_t ifindex) const
{
    const auto it = std::find_if(devices_.begin(), devices_.end(),
                                 [&](const auto &item) { return item.second.ifindex == ifindex; });
    return ifindex == 0 || it == devices_.end() ? nullptr : &it->second;
}

bool Devices::none_attached() const
{
    return std::none_of(devices_.begin(), devices_.end(),
                        [](const auto &item) { return item.second.ifindex != 0; });
}

bool Devices::is_ours(const Link &link) const
{
    const Device *device = find(link.index);
    return device && device->hook == FTCTL_HOOK_XDP && device->ingress_prog_id == link.xdp_prog_id;
}

Result<const Link *> Devices::usable(const std::string &name, const AttachOptions &options)
{
    const std::string what = "attach " + name;
    auto fresh = kernel_.control().link(name);
    if (!fresh)
        return fail(what, "no such device", "`ip link` lists what there is");
    kernel_.apply(LinkChanged{*fresh});
    const Link *link = kernel_.link(fresh->index);
    if (!link)
        return fail(what, "no such device");
    if (link->index > FTCTL_MAX_IFINDEX)
        return fail(what, fmt::format("interface index {} is too large", link->index));
    if (link->type != ARPHRD_ETHER || (link->flags & IFF_LOOPBACK))
        return fail(what, "not an Ethernet device",
                    "attach the device the frames really use; tunnels over it are found by themselves");
    if (link->master != 0 && link->master_kind != "bridge")
        return fail(what, fmt::format("it is a port of {}", kernel_.name(link->master)),
                    "attach " + kernel_.name(link->master) + " instead");
    if (const auto features = device_features(name); features && features->lro)
        return fail(what, "large receive offload is on: it merges packets beyond recognition",
                    "ethtool -K " + name + " lro off");
    if (link->xdp_prog_id != 0 && !is_ours(*link) && options.mode != "tc" && !options.force)
        return fail(what, fmt::format("another XDP program is attached, program id {}", link->xdp_prog_id),
                    "`--mode tc` works behind it; or remove it first: ip link set " + name + " xdp off");
    return link;
}

Result<Devices::Choice> Devices::choose(const std::vector<const Link *> &links, const Link &link,
                                        const AttachOptions &options)
{
    if (options.mode == "tc")
        return Choice{FTCTL_HOOK_TC, "asked for"};
    if (options.mode == "xdp") {
        if (const auto impossible = xdp_impossible(link))
            return fail("attach " + link.name, "not at XDP: " + *impossible, "or use --mode tc");
        const auto obstacle = xdp_obstacle(link);
        if (obstacle && !options.force)
            return fail("attach " + link.name, "not at XDP: " + *obstacle,
                        "use --mode tc, or --force if you know that it does not matter here");
        return Choice{FTCTL_HOOK_XDP, obstacle ? "forced: " + *obstacle : "asked for"};
    }
    // One slow device would make XDP useless for all flows through it: the set decides together.
    if (const auto own = xdp_obstacle(link))
        return Choice{FTCTL_HOOK_TC, *own};
    for (const Link *other : links)
        if (const auto obstacle = xdp_obstacle(*other))
            return Choice{FTCTL_HOOK_TC, other->name + ": " + *obstacle};
    for (const auto &[name, device] : devices_)
        if (device.hook == FTCTL_HOOK_TC)
            return Choice{FTCTL_HOOK_TC, name + " is attached at TC"};
    return Choice{FTCTL_HOOK_XDP, "the driver forwards at XDP"};
}

void Devices::set_mac(const Device &device, const Mac &mac)
{
    const auto upper = kernel_.upper_mac(device.ifindex);
    const bool blind = hidden_tags_.count(device.name) > 0;
    ftctl_slot &slot = datapath_.slot(device.slot);
    slot.flags = kernel_.below_bridge(device.ifindex) ? FTCTL_S_PORT : 0;
    slot.upper = upper ? as_number(*upper) : FTCTL_NO_MAC;
    slot.mac = blind ? FTCTL_NO_MAC : as_number(mac);
}

Status Devices::attach_one(const Link &link, const AttachOptions &options, const Choice &choice)
{
    const auto done = datapath_.attach(link.index, link.name, choice.hook);
    if (!done)
        return tl::unexpected(done.error());
    Device device;
    device.name = link.name;
    device.ifindex = link.index;
    device.hook = choice.hook;
    device.why = choice.why;
    device.options = options;
    if (const auto old = devices_.find(link.name); options.rpf.empty() && old != devices_.end())
        device.options.rpf = old->second.options.rpf; // at another hook now
    device.slot = done->slot;
    device.ingress_prog_id = done->ingress_prog_id;
    device.egress_prog_id = done->egress_prog_id;
    set_mac(device, link.mac);
    apply_rpf(device);
    if (choice.hook == FTCTL_HOOK_XDP)
        if (auto set = datapath_.devmap_set(link.index, true); !set) {
            (void)datapath_.detach(link.index);
            return set;
        }
    devices_[link.name] = std::move(device);
    kernel_.set_attached(link.index, true);
    return {};
}

Status Devices::detach_one(Device &device)
{
    if (device.ifindex == 0)
        return {};
    (void)datapath_.devmap_set(device.ifindex, false);
    kernel_.set_attached(device.ifindex, false);
    const std::uint32_t ifindex = std::exchange(device.ifindex, 0U);
    auto done = datapath_.detach(ifindex);
    count_rpf();
    return done;
}

Result<std::vector<Devices::Outcome>> Devices::attach_links(const std::vector<std::string> &names,
                                                            const AttachOptions &options, bool dry_run)
{
    std::vector<const Link *> links;
    for (const std::string &name : names) {
        auto link = usable(name, options);
        if (!link)
            return tl::unexpected(link.error());
        if (std::find(links.begin(), links.end(), *link) == links.end())
            links.push_back(*link);
    }
    struct Work {
        const Link *link;
        Choice choice;
        bool changed;
    };
    std::vector<Work> work;
    for (const Link *link : links) {
        auto choice = choose(links, *link, options);
        if (!choice)
            return tl::unexpected(choice.error());
        const Device *now = find(link->index);
        const bool same = now && (options.mode == "auto" || now->hook == choice->hook);
        if (same)
            choice = Choice{now->hook, now->why};
        work.push_back({link, *choice, !same});
    }
    std::vector<Outcome> outcomes;
    std::vector<std::string> done;
    for (const Work &item : work) {
        if (dry_run) {
            if (auto loads = datapath_.probe_load(item.choice.hook); !loads)
                return tl::unexpected(loads.error());
            Device device;
            device.name = item.link->name;
            device.ifindex = item.link->index;
            device.hook = item.choice.hook;
            device.why = item.choice.why;
            outcomes.push_back({device, item.changed});
            continue;
        }
        if (item.changed) {
            if (auto attached = attach_one(*item.link, options, item.choice); !attached) {
                for (const std::string &name : done) {
                    (void)detach_one(devices_.at(name));
                    devices_.erase(name);
                }
                return tl::unexpected(attached.error());
            }
            done.push_back(item.link->name);
        }
        outcomes.push_back({devices_.at(item.link->name), item.changed});
    }
    return outcomes;
}

bool Devices::on_link(const Link &link)
{
    const auto it = devices_.find(link.name);
    if (it == devices_.end())
        return false;
    Device &device = it->second;
    if (device.ifindex == link.index) {
        set_mac(device, link.mac);
        apply_rpf(device);
        return false;
    }
    // The name came back with another index, or the device was renamed onto a wanted name.
    const Device before = device;
    (void)detach_one(device);
    devices_.erase(it);
    const auto done = attach({link.name}, before.options, false);
    if (!done) {
        want(link.name, before.options, done.error().why);
        spdlog::warn("{}: {}", done.error().what, done.error().why);
    } else {
        spdlog::info("{} is back with index {}", link.name, link.index);
    }
    if (const auto now = devices_.find(link.name); now != devices_.end()) {
        now->second.named = before.named;
        now->second.uppers = before.uppers;
    }
    return true;
}

bool Devices::on_gone(std::uint32_t ifindex)
{
    for (auto &[name, device] : devices_) {
        if (device.ifindex != ifindex)
            continue;
        (void)detach_one(device);
        device.hook = FTCTL_HOOK_NONE;
        device.why = "not there";
        spdlog::info("{} is gone", name);
        return true;
    }
    return false;
}

} // namespace ftctl
