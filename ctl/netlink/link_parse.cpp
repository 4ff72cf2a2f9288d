// SPDX-License-Identifier: GPL-2.0-only
// Links and their tunnel settings. Kernel: rtnl_fill_ifinfo(), ipip_fill_info(),
// ipip6_fill_info() (sit), ip6_tnl_fill_info().
#include "netlink/route_message.h"

#include <netinet/in.h>

#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_tunnel.h>
#include <linux/if_vlan.h>
#include <linux/ip6_tunnel.h>
#include <linux/rtnetlink.h>

namespace ftctl {

std::string mode_name(TunnelConfig::Mode mode)
{
    switch (mode) {
    case TunnelConfig::Mode::ipip:
        return "ipip";
    case TunnelConfig::Mode::ip6ip6:
        return "ip6ip6";
    case TunnelConfig::Mode::ip4in6:
        return "4in6";
    case TunnelConfig::Mode::ip6in4:
        return "6in4";
    }
    return "?";
}

std::optional<TunnelConfig::Mode> parse_mode(std::string_view text)
{
    using Mode = TunnelConfig::Mode;
    for (const Mode m : {Mode::ipip, Mode::ip6ip6, Mode::ip4in6, Mode::ip6in4})
        if (text == mode_name(m))
            return m;
    return std::nullopt;
}

namespace nl {
namespace {

/// 0.0.0.0 and :: mean "not set" in tunnel settings.
IpAddr set_or_none(const Attr &a, std::uint8_t family)
{
    const IpAddr addr = a.addr(family);
    return addr.bytes == decltype(addr.bytes){} ? IpAddr{} : addr;
}

/// The mode that a device of this kind has with this payload protocol. Protocol 0 is a device for
/// any payload: named by what it is mostly there for; the payload of a flow tells the rest.
std::optional<TunnelConfig::Mode> tunnel_mode(std::string_view kind, std::uint8_t proto)
{
    using Mode = TunnelConfig::Mode;
    const bool over6 = kind == "ip6tnl";
    switch (proto) {
    case 0:
        return over6 ? Mode::ip6ip6 : kind == "sit" ? Mode::ip6in4 : Mode::ipip;
    case IPPROTO_IPIP:
        return over6 ? Mode::ip4in6 : Mode::ipip;
    case IPPROTO_IPV6:
        return over6 ? Mode::ip6ip6 : Mode::ip6in4;
    default: // MPLS
        return std::nullopt;
    }
}

/// What stands in attributes of its own and means something only together.
struct RawTunnel {
    std::uint8_t proto = 0;
    std::uint32_t flowinfo = 0; ///< host order: traffic class in bits 20..27, flow label below
    std::uint32_t flags = 0;    ///< ip6tnl: IP6_TNL_F_*; sit: SIT_*
    std::uint8_t encap_limit = 0;
};

void read_tunnel_attr(const Attr &a, std::uint8_t family, TunnelConfig &t, RawTunnel &raw)
{
    switch (a.type) {
    case IFLA_IPTUN_LINK:
        t.link = a.u32().value_or(0);
        break;
    case IFLA_IPTUN_LOCAL:
        t.local = set_or_none(a, family);
        break;
    case IFLA_IPTUN_REMOTE:
        t.remote = set_or_none(a, family);
        break;
    case IFLA_IPTUN_TTL:
        t.ttl = a.u8().value_or(0);
        break;
    case IFLA_IPTUN_TOS:
        t.tos = a.u8().value_or(0);
        break;
    case IFLA_IPTUN_ENCAP_LIMIT:
        raw.encap_limit = a.u8().value_or(0);
        break;
    case IFLA_IPTUN_FLOWINFO:
        raw.flowinfo = a.be32().value_or(0);
        break;
    case IFLA_IPTUN_FLAGS: // u32 for ip6tnl; 16 bits for sit, in host order whatever their type says
        raw.flags =
            a.data.size() == sizeof(std::uint16_t) ? a.num<std::uint16_t>().value_or(0) : a.u32().value_or(0);
        break;
    case IFLA_IPTUN_PROTO:
        raw.proto = a.u8().value_or(raw.proto);
        break;
    case IFLA_IPTUN_PMTUDISC:
        t.pmtudisc = a.u8().value_or(1) != 0;
        break;
    case IFLA_IPTUN_ENCAP_TYPE:
        t.fou = a.num<std::uint16_t>().value_or(TUNNEL_ENCAP_FOU) != TUNNEL_ENCAP_NONE;
        break;
    case IFLA_IPTUN_COLLECT_METADATA:
        t.collect_md = true;
        break;
    case IFLA_IPTUN_FWMARK:
        t.fwmark = a.u32().value_or(0);
        break;
    default: // a 6rd prefix decides only where there is no remote (try_6rd(), packet_is_spoofed())
        break;
    }
}

/// What ip6_tnl_link_config() and ipxip6_tnl_xmit() make of flags and flow info.
void finish_ip6tnl(const RawTunnel &raw, TunnelConfig &t)
{
    constexpr std::uint8_t inherit = 1; // a fixed class loses this bit: it is ECN's, which is overwritten
    t.tos = (raw.flags & IP6_TNL_F_USE_ORIG_TCLASS) ? inherit
                                                    : static_cast<std::uint8_t>(raw.flowinfo >> 20 & 0xfe);
    t.flow_label_inherit = (raw.flags & IP6_TNL_F_USE_ORIG_FLOWLABEL) != 0;
    t.flow_label = t.flow_label_inherit ? 0 : raw.flowinfo & 0xfffff;
    if (!(raw.flags & IP6_TNL_F_IGN_ENCAP_LIMIT))
        t.encap_limit = raw.encap_limit;
    t.dscp_copy = (raw.flags & IP6_TNL_F_RCV_DSCP_COPY) != 0;
    t.fwmark_inherit = (raw.flags & IP6_TNL_F_USE_ORIG_FWMARK) != 0;
    t.mip6 = (raw.flags & IP6_TNL_F_MIP6_DEV) != 0;
}

std::optional<TunnelConfig> parse_tunnel(std::string_view kind, const Attr &data)
{
    const bool over6 = kind == "ip6tnl";
    if (!over6 && kind != "ipip" && kind != "sit")
        return std::nullopt;
    TunnelConfig t;
    RawTunnel raw;
    raw.proto = kind == "ipip" ? IPPROTO_IPIP : IPPROTO_IPV6;
    for (const Attr &a : data.nested())
        read_tunnel_attr(a, over6 ? AF_INET6 : AF_INET, t, raw);
    if (over6)
        finish_ip6tnl(raw, t);
    if (kind == "sit")
        t.isatap = (raw.flags & SIT_ISATAP) != 0;
    const auto mode = tunnel_mode(kind, raw.proto);
    if (!mode)
        return std::nullopt;
    t.mode = *mode;
    t.any = raw.proto == 0 && kind != "ipip"; // ipip's other payload is MPLS
    // ipip6_tunnel_xmit() inherits for the value 1 only; elsewhere the lowest bit is ECN's, which is lost.
    if (t.mode == TunnelConfig::Mode::ip6in4 && t.tos != 1)
        t.tos &= 0xfe;
    return t;
}

void parse_xdp(const Attr &xdp, Link &link)
{
    std::uint32_t any = 0;
    std::uint32_t drv = 0;
    std::uint32_t skb = 0;
    std::uint32_t hw = 0;
    for (const Attr &a : xdp.nested()) {
        switch (a.type) {
        case IFLA_XDP_ATTACHED:
            link.xdp_mode = a.u8().value_or(0);
            break;
        case IFLA_XDP_PROG_ID:
            any = a.u32().value_or(0);
            break;
        case IFLA_XDP_DRV_PROG_ID:
            drv = a.u32().value_or(0);
            break;
        case IFLA_XDP_SKB_PROG_ID:
            skb = a.u32().value_or(0);
            break;
        case IFLA_XDP_HW_PROG_ID:
            hw = a.u32().value_or(0);
            break;
        default:
            break;
        }
    }
    // With several programs attached (XDP_ATTACHED_MULTI) there is no common id.
    for (const std::uint32_t id : {any, drv, skb, hw})
        if (link.xdp_prog_id == 0)
            link.xdp_prog_id = id;
}

std::optional<VlanConfig> parse_vlan(const Attr &data)
{
    VlanConfig vlan;
    vlan.tag.proto = ETH_P_8021Q;
    for (const Attr &a : data.nested()) {
        switch (a.type) {
        case IFLA_VLAN_ID:
            vlan.tag.vid = a.u16().value_or(0);
            break;
        case IFLA_VLAN_PROTOCOL: // network order
            vlan.tag.proto = a.be16().value_or(ETH_P_8021Q);
            break;
        case IFLA_VLAN_FLAGS:
            if (ifla_vlan_flags flags{}; a.data.size() >= sizeof(flags)) {
                std::memcpy(&flags, a.data.data(), sizeof(flags));
                vlan.keeps_tag = !(flags.flags & VLAN_FLAG_REORDER_HDR);
            }
            break;
        case IFLA_VLAN_EGRESS_QOS:
            for (const Attr &one : a.nested())
                if (const auto map = load<ifla_vlan_qos_mapping>(one.data); map && map->from < 8) {
                    const std::uint32_t shift = map->from * 4; // vlan_dev_get_egress_qos_mask()
                    vlan.tag.pcp = (vlan.tag.pcp & ~(0xfU << shift)) | (map->to & 7U) << shift;
                }
            break;
        default:
            break;
        }
    }
    return vlan;
}

void parse_linkinfo(const Attr &info, Link &link)
{
    std::optional<Attr> data;
    std::optional<Attr> port;
    for (const Attr &a : info.nested()) {
        if (a.type == IFLA_INFO_KIND)
            link.kind = a.text();
        else if (a.type == IFLA_INFO_DATA)
            data = a;
        else if (a.type == IFLA_INFO_SLAVE_KIND)
            link.master_kind = a.text();
        else if (a.type == IFLA_INFO_SLAVE_DATA)
            port = a;
    }
    if (port && link.master_kind == "bridge")
        link.port = parse_bridge_port(*port);
    if (data && link.kind == "vlan")
        link.vlan = parse_vlan(*data);
    else if (data && link.kind == "bridge")
        link.bridge = parse_bridge(*data);
    else if (data)
        link.tunnel = parse_tunnel(link.kind, *data);
}

} // namespace

std::optional<Link> parse_link(const Message &m)
{
    const auto head = m.head<ifinfomsg>();
    if ((m.type != RTM_NEWLINK && m.type != RTM_DELLINK) || !head || head->ifi_family != AF_UNSPEC ||
        head->ifi_index <= 0)
        return std::nullopt;
    Link link;
    link.index = static_cast<std::uint32_t>(head->ifi_index);
    link.type = head->ifi_type;
    link.flags = head->ifi_flags;
    bool other_namespace = false;
    for (const Attr &a : m.attrs(sizeof(ifinfomsg))) {
        switch (a.type) {
        case IFLA_IFNAME:
            link.name = a.text().substr(0, IFNAMSIZ - 1);
            break;
        case IFLA_MTU:
            link.mtu = a.u32().value_or(0);
            break;
        case IFLA_ADDRESS:
            if (a.data.size() == link.mac.bytes.size())
                std::memcpy(link.mac.bytes.data(), a.data.data(), link.mac.bytes.size());
            break;
        case IFLA_LINK:
            link.lower = a.u32().value_or(0);
            break;
        case IFLA_LINK_NETNSID: // the index counts in another namespace
            other_namespace = true;
            break;
        case IFLA_MASTER:
            link.master = a.u32().value_or(0);
            break;
        case IFLA_OPERSTATE: {
            const auto state = a.u8().value_or(IF_OPER_DOWN);
            link.carrier = state == IF_OPER_UP || state == IF_OPER_UNKNOWN;
            break;
        }
        case IFLA_QDISC:
            link.qdisc = a.text();
            break;
        case IFLA_XDP:
            parse_xdp(a, link);
            break;
        case IFLA_LINKINFO:
            parse_linkinfo(a, link);
            break;
        default:
            break;
        }
    }
    if (other_namespace)
        link.lower = 0;
    return link;
}

} // namespace nl
} // namespace ftctl
