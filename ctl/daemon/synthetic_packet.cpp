// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/synthetic_packet.h"

#include <cstddef>

#include <linux/if_ether.h>
#include <linux/ppp_defs.h>
#include <netinet/in.h>

namespace ftctl {

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kIpv4Len = 20, kIpv6Len = 40, kTcpLen = 20, kUdpLen = 8, kGreLen = 4;

void put16(Bytes &out, std::uint32_t value)
{
    out.push_back(static_cast<std::uint8_t>(value >> 8));
    out.push_back(static_cast<std::uint8_t>(value));
}

/// Bytes as they stand in memory.
void put_raw(Bytes &out, const void *data, std::size_t size)
{
    const auto *bytes = static_cast<const std::uint8_t *>(data);
    out.insert(out.end(), bytes, bytes + size);
}

/// An IPv4 header with a right checksum for `payload` bytes after it.
void put_ipv4(Bytes &out, std::uint8_t proto, const ftctl_addr &src, const ftctl_addr &dst,
              std::size_t payload)
{
    const std::size_t at = out.size();
    put16(out, 0x4500);
    put16(out, static_cast<std::uint32_t>(kIpv4Len + payload));
    put16(out, 1);               // id
    put16(out, 0x4000);          // DF
    put16(out, 0x4000U | proto); // TTL 64
    put16(out, 0);
    put_raw(out, src.w, 4);
    put_raw(out, dst.w, 4);
    std::uint32_t sum = 0;
    for (std::size_t i = at; i < at + kIpv4Len; i += 2)
        sum += static_cast<std::uint32_t>(out[i] << 8 | out[i + 1]);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    out[at + 10] = static_cast<std::uint8_t>(~sum >> 8);
    out[at + 11] = static_cast<std::uint8_t>(~sum);
}

void put_ipv6(Bytes &out, std::uint8_t proto, const ftctl_addr &src, const ftctl_addr &dst,
              std::size_t payload)
{
    put16(out, 0x6000);
    put16(out, 0);
    put16(out, static_cast<std::uint32_t>(payload));
    put16(out, static_cast<std::uint32_t>(proto) << 8 | 64); // hop limit
    put_raw(out, src.w, 16);
    put_raw(out, dst.w, 16);
}

void put_ip(Bytes &out, bool v6, std::uint8_t proto, const ftctl_addr &src, const ftctl_addr &dst,
            std::size_t payload)
{
    (v6 ? put_ipv6 : put_ipv4)(out, proto, src, dst, payload);
}

std::size_t l4_len(std::uint8_t proto)
{
    return proto == IPPROTO_TCP ? kTcpLen : proto == IPPROTO_UDP ? kUdpLen : kGreLen;
}

void put_l4(Bytes &out, std::uint8_t proto, const ftctl_tuple &tuple)
{
    if (proto == IPPROTO_GRE) {
        put16(out, 0);
        put16(out, ETH_P_IP);
        return;
    }
    put_raw(out, &tuple.sport, 2);
    put_raw(out, &tuple.dport, 2);
    if (proto == IPPROTO_TCP) {
        out.insert(out.end(), 8, 0); // sequence numbers
        put16(out, 0x5010);          // 20 bytes, ACK
        out.insert(out.end(), {0xff, 0xff, 0, 0, 0, 0});
    } else {
        put16(out, kUdpLen);
        put16(out, 0);
    }
}

void put_l2(Bytes &out, std::uint64_t mac, const ftctl_tuple &tuple, bool v6, std::size_t l3_len)
{
    constexpr std::uint8_t kSomebody[6] = {2, 0, 0, 0, 0, 1};
    for (int i = 0; i < 6; i++)
        out.push_back(static_cast<std::uint8_t>(mac >> (8 * i)));
    put_raw(out, tuple.pppoe != 0 ? tuple.peer : kSomebody, sizeof(kSomebody));
    for (const ftctl_vlan &vlan : tuple.vlan)
        if (vlan.proto != 0) {
            put_raw(out, &vlan.proto, 2);
            put_raw(out, &vlan.vid, 2);
        }
    if (tuple.pppoe != 0) {
        put16(out, ETH_P_PPP_SES);
        put16(out, 0x1100);
        put_raw(out, &tuple.pppoe, 2);
        put16(out, static_cast<std::uint32_t>(l3_len + 2));
        put16(out, v6 ? PPP_IPV6 : PPP_IP);
    } else {
        put16(out, v6 ? ETH_P_IPV6 : ETH_P_IP);
    }
}

} // namespace

Bytes synthetic_packet(std::uint64_t mac, const ftctl_tuple &tuple)
{
    const std::uint8_t proto = ftctl_proto(&tuple);
    const bool inner_v6 = tuple.family == 6;
    const bool outer_v6 = tuple.tunnel == FTCTL_TUNNEL_IPV6;
    const bool tunnel = tuple.tunnel != FTCTL_TUNNEL_NONE;
    const std::size_t l4 = l4_len(proto);
    const std::size_t inner = (inner_v6 ? kIpv6Len : kIpv4Len) + l4;
    const std::size_t outer = !tunnel ? 0 : outer_v6 ? kIpv6Len : kIpv4Len;

    Bytes out;
    put_l2(out, mac, tuple, tunnel ? outer_v6 : inner_v6, outer + inner);
    if (tunnel)
        put_ip(out, outer_v6, inner_v6 ? IPPROTO_IPV6 : IPPROTO_IPIP, tuple.outer_src, tuple.outer_dst,
               inner);
    put_ip(out, inner_v6, proto, tuple.src, tuple.dst, l4);
    put_l4(out, proto, tuple);
    return out;
}

} // namespace ftctl
