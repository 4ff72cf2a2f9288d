// SPDX-License-Identifier: GPL-2.0-only
#include "util/addr.h"

#include <charconv>
#include <random>

#include <netinet/in.h>

#include <fmt/format.h>

namespace ftctl {

IpAddr IpAddr::from_bytes(std::uint8_t family, const void *data, std::size_t len)
{
    IpAddr a;
    a.family = family;
    if (a.size() == 0 || a.size() != len)
        return {};
    std::memcpy(a.bytes.data(), data, len);
    return a;
}

std::optional<IpAddr> IpAddr::parse(std::string_view text)
{
    IpAddr a;
    const std::string z(text);
    if (inet_pton(AF_INET, z.c_str(), a.bytes.data()) == 1) {
        a.family = AF_INET;
        return a;
    }
    if (inet_pton(AF_INET6, z.c_str(), a.bytes.data()) == 1) {
        a.family = AF_INET6;
        return a;
    }
    return std::nullopt;
}

std::string IpAddr::str() const
{
    std::array<char, INET6_ADDRSTRLEN> buf{};
    if (family == 0 || !inet_ntop(family, bytes.data(), buf.data(), buf.size()))
        return {};
    return buf.data();
}

bool Prefix::contains(const IpAddr &a) const
{
    if (!addr)
        return true;
    if (a.family != addr.family)
        return false;
    const std::size_t whole = len / 8;
    if (std::memcmp(a.bytes.data(), addr.bytes.data(), whole) != 0)
        return false;
    const unsigned rest = len % 8;
    if (rest == 0)
        return true;
    const auto mask = static_cast<std::uint8_t>(0xff00U >> rest);
    return ((a.bytes.at(whole) ^ addr.bytes.at(whole)) & mask) == 0;
}

std::optional<Prefix> Prefix::parse(std::string_view text)
{
    const auto slash = text.find('/');
    const auto addr = IpAddr::parse(text.substr(0, slash));
    if (!addr)
        return std::nullopt;
    const auto bits = static_cast<std::uint8_t>(addr->size() * 8);
    if (slash == std::string_view::npos)
        return Prefix{*addr, bits};
    const auto digits = text.substr(slash + 1);
    std::uint8_t len = 0;
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), len);
    if (ec != std::errc{} || end != digits.data() + digits.size() || len > bits)
        return std::nullopt;
    return Prefix{*addr, len};
}

std::string Prefix::str() const
{
    return addr ? fmt::format("{}/{}", addr.str(), len) : "any";
}

std::string Mac::str() const
{
    return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", bytes[0], bytes[1], bytes[2], bytes[3],
                       bytes[4], bytes[5]);
}

std::optional<Mac> Mac::parse(std::string_view text)
{
    if (text.size() != 17)
        return std::nullopt;
    Mac mac;
    for (std::size_t i = 0; i < 6; i++) {
        const char *at = text.data() + 3 * i;
        if (i < 5 && at[2] != ':')
            return std::nullopt;
        const auto [end, ec] = std::from_chars(at, at + 2, mac.bytes.at(i), 16);
        if (ec != std::errc{} || end != at + 2)
            return std::nullopt;
    }
    return mac;
}

std::string Tuple::str() const
{
    const auto end = [](const IpAddr &a, std::uint16_t port) {
        return a.family == AF_INET6 ? fmt::format("[{}]:{}", a.str(), port)
                                    : fmt::format("{}:{}", a.str(), port);
    };
    return fmt::format("{} {} -> {}", proto_name(proto), end(src, sport), end(dst, dport));
}

std::string proto_name(std::uint8_t proto)
{
    switch (proto) {
    case IPPROTO_TCP:
        return "tcp";
    case IPPROTO_UDP:
        return "udp";
    case IPPROTO_ICMP:
        return "icmp";
    case IPPROTO_GRE:
        return "gre";
    default:
        return std::to_string(proto);
    }
}

std::optional<std::uint8_t> parse_proto(std::string_view text)
{
    for (const std::uint8_t p : {IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_GRE})
        if (text == proto_name(p))
            return p;
    std::uint8_t n = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (ec != std::errc{} || end != text.data() + text.size())
        return std::nullopt;
    return n;
}

namespace {

/// Both halves of the product of 64-bit numbers, folded.
std::uint64_t fold(std::uint64_t a, std::uint64_t b)
{
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::array<std::uint64_t, 5> hash_key()
{
    std::random_device random;
    std::uniform_int_distribution<std::uint64_t> any;
    return {any(random), any(random), any(random), any(random), any(random)};
}

} // namespace

std::size_t TupleHash::operator()(const Tuple &t) const
{
    static const std::array<std::uint64_t, 5> key = hash_key();
    const auto word = [](const IpAddr &a, std::size_t at) {
        std::uint64_t w = 0;
        std::memcpy(&w, a.bytes.data() + at, sizeof(w));
        return w;
    };
    const std::uint64_t ports =
        static_cast<std::uint64_t>(t.sport) << 32 | static_cast<std::uint64_t>(t.dport) << 16 | t.proto;
    std::uint64_t h = fold(word(t.src, 0) ^ key[0], word(t.dst, 0) ^ key[1]);
    if (t.src.family == AF_INET6)
        h = fold(word(t.src, 8) ^ key[2], word(t.dst, 8) ^ key[3] ^ h);
    return static_cast<std::size_t>(fold(h ^ key[4], ports ^ key[0]));
}

} // namespace ftctl
