// SPDX-License-Identifier: GPL-2.0-only
// The kernel's devices below each other: bridges and their stations, PPPoE sessions, MAC addresses.
#include "daemon/kernel_view.h"

#include <algorithm>

#include <net/if.h>
#include <spdlog/spdlog.h>

namespace ftctl {

namespace {

constexpr std::size_t kMaxAwaited = 4096;
constexpr int kMaxBelow = 4; // VLANs below each other

template <typename Key>
void await(std::set<Key> &awaited, Key key)
{
    if (awaited.size() < kMaxAwaited)
        awaited.insert(std::move(key));
}

} // namespace

std::optional<Mac> KernelView::neighbour_mac(std::uint32_t ifindex, const IpAddr &addr)
{
    const Neigh *known = neighbour(ifindex, addr);
    if (known && known->valid())
        return known->mac;
    await(awaited_neighbours_, {ifindex, addr});
    (void)control_->probe_neighbour(ifindex, addr);
    return std::nullopt;
}

std::optional<std::uint32_t> KernelView::fdb_port(std::uint32_t bridge, const Mac &mac, std::uint16_t vid)
{
    const auto port = control_->fdb_port(bridge, mac, vid);
    if (port && *port)
        return **port;
    if (!port)
        spdlog::debug("{}: {}", port.error().what, port.error().why);
    await(awaited_stations_, {bridge, mac});
    return std::nullopt;
}

bool KernelView::awaited(const NeighChanged &event)
{
    return event.neigh.valid() && awaited_neighbours_.erase({event.neigh.ifindex, event.neigh.addr}) > 0;
}

bool KernelView::awaited(const FdbChanged &event)
{
    return awaited_stations_.erase({event.bridge, event.mac}) > 0;
}

void KernelView::refresh_bridges()
{
    if (auto vlans = control_->bridge_vlans())
        bridge_vlans_ = std::move(*vlans);
    else
        spdlog::warn("{}: {}", vlans.error().what, vlans.error().why);
}

const std::vector<BridgeVlan> &KernelView::bridge_vlans(std::uint32_t ifindex) const
{
    static const std::vector<BridgeVlan> none;
    const auto it = bridge_vlans_.find(ifindex);
    return it == bridge_vlans_.end() ? none : it->second;
}

bool KernelView::poll_pppoe()
{
    const bool any =
        std::any_of(links_.begin(), links_.end(), [](const auto &item) { return item.second.kind == "ppp"; });
    return pppoe_.update(any ? pppoe_sessions() : std::vector<PppoeSession>{});
}

std::optional<Mac> KernelView::upper_mac(std::uint32_t ifindex)
{
    find_uppers();
    const auto it = upper_macs_.find(ifindex);
    return it == upper_macs_.end() ? std::nullopt : std::optional(it->second);
}

bool KernelView::below_bridge(std::uint32_t ifindex)
{
    find_uppers();
    return below_bridges_.count(ifindex) > 0;
}

/// A frame's destination is compared with two addresses (struct ftctl_slot): where several devices
/// above one have addresses of their own, the first of them (by index) gets its frames.
void KernelView::find_uppers()
{
    if (!std::exchange(links_changed_, false))
        return;
    below_bridges_.clear();
    std::map<std::uint32_t, const Link *> first; // above each device, of those with an address of their own
    const auto find = [this](std::uint32_t index) {
        const auto it = links_.find(index);
        return it == links_.end() ? nullptr : &it->second;
    };
    const auto bottom = [&find](const Link *link) {
        for (int i = 0; link && link->vlan && i < kMaxBelow; i++)
            link = find(link->lower);
        return link;
    };
    const auto above = [&first](const Link *low, const Link *upper) {
        if (!low || !upper || !(upper->flags & IFF_UP) || low->mac == upper->mac)
            return;
        const Link *&known = first.try_emplace(low->index, upper).first->second;
        if (upper->index < known->index)
            known = upper;
    };
    for (const auto &[index, link] : links_) {
        const Link *low = bottom(&link);
        if (link.vlan)
            above(low, &link);
        if (!link.port)
            continue;
        if (low)
            below_bridges_.insert(low->index);
        if (link.port->forwarding)
            above(low, find(link.master));
    }
    upper_macs_.clear();
    for (const auto &[index, upper] : first)
        upper_macs_.emplace(index, upper->mac);
}

} // namespace ftctl
