// SPDX-License-Identifier: GPL-2.0-only
// Frames as values: fill in the fields, render the bytes. Written from RFC 791, 8200, 768, 9293, 2003, 2473,
// 2516 and sharing nothing with the datapath, so that the two can disagree. All numbers are in host byte
// order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ftctl::test {

using Bytes = std::vector<std::uint8_t>;
using Mac = std::array<std::uint8_t, 6>;

/// An address in host byte order; throws std::invalid_argument on bad text.
std::uint32_t ip4(const char *text);

/// One's-complement sum of big-endian words, folded to 16 bits; an odd last byte counts as its high half.
std::uint16_t sum16(const std::uint8_t *data, std::size_t size, std::uint32_t start = 0);
/// One's-complement addition of two words.
std::uint16_t add16(std::uint16_t a, std::uint16_t b);

enum Proto : std::uint8_t {
    kIcmp = 1,
    kIpip = 4,
    kTcp = 6,
    kUdp = 17,
    kIpv6 = 41,
    kGre = 47,
    kEsp = 50,
    kSctp = 132
};
enum TcpFlag : std::uint8_t {
    kFin = 0x01,
    kSyn = 0x02,
    kRst = 0x04,
    kPsh = 0x08,
    kAck = 0x10,
    kUrg = 0x20,
    kEce = 0x40,
    kCwr = 0x80
};
enum Frag : std::uint16_t { kReserved = 0x8000, kDf = 0x4000, kMf = 0x2000 };

using Addr6 = std::array<std::uint8_t, 16>;

/// What makes an IP header one of IPv6.
struct Ipv6 {
    Addr6 src{};
    Addr6 dst{};
    std::uint32_t label = 0;
    std::optional<std::uint8_t> limit; ///< encapsulation limit, in a destination options header
    std::optional<std::uint16_t> payload_len;
};

/// What is unset is computed. `check_error` is added (one's complement) to the right checksum. With `v6` it
/// is an IPv6 header: tos, ttl and proto are its traffic class, hop limit and (last) next header, the rest of
/// IPv4's fields does not count.
struct Ipv4 {
    std::optional<Ipv6> v6;
    std::uint8_t version = 4;
    std::optional<std::uint8_t> ihl;
    std::uint8_t tos = 0;
    std::optional<std::uint16_t> tot_len;
    std::uint16_t id = 0x1c46;
    std::uint16_t frag = kDf; ///< flags and offset as in the header
    std::uint8_t ttl = 64;
    std::uint8_t proto = kTcp;
    std::uint32_t src = 0;
    std::uint32_t dst = 0;
    std::uint16_t check_error = 0;
    Bytes options;
};

struct Tcp {
    std::uint16_t sport = 0;
    std::uint16_t dport = 0;
    std::uint32_t seq = 0x10203040;
    std::uint32_t ack = 0x50607080;
    std::optional<std::uint8_t> doff;
    std::uint8_t reserved = 0; ///< low half of byte 12
    std::uint8_t flags = kAck;
    std::uint16_t window = 502;
    std::uint16_t urgent = 0;
    std::uint16_t check_error = 0;
    Bytes options;
};

struct Udp {
    std::uint16_t sport = 0;
    std::uint16_t dport = 0;
    std::optional<std::uint16_t> len;
    bool no_check = false; ///< checksum 0: the sender computed none
    std::uint16_t check_error = 0;
};

struct Packet {
    Mac dmac{};
    Mac smac{};
    Bytes tags;                             ///< between the source MAC and the EtherType
    std::optional<std::uint16_t> ethertype; ///< unset: what the first IP header asks for
    std::optional<std::uint16_t> pppoe;     ///< session; its header follows the tags
    std::vector<Ipv4> outer;                ///< outermost first
    Ipv4 ip;
    std::variant<Tcp, Udp, std::monostate> l4; ///< monostate: payload follows the IP header
    Bytes payload;
    std::size_t pad = 0; ///< bytes after the end of the (outermost) IP packet, 0xa5 each

    Tcp &tcp() { return std::get<Tcp>(l4); }
    Udp &udp() { return std::get<Udp>(l4); }

    /// Adds a tag inside of those that are there.
    Packet &tag(std::uint16_t proto, std::uint16_t tci);
    /// The L3 length of the inner packet.
    [[nodiscard]] std::size_t l3_len() const;
    [[nodiscard]] std::size_t l4_header_len() const;
    /// Changes the payload so that l3_len() becomes `size`.
    Packet &resize(std::size_t size);
    /// Adds what is missing to the least Ethernet frame (60 bytes without FCS).
    Packet &pad_to_minimum();
    [[nodiscard]] Bytes bytes() const;
};

/// Another address than it was, in either family.
void change_src(Ipv4 &ip);
void change_dst(Ipv4 &ip);

/// Payload of `size` bytes that differ from their neighbours.
Bytes pattern(std::size_t size, std::uint8_t start = 1);

/// Empty when equal; else every differing field by name, then both frames in hex.
std::string mismatch(const Bytes &want, const Bytes &got);
std::string hex(const Bytes &bytes);

std::uint16_t get16(const Bytes &bytes, std::size_t offset);

} // namespace ftctl::test
