// SPDX-License-Identifier: GPL-2.0-only
// IPv6 packets made by hand.
#pragma once

#include "tunnel_packets.h"

namespace tunnel_test {

struct Ipv6Fields {
    std::string src = "2001:db8:1::2";
    std::string dst = "2001:db8:2::2";
    std::uint8_t next = IPPROTO_UDP;
    std::uint8_t tclass = 0;
    std::uint8_t hops = 63;
    std::uint32_t label = 0;
    Bytes payload = Bytes(32, 0xa5);
};

inline Bytes make_ipv6(const Ipv6Fields &f)
{
    Bytes p(40);
    p[0] = static_cast<std::uint8_t>(0x60 | f.tclass >> 4);
    p[1] = static_cast<std::uint8_t>(f.tclass << 4 | f.label >> 16);
    put16(p, 2, f.label & 0xffff);
    put16(p, 4, static_cast<unsigned>(f.payload.size()));
    p[6] = f.next;
    p[7] = f.hops;
    const auto src = ftctl::IpAddr::parse(f.src), dst = ftctl::IpAddr::parse(f.dst);
    std::memcpy(p.data() + 8, src->bytes.data(), 16);
    std::memcpy(p.data() + 24, dst->bytes.data(), 16);
    p.insert(p.end(), f.payload.begin(), f.payload.end());
    return p;
}

/// The sum over the pseudo header of RFC 8200 8.1 for a packet without extension headers.
inline std::uint16_t pseudo_sum6(const Bytes &p, std::uint8_t protocol)
{
    const Bytes pseudo(p.begin() + 8, p.begin() + 40);
    return static_cast<std::uint16_t>(
        ~checksum(pseudo, static_cast<std::uint32_t>(p.size() - 40) + protocol));
}

/// partial: the checksum is left to the device.
inline Bytes make_udp6(Ipv6Fields f, std::uint16_t sport, std::uint16_t dport, const Bytes &data,
                       bool partial = false)
{
    f.next = IPPROTO_UDP;
    f.payload = Bytes(8);
    put16(f.payload, 0, sport);
    put16(f.payload, 2, dport);
    put16(f.payload, 4, static_cast<unsigned>(8 + data.size()));
    f.payload.insert(f.payload.end(), data.begin(), data.end());
    Bytes p = make_ipv6(f);
    const std::uint16_t pseudo = pseudo_sum6(p, IPPROTO_UDP);
    put16(p, 46, partial ? pseudo : checksum(std::span(p).subspan(40), pseudo));
    return p;
}

inline Bytes make_tcp6(Ipv6Fields f, std::uint8_t flags, const Bytes &data, bool partial = false)
{
    f.next = IPPROTO_TCP;
    f.payload = Bytes(20);
    put16(f.payload, 0, 40000);
    put16(f.payload, 2, 80);
    f.payload[12] = 0x50;
    f.payload[13] = flags;
    f.payload.insert(f.payload.end(), data.begin(), data.end());
    Bytes p = make_ipv6(f);
    const std::uint16_t pseudo = pseudo_sum6(p, IPPROTO_TCP);
    put16(p, 56, partial ? pseudo : checksum(std::span(p).subspan(40), pseudo));
    return p;
}

/// The 8 bytes of RFC 2473 4.1.1 before what has this next header.
inline Bytes limit_option(std::uint8_t next, std::uint8_t limit)
{
    return {next, 0, 4, 1, limit, 1, 1, 0};
}

/// `inner` in IPv6, behind the encapsulation limit option when `limit` is 0 or more.
inline Bytes make_outer6(const std::string &src, const std::string &dst, const Bytes &inner,
                         std::uint8_t tclass = 0, int limit = -1)
{
    const std::uint8_t protocol = inner.at(0) >> 4 == 6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
    Ipv6Fields f;
    f.src = src;
    f.dst = dst;
    f.tclass = tclass;
    f.hops = 60;
    f.next = protocol;
    f.payload = inner;
    if (limit >= 0) {
        f.next = IPPROTO_DSTOPTS;
        f.payload = limit_option(protocol, static_cast<std::uint8_t>(limit));
        f.payload.insert(f.payload.end(), inner.begin(), inner.end());
    }
    return make_ipv6(f);
}

} // namespace tunnel_test
