// SPDX-License-Identifier: GPL-2.0-only
// IPv4 packets made by hand, and the checks on them.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <netinet/in.h>

#include "util/addr.h"

namespace tunnel_test {

using Bytes = std::vector<std::uint8_t>;

struct Ipv4Fields {
    std::string src = "10.1.0.2";
    std::string dst = "10.2.0.2";
    std::uint8_t protocol = IPPROTO_UDP;
    std::uint8_t tos = 0;
    std::uint8_t ttl = 63;
    std::uint16_t id = 0x1234;
    std::uint16_t frag = 0;  ///< flags and offset, host order: 0x4000 is DF
    std::size_t options = 0; ///< bytes, a multiple of 4
    Bytes payload = Bytes(32, 0xa5);
};

inline void put16(Bytes &p, std::size_t at, unsigned v)
{
    p.at(at) = static_cast<std::uint8_t>(v >> 8);
    p.at(at + 1) = static_cast<std::uint8_t>(v);
}

inline unsigned get16(std::span<const std::uint8_t> p, std::size_t at)
{
    return static_cast<unsigned>(p[at]) << 8 | p[at + 1];
}

/// RFC 1071, written for plainness: the tests' own, not the product's.
inline std::uint16_t checksum(std::span<const std::uint8_t> p, std::uint32_t sum = 0)
{
    for (std::size_t i = 0; i < p.size(); ++i)
        sum += i % 2 == 0 ? static_cast<std::uint32_t>(p[i]) << 8 : p[i];
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
}

inline void fix_checksum(Bytes &p)
{
    const std::size_t ihl = (p.at(0) & 15U) * 4U;
    put16(p, 10, 0);
    put16(p, 10, checksum(std::span(p).first(ihl)));
}

inline Bytes make_ipv4(const Ipv4Fields &f)
{
    const std::size_t ihl = 20 + f.options;
    Bytes p(ihl + f.payload.size());
    p[0] = static_cast<std::uint8_t>(0x40 | ihl / 4);
    p[1] = f.tos;
    put16(p, 2, static_cast<unsigned>(p.size()));
    put16(p, 4, f.id);
    put16(p, 6, f.frag);
    p[8] = f.ttl;
    p[9] = f.protocol;
    const std::uint32_t src = ftctl::IpAddr::parse(f.src)->v4(), dst = ftctl::IpAddr::parse(f.dst)->v4();
    std::memcpy(p.data() + 12, &src, 4);
    std::memcpy(p.data() + 16, &dst, 4);
    for (std::size_t i = 20; i < ihl; ++i)
        p[i] = 1; // no operation
    std::copy(f.payload.begin(), f.payload.end(), p.begin() + static_cast<std::ptrdiff_t>(ihl));
    fix_checksum(p);
    return p;
}

/// The one's-complement sum over a UDP or TCP packet's pseudo header.
inline std::uint16_t pseudo_sum(const Bytes &p)
{
    const std::size_t ihl = (p.at(0) & 15U) * 4U;
    return static_cast<std::uint16_t>(
        ~checksum(std::span(p).subspan(12, 8), static_cast<std::uint32_t>(p[9] + p.size() - ihl)));
}

/// A UDP datagram in its packet; partial: the checksum is left to the device.
inline Bytes make_udp(Ipv4Fields f, std::uint16_t sport, std::uint16_t dport, const Bytes &data,
                      bool partial = false)
{
    f.protocol = IPPROTO_UDP;
    f.payload = Bytes(8);
    put16(f.payload, 0, sport);
    put16(f.payload, 2, dport);
    put16(f.payload, 4, static_cast<unsigned>(8 + data.size()));
    f.payload.insert(f.payload.end(), data.begin(), data.end());
    Bytes p = make_ipv4(f);
    const std::size_t ihl = 20 + f.options;
    const std::uint16_t pseudo = pseudo_sum(p);
    put16(p, ihl + 6, partial ? pseudo : checksum(std::span(p).subspan(ihl), pseudo));
    return p;
}

/// A TCP segment without options in its packet.
inline Bytes make_tcp(Ipv4Fields f, std::uint8_t flags, const Bytes &data, bool partial = false)
{
    f.protocol = IPPROTO_TCP;
    f.payload = Bytes(20);
    put16(f.payload, 0, 40000);
    put16(f.payload, 2, 80);
    f.payload[12] = 0x50;
    f.payload[13] = flags;
    f.payload.insert(f.payload.end(), data.begin(), data.end());
    Bytes p = make_ipv4(f);
    const std::size_t ihl = 20 + f.options;
    const std::uint16_t pseudo = pseudo_sum(p);
    put16(p, ihl + 16, partial ? pseudo : checksum(std::span(p).subspan(ihl), pseudo));
    return p;
}

inline Bytes make_outer(const std::string &src, const std::string &dst, const Bytes &inner,
                        std::uint8_t tos = 0)
{
    Ipv4Fields f;
    f.src = src;
    f.dst = dst;
    f.protocol = IPPROTO_IPIP;
    f.tos = tos;
    f.ttl = 60;
    f.payload = inner;
    return make_ipv4(f);
}

} // namespace tunnel_test
