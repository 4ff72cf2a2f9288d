// SPDX-License-Identifier: GPL-2.0-only
// What a tunnel does to a packet, as pure functions: no system call, no state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "netlink/route.h"
#include "util/result.h"

namespace ftctl {

/// One tunnel mode: what is inside what.
struct TunnelRow {
    TunnelConfig::Mode mode;
    std::string_view name;     ///< as `ftctl tunnel add ... mode NAME` has it
    std::uint8_t outer_family; ///< AF_INET or AF_INET6
    std::uint8_t inner_family;
    std::uint8_t protocol;      ///< protocol or next header of the outer header, IPPROTO_*
    std::uint16_t header_bytes; ///< outer header; what a device's MTU loses
};
const TunnelRow &tunnel_row(TunnelConfig::Mode mode);

/// May this tunnel be declared? Returns the configuration with what follows from it filled in
/// (declared set). Refuses with the reason and what to change.
Result<TunnelConfig> validate_tunnel(const TunnelConfig &config);

/// Both tunnels would take the same outer packets. The kernel's ip_tunnel_newlink() answers
/// EEXIST for equal pairs; here a pair that contains the other counts as well, since raw sockets
/// have no best match.
bool tunnels_overlap(const TunnelConfig &a, const TunnelConfig &b);

/// How an inner packet goes out.
struct EncapDecision {
    enum class Verdict {
        drop,     ///< not a packet this tunnel carries, or it would loop
        too_big,  ///< ICMP with .mtu to the inner source, then drop
        too_deep, ///< the inner packet's encapsulation limit is used up: ICMPv6 with .pointer, then drop
        send,
    };
    Verdict verdict = Verdict::drop;
    std::uint8_t tos = 0;                    ///< outer TOS or traffic class, DSCP and ECN
    std::uint8_t ttl = 0;                    ///< outer TTL or hop limit
    bool df = false;                         ///< outer DF (IPv4 outside)
    bool inner_df = false;                   ///< the inner packet must not be fragmented: DF, or IPv6
    std::uint32_t flow_label = 0;            ///< outer flow label, host order (IPv6 outside)
    std::optional<std::uint8_t> encap_limit; ///< value of the option to send (IPv6 outside)
    std::uint16_t mtu = 0;                   ///< with too_big: largest inner packet, bytes
    std::uint16_t pointer = 0;               ///< with too_deep: where in the inner packet, bytes
    std::uint32_t length = 0;                ///< inner total length, bytes
};

/// ip_tunnel_xmit(), ipip6_tunnel_xmit() or ipxip6_tnl_xmit() with ip6_tnl_xmit(), by the mode: TOS, ECN,
/// TTL, DF, flow label, encapsulation limit and size.
/// `inner` is the packet as read from the TUN device, its TTL already decremented.
/// underlay_mtu: of the path to the remote, outer header included, bytes; 0: not known, no check.
EncapDecision encap_packet(const TunnelConfig &config, std::span<const std::uint8_t> inner,
                           std::uint32_t underlay_mtu);

/// Where the tunnel encapsulation limit option of an IPv6 packet begins (RFC 2473 4.1.1), bytes from
/// its start: ip6_tnl_parse_tlv_enc_lim(). None when there is no such option.
std::optional<std::uint16_t> find_encap_limit(std::span<const std::uint8_t> packet);

/// What happens to an outer packet that was delivered to this machine.
struct DecapDecision {
    enum class Verdict {
        drop,     ///< malformed, or not from this tunnel's peer
        drop_ecn, ///< RFC 6040: Not-ECT inside, CE outside
        deliver,
    };
    Verdict verdict = Verdict::drop;
    std::uint8_t tos = 0;     ///< inner TOS or traffic class as delivered
    std::uint32_t offset = 0; ///< where the inner packet begins, bytes
    std::uint32_t length = 0; ///< its total length, bytes
};

/// ip_tunnel_rcv() or ipip6_rcv(), with the lookup of ip_tunnel_lookup() for this one tunnel. `packet`
/// begins with the outer IPv4 header and is reassembled, as a raw IPv4 socket reads it.
DecapDecision decap_packet(const TunnelConfig &config, std::span<const std::uint8_t> packet);

/// What a raw IPv6 socket tells of the header that it does not hand out.
struct OuterHeader {
    IpAddr src;
    IpAddr dst;
    std::uint8_t traffic_class = 0;
};

/// The same for IPv6 outside (ipxip6_rcv). `payload` is what follows the outer header and its options.
DecapDecision decap_payload(const TunnelConfig &config, const OuterHeader &outer,
                            std::span<const std::uint8_t> payload);

/// Sets the TOS of an IPv4 header (20 bytes or more) and corrects its checksum incrementally, with
/// the same representation of zero as IP_ECN_set_ce() and IP_ECN_set_ect1(); or the traffic class of
/// an IPv6 header.
void set_tos(std::span<std::uint8_t> header, std::uint8_t tos);

} // namespace ftctl
