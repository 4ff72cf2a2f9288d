// SPDX-License-Identifier: GPL-2.0-only
// What a tunnel does to a packet, as pure functions: no system call, no state.
#pragma once

#include <cstdint>
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
    bool driver;                ///< the tun driver can do it
};
const TunnelRow &tunnel_row(TunnelConfig::Mode mode);

/// May this tunnel be declared? Returns the configuration with what follows from it filled in
/// (declared set). Refuses with the reason and what to change.
Result<TunnelConfig> validate_tunnel(const TunnelConfig &config);

/// Both tunnels would take the same outer packets. The kernel's ip_tunnel_newlink() answers
/// EEXIST for equal pairs; here a pair that contains the other counts as well, since raw sockets
/// have no best match.
bool tunnels_overlap(const TunnelConfig &a, const TunnelConfig &b);

/// How an inner IPv4 packet goes out.
struct EncapDecision {
    enum class Verdict {
        drop,    ///< not a packet this tunnel carries, or it would loop
        too_big, ///< ICMP fragmentation needed with .mtu to the inner source, then drop
        send,
    };
    Verdict verdict = Verdict::drop;
    std::uint8_t tos = 0;     ///< outer TOS, DSCP and ECN
    std::uint8_t ttl = 0;     ///< outer TTL
    bool df = false;          ///< outer DF
    bool inner_df = false;    ///< the inner packet must not be fragmented
    std::uint16_t mtu = 0;    ///< with too_big: largest inner packet, bytes
    std::uint16_t length = 0; ///< inner total length, bytes
};

/// ip_tunnel_xmit(): TOS, ECN, TTL, DF and the size check of tnl_update_pmtu().
/// `inner` is the packet as read from the TUN device, its TTL already decremented.
/// underlay_mtu: of the path to the remote, outer header included, bytes; 0: not known, no check.
EncapDecision encap_ipv4(const TunnelConfig &config, std::span<const std::uint8_t> inner,
                         std::uint32_t underlay_mtu);

/// What happens to an outer packet that was delivered to this machine.
struct DecapDecision {
    enum class Verdict {
        drop,     ///< malformed, or not from this tunnel's peer
        drop_ecn, ///< RFC 6040: Not-ECT inside, CE outside
        deliver,
    };
    Verdict verdict = Verdict::drop;
    std::uint8_t tos = 0;     ///< inner TOS as delivered
    std::uint16_t offset = 0; ///< where the inner packet begins, bytes
    std::uint16_t length = 0; ///< its total length, bytes
};

/// ip_tunnel_rcv(), with the lookup of ip_tunnel_lookup() for this one tunnel. `packet` begins with
/// the outer IPv4 header and is reassembled, as a raw socket reads it.
DecapDecision decap_ipv4(const TunnelConfig &config, std::span<const std::uint8_t> packet);

/// Sets the TOS of an IPv4 header (20 bytes or more) and corrects its checksum incrementally, with
/// the same representation of zero as IP_ECN_set_ce() and IP_ECN_set_ect1().
void set_tos(std::span<std::uint8_t> header, std::uint8_t tos);

} // namespace ftctl
