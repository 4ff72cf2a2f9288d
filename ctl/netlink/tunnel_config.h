// SPDX-License-Identifier: GPL-2.0-only
// What a tunnel is set to, whoever terminates it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <sys/socket.h>

#include "util/addr.h"

namespace ftctl {

/// Tunnel settings of a link, from IFLA_INFO_DATA or from `ftctl tunnel add`.
struct TunnelConfig {
    enum class Mode { ipip, ip6ip6, ip4in6, ip6in4 };
    Mode mode = Mode::ipip;
    IpAddr local;           ///< none: chosen by the route
    IpAddr remote;          ///< none: any (NBMA); such tunnels are refused
    std::uint8_t ttl = 0;   ///< 0: inherit
    std::uint8_t tos = 0;   ///< bit 0 set: inherit (kernel encoding)
    bool pmtudisc = true;   ///< DF always set
    std::uint32_t link = 0; ///< underlay ifindex, 0: any
    std::uint32_t fwmark = 0;
    bool fou = false;        ///< FOU/GUE encapsulation on: refused
    bool collect_md = false; ///< metadata mode: refused
    bool declared = false;   ///< `ftctl tunnel add`, with the tun driver
    /// Carries IPv4 and IPv6 (kernel protocol 0, "any"); mode is then what it is mostly there for, and
    /// the packet inside decides: see for_payload().
    bool any = false;
    bool isatap = false; ///< sit: next hops are computed from inner addresses: refused

    /* IPv6 outside only */
    std::optional<std::uint8_t> encap_limit; ///< value of the destination option sent; none: not sent
    std::uint32_t flow_label = 0;            ///< 20 bits, host order; what is sent unless inherited
    bool flow_label_inherit = false;         ///< the inner IPv6 packet's; 0 for IPv4 inside
    /// Set by resolution: where the label comes out as 0, the kernel draws one (ip6_make_flowlabel()
    /// with net.ipv6.auto_flowlabels on), and so does the fast path.
    bool flow_label_drawn = false;
    bool dscp_copy = false;      ///< decapsulation gives the inner packet the outer DSCP
    bool fwmark_inherit = false; ///< the outer packet is routed by the inner packet's mark: refused
    bool mip6 = false;           ///< mobility tunnel: refused

    auto operator<=>(const TunnelConfig &) const = default;
};

/// "ipip", "ip6ip6", "4in6", "6in4" and back.
std::string mode_name(TunnelConfig::Mode mode);
std::optional<TunnelConfig::Mode> parse_mode(std::string_view text);

/// AF_INET or AF_INET6: the outer header's, and that of the packets it carries.
inline std::uint8_t outer_family(TunnelConfig::Mode mode)
{
    return mode == TunnelConfig::Mode::ipip || mode == TunnelConfig::Mode::ip6in4 ? AF_INET : AF_INET6;
}

inline std::uint8_t inner_family(TunnelConfig::Mode mode)
{
    return mode == TunnelConfig::Mode::ipip || mode == TunnelConfig::Mode::ip4in6 ? AF_INET : AF_INET6;
}

/// Bytes put before the inner packet: the outer header and, where it is sent, the 8 bytes of the
/// tunnel encapsulation limit option.
inline std::uint32_t outer_bytes(const TunnelConfig &config)
{
    if (outer_family(config.mode) == AF_INET)
        return 20;
    return config.encap_limit ? 48 : 40;
}

/// The same tunnel for packets of one family only (`any` cleared); none when it does not carry them.
inline std::optional<TunnelConfig> for_payload(const TunnelConfig &config, std::uint8_t family)
{
    using Mode = TunnelConfig::Mode;
    if (!config.any && inner_family(config.mode) != family)
        return std::nullopt;
    TunnelConfig one = config;
    if (outer_family(config.mode) == AF_INET)
        one.mode = family == AF_INET ? Mode::ipip : Mode::ip6in4;
    else
        one.mode = family == AF_INET ? Mode::ip4in6 : Mode::ip6ip6;
    one.any = false;
    return one;
}

} // namespace ftctl
