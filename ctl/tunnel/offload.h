// SPDX-License-Identifier: GPL-2.0-only
// Packets whose checksum or segmentation the kernel had put off.
#pragma once

#include <cstdint>
#include <span>

namespace ftctl {

/// struct virtio_net_hdr of <linux/virtio_net.h>, which is not valid C++; fields in host order,
/// as a TUN device without TUNSETVNETLE has them.
struct VnetHeader {
    std::uint8_t flags = 0;
    std::uint8_t gso_type = 0;
    std::uint16_t hdr_len = 0;     ///< bytes of headers that every segment repeats
    std::uint16_t gso_size = 0;    ///< payload bytes of a segment
    std::uint16_t csum_start = 0;  ///< from the IP header on
    std::uint16_t csum_offset = 0; ///< from csum_start on
};
static_assert(sizeof(VnetHeader) == 10);
inline constexpr std::uint8_t kVnetNeedsCsum = 1; ///< VIRTIO_NET_HDR_F_NEEDS_CSUM
inline constexpr std::uint8_t kVnetGsoTcp4 = 1;   ///< VIRTIO_NET_HDR_GSO_TCPV4
inline constexpr std::uint8_t kVnetGsoTcp6 = 4;   ///< VIRTIO_NET_HDR_GSO_TCPV6
inline constexpr std::uint8_t kVnetGsoEcn = 0x80; ///< VIRTIO_NET_HDR_GSO_ECN

/// Fills the header that goes before an inner packet written to the TUN device.
///
/// A raw socket reads packets as they are queued: GRO, or a veth peer, may have left one TCP packet
/// of many segments, or a checksum field that holds only the pseudo header's sum
/// (CHECKSUM_PARTIAL). Nothing says so beside the bytes, and nothing is lost by treating a finished
/// checksum that happens to look like that as unfinished: finishing it gives the same value.
///
/// mtu: of the tunnel device; the size of the segments of an aggregate is gone, so they are made as
/// large as the tunnel carries. Returns false when the packet cannot be taken apart again (UDP
/// aggregates have lost where a datagram ends): drop.
bool fill_vnet_header(std::span<const std::uint8_t> inner, std::uint16_t mtu, VnetHeader &header);

} // namespace ftctl
