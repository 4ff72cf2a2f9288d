// SPDX-License-Identifier: GPL-2.0-only
// Addresses and tuples as the control plane handles them, for both families.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <arpa/inet.h>

namespace ftctl {

/// An IPv4 or IPv6 address. Bytes are in network order; IPv4 uses the first four.
struct IpAddr {
    std::uint8_t family = 0; ///< AF_INET, AF_INET6, or 0: none
    std::array<std::uint8_t, 16> bytes{};

    auto operator<=>(const IpAddr &) const = default;
    explicit operator bool() const { return family != 0; }

    [[nodiscard]] std::size_t size() const { return family == AF_INET ? 4 : family == AF_INET6 ? 16 : 0; }
    /// The IPv4 address as it stands in a packet (network order).
    [[nodiscard]] std::uint32_t v4() const
    {
        std::uint32_t be = 0;
        std::memcpy(&be, bytes.data(), 4);
        return be;
    }
    static IpAddr from_v4(std::uint32_t be)
    {
        IpAddr a;
        a.family = AF_INET;
        std::memcpy(a.bytes.data(), &be, 4);
        return a;
    }
    /// From netlink attribute bytes; none when len does not fit the family.
    static IpAddr from_bytes(std::uint8_t family, const void *data, std::size_t len);
    static std::optional<IpAddr> parse(std::string_view text);
    [[nodiscard]] std::string str() const; ///< "" for none
};

/// An address with a prefix length; matches everything when addr is none.
struct Prefix {
    IpAddr addr;
    std::uint8_t len = 0;

    auto operator<=>(const Prefix &) const = default;
    [[nodiscard]] bool contains(const IpAddr &a) const;
    /// "A" or "A/n"; host bits are allowed and ignored.
    static std::optional<Prefix> parse(std::string_view text);
    [[nodiscard]] std::string str() const;
};

/// A link-layer address.
struct Mac {
    std::array<std::uint8_t, 6> bytes{};

    auto operator<=>(const Mac &) const = default;
    [[nodiscard]] bool is_zero() const { return *this == Mac{}; }
    [[nodiscard]] std::string str() const;
    static std::optional<Mac> parse(std::string_view text);
};

/// What conntrack calls a tuple: one direction of a connection. Ports in host order.
struct Tuple {
    IpAddr src;
    IpAddr dst;
    std::uint16_t sport = 0;
    std::uint16_t dport = 0;
    std::uint8_t proto = 0;

    auto operator<=>(const Tuple &) const = default;
    [[nodiscard]] Tuple reversed() const { return {dst, src, dport, sport, proto}; }
    [[nodiscard]] std::string str() const; ///< "tcp 192.0.2.2:40000 -> 198.51.100.2:80"
};

/// "tcp", "udp", ..., or the number. Inverse: parse_proto.
std::string proto_name(std::uint8_t proto);
std::optional<std::uint8_t> parse_proto(std::string_view text);

/// Keyed with a random number: strangers choose the tuples.
struct TupleHash {
    std::size_t operator()(const Tuple &t) const;
};

} // namespace ftctl
