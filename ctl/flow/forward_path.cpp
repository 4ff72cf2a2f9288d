// SPDX-License-Identifier: GPL-2.0-only
#include "flow/forward_path.h"

#include <algorithm>

#include <net/if.h>
#include <net/if_arp.h>

#include "flow/ways.h"

namespace ftctl {

namespace {

constexpr std::size_t kMaxTags = 2;
constexpr std::size_t kMaxDevices = 6; // NET_DEVICE_PATH_STACK_MAX, and the first

/// One step down: the device below, or why not.
using Step = Decision<const Link *>;

tl::unexpected<Refusal> obstacle(const Link &link, const std::string &what)
{
    return refuse(FTCTL_R_PATH, link.name + ": " + what);
}

Step push_tag(const Link &link, const VlanTag &tag, const Link *lower, ForwardPath &path)
{
    if (path.tags.size() == kMaxTags)
        return obstacle(link, "more than two VLAN tags");
    path.tags.insert(path.tags.begin(), tag);
    return lower;
}

Step below_vlan(const Link &link, ForwardPath &path, Fib &fib)
{
    const Link *lower = fib.link(link.lower);
    if (!lower)
        return obstacle(link, "its device is in another namespace");
    if (link.vlan->keeps_tag)
        return obstacle(link, "reorder_hdr off");
    return push_tag(link, link.vlan->tag, lower, path);
}

Step below_pppoe(const Link &link, ForwardPath &path, Fib &fib)
{
    path.pppoe = fib.pppoe(link);
    const Link *lower = path.pppoe ? fib.link_by_name(path.pppoe->device) : nullptr;
    if (!lower)
        return obstacle(link, "no PPPoE session known to be its own");
    path.smac_dev = lower->index;
    return lower;
}

const BridgeVlan *find_vlan(const std::vector<BridgeVlan> &vlans, std::uint16_t vid)
{
    const auto it = std::find_if(vlans.begin(), vlans.end(), [&](const auto &v) { return v.vid == vid; });
    return it == vlans.end() ? nullptr : &*it;
}

/// The VLAN that what the bridge device sends belongs to: by its tag, or the bridge's own PVID.
Decision<std::uint16_t> bridge_vid(const Link &bridge, const ForwardPath &path, Fib &fib)
{
    const auto &own = fib.bridge_vlans(bridge.index);
    if (!path.tags.empty()) {
        const VlanTag &tag = path.tags.front();
        const BridgeVlan *vlan = find_vlan(own, tag.vid);
        if (tag.proto != bridge.bridge->vlan_proto || !vlan || vlan->untagged)
            return obstacle(bridge, "VLAN " + std::to_string(tag.vid) + " is not its own");
        return tag.vid;
    }
    const auto pvid = std::find_if(own.begin(), own.end(), [](const auto &v) { return v.pvid; });
    if (pvid == own.end() || !pvid->untagged)
        return obstacle(bridge, "no untagged PVID of its own");
    return pvid->vid;
}

/// br_handle_vlan(): what becomes of the tag at the port. Frames that come in there by the same VLAN
/// have the same tags only where the PVID is the untagged VLAN.
Step leave_vlan(const Link &bridge, const Link &port, std::uint16_t vid, ForwardPath &path, Fib &fib)
{
    const BridgeVlan *vlan = find_vlan(fib.bridge_vlans(port.index), vid);
    if (!vlan)
        return obstacle(port, "not in VLAN " + std::to_string(vid));
    if (vlan->untagged && !vlan->pvid)
        return tl::unexpected(
            obstacle(port, "VLAN " + std::to_string(vid) + " leaves untagged, but is not its PVID"));
    const bool tagged = !path.tags.empty();
    if (vlan->untagged && tagged)
        path.tags.erase(path.tags.begin());
    else if (!vlan->untagged && !tagged)
        return push_tag(port, {bridge.bridge->vlan_proto, vid, 0}, &port, path);
    return &port;
}

/// br_dev_xmit(): to the port that the forwarding database names.
Step below_bridge(const Link &bridge, const Link &device, const IpAddr &next_hop, ForwardPath &path, Fib &fib)
{
    if (bridge.bridge->mst)
        return obstacle(bridge, "a spanning tree per VLAN");
    path.station = path.pppoe ? path.pppoe->peer : fib.neighbour_mac(device.index, next_hop);
    if (!path.station)
        return obstacle(bridge, "the next hop is not resolved");
    std::uint16_t vid = 0;
    if (bridge.bridge->vlan_filtering) {
        const auto own = bridge_vid(bridge, path, fib);
        if (!own)
            return tl::unexpected(own.error());
        vid = *own;
    }
    const Link *port = nullptr;
    if (const auto index = fib.fdb_port(bridge.index, *path.station, vid))
        port = fib.link(*index);
    if (!port || port->master != bridge.index || !port->port)
        return obstacle(bridge, "no port is known for " + path.station->str());
    if (!port->port->forwarding)
        return obstacle(*port, "not in forwarding state");
    if (port->port->locked || port->port->vlan_tunnel)
        return tl::unexpected(
            obstacle(*port, port->port->locked ? "a locked port" : "maps VLANs to tunnels"));
    return vid ? leave_vlan(bridge, *port, vid, path, fib) : Step(port);
}

} // namespace

Decision<ForwardPath> forward_path(const Link &device, const IpAddr &next_hop, Fib &fib)
{
    ForwardPath path;
    path.smac_dev = device.index;
    const Link *link = &device;
    for (;;) {
        path.devices.push_back(link->index);
        if (fib.attached(link->index))
            break;
        if (!(link->flags & IFF_UP))
            return obstacle(*link, "down");
        if (path.devices.size() == kMaxDevices)
            return obstacle(device, "too many devices below each other");
        Step lower = refuse(FTCTL_R_DEVICE, link->name);
        if (link->kind == "ppp")
            lower = below_pppoe(*link, path, fib);
        else if (link->vlan)
            lower = below_vlan(*link, path, fib);
        else if (link->bridge)
            lower = below_bridge(*link, device, next_hop, path, fib);
        if (!lower)
            return tl::unexpected(lower.error());
        link = *lower;
    }
    if (link->type != ARPHRD_ETHER)
        return refuse(FTCTL_R_PATH, link->name);
    path.oif = link->index;
    const Link *source = fib.link(path.smac_dev);
    path.upper_mac = source && source->mac != link->mac;
    if (!source || (path.upper_mac && fib.upper_mac(link->index) != source->mac))
        return obstacle(source ? *source : device,
                        "its MAC address is not the one that " + link->name + " takes frames for");
    return path;
}

} // namespace ftctl
