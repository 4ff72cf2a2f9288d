// SPDX-License-Identifier: GPL-2.0-only
// Bridges. Kernel: br_fill_info(), br_port_fill_attrs(), br_fill_ifinfo(), fdb_fill_info().
#include "netlink/route_message.h"

#include <algorithm>

#include <linux/if_bridge.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

namespace ftctl::nl {
namespace {

void add_range(std::vector<BridgeVlan> &vlans, std::uint16_t first, std::uint16_t last, std::uint16_t flags)
{
    constexpr std::uint16_t max_vid = 4094;
    for (unsigned vid = first; vid <= std::min(last, max_vid); vid++)
        vlans.push_back({static_cast<std::uint16_t>(vid), (flags & BRIDGE_VLAN_INFO_PVID) != 0,
                         (flags & BRIDGE_VLAN_INFO_UNTAGGED) != 0});
}

std::vector<BridgeVlan> parse_vlans(const Attr &spec)
{
    std::vector<BridgeVlan> vlans;
    std::uint16_t begin = 0;
    for (const Attr &a : spec.nested()) {
        const auto info = a.type == IFLA_BRIDGE_VLAN_INFO ? load<bridge_vlan_info>(a.data) : std::nullopt;
        if (!info)
            continue;
        if (info->flags & BRIDGE_VLAN_INFO_RANGE_BEGIN) {
            begin = info->vid;
            continue;
        }
        const bool range = (info->flags & BRIDGE_VLAN_INFO_RANGE_END) && begin != 0;
        add_range(vlans, range ? begin : info->vid, info->vid, info->flags);
        begin = 0;
    }
    std::sort(vlans.begin(), vlans.end());
    return vlans;
}

bool about_fdb(const Message &m, const std::optional<ndmsg> &head)
{
    return (m.type == RTM_NEWNEIGH || m.type == RTM_DELNEIGH) && head && head->ndm_family == AF_BRIDGE &&
           head->ndm_ifindex > 0;
}

} // namespace

std::optional<FdbChanged> parse_fdb(const Message &m)
{
    if (!about_fdb(m, m.head<ndmsg>()))
        return std::nullopt;
    FdbChanged changed;
    bool has_mac = false;
    for (const Attr &a : m.attrs(sizeof(ndmsg))) {
        if (a.type == NDA_MASTER) {
            changed.bridge = a.u32().value_or(0);
        } else if (a.type == NDA_LLADDR && a.data.size() == changed.mac.bytes.size()) {
            std::memcpy(changed.mac.bytes.data(), a.data.data(), changed.mac.bytes.size());
            has_mac = true;
        }
    }
    // Without a master it is about a device's own filter (NTF_SELF), or a vxlan's database.
    if (changed.bridge == 0 || !has_mac)
        return std::nullopt;
    return changed;
}

std::optional<std::uint32_t> parse_fdb_port(const Message &m)
{
    const auto head = m.head<ndmsg>();
    // Permanent: an address of the bridge's own.
    if (!about_fdb(m, head) || m.type != RTM_NEWNEIGH || (head->ndm_state & NUD_PERMANENT))
        return std::nullopt;
    return static_cast<std::uint32_t>(head->ndm_ifindex);
}

std::optional<PortChanged> parse_port(const Message &m)
{
    const auto head = m.head<ifinfomsg>();
    if ((m.type != RTM_NEWLINK && m.type != RTM_DELLINK) || !head || head->ifi_family != AF_BRIDGE ||
        head->ifi_index <= 0)
        return std::nullopt;
    return PortChanged{static_cast<std::uint32_t>(head->ifi_index)};
}

std::optional<PortVlans> parse_port_vlans(const Message &m)
{
    const auto port = parse_port(m);
    if (!port)
        return std::nullopt;
    PortVlans found{port->index, {}};
    if (const auto spec = m.attrs(sizeof(ifinfomsg)).find(IFLA_AF_SPEC))
        found.vlans = parse_vlans(*spec);
    return found;
}

BridgeConfig parse_bridge(const Attr &data)
{
    BridgeConfig bridge;
    bridge.vlan_proto = ETH_P_8021Q;
    for (const Attr &a : data.nested()) {
        if (a.type == IFLA_BR_VLAN_FILTERING) {
            bridge.vlan_filtering = a.u8().value_or(1) != 0;
        } else if (a.type == IFLA_BR_VLAN_PROTOCOL) { // network order
            bridge.vlan_proto = a.be16().value_or(ETH_P_8021Q);
        } else if (a.type == IFLA_BR_MULTI_BOOLOPT) {
            const auto options = load<br_boolopt_multi>(a.data);
            bridge.mst = options && (options->optval & (1U << BR_BOOLOPT_MST_ENABLE));
        }
    }
    return bridge;
}

BridgePort parse_bridge_port(const Attr &data)
{
    BridgePort port;
    for (const Attr &a : data.nested()) {
        if (a.type == IFLA_BRPORT_STATE)
            port.forwarding = a.u8() == BR_STATE_FORWARDING;
        else if (a.type == IFLA_BRPORT_VLAN_TUNNEL)
            port.vlan_tunnel = a.u8().value_or(1) != 0;
        else if (a.type == IFLA_BRPORT_LOCKED)
            port.locked = a.u8().value_or(1) != 0;
    }
    return port;
}

} // namespace ftctl::nl
