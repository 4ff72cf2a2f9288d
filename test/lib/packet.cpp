// SPDX-License-Identifier: GPL-2.0-only
#include "packet.h"

#include <algorithm>
#include <arpa/inet.h>
#include <stdexcept>

#include <fmt/format.h>

namespace ftctl::test {
namespace {

void put8(Bytes &out, std::uint8_t value)
{
    out.push_back(value);
}

void put16(Bytes &out, std::uint16_t value)
{
    out.push_back(static_cast<std::uint8_t>(value >> 8));
    out.push_back(static_cast<std::uint8_t>(value));
}

void put32(Bytes &out, std::uint32_t value)
{
    put16(out, static_cast<std::uint16_t>(value >> 16));
    put16(out, static_cast<std::uint16_t>(value));
}

template <typename Range>
void append(Bytes &out, const Range &more)
{
    out.insert(out.end(), std::begin(more), std::end(more));
}

void set16(Bytes &out, std::size_t offset, std::uint16_t value)
{
    out.at(offset) = static_cast<std::uint8_t>(value >> 8);
    out.at(offset + 1) = static_cast<std::uint8_t>(value);
}

/// The checksum for a sum over the data, off by `error`. A zero is 0x0000 here; UDP writes it as 0xffff.
std::uint16_t checksum(std::uint16_t sum, std::uint16_t error)
{
    std::uint16_t check = add16(static_cast<std::uint16_t>(~sum), error);
    return check == 0xffff ? 0 : check;
}

Bytes render_ipv6(const Ipv4 &ip, std::size_t body)
{
    Bytes out;
    const Ipv6 &v6 = *ip.v6;
    const std::size_t options = v6.limit ? 8 : 0;
    put32(out, 6U << 28 | static_cast<std::uint32_t>(ip.tos) << 20 | (v6.label & 0xfffff));
    put16(out, v6.payload_len.value_or(static_cast<std::uint16_t>(options + body)));
    put8(out, v6.limit ? 60 : ip.proto);
    put8(out, ip.ttl);
    append(out, v6.src);
    append(out, v6.dst);
    if (v6.limit) // next header, length, tunnel encapsulation limit, PadN
        append(out, Bytes{ip.proto, 0, 4, 1, *v6.limit, 1, 1, 0});
    return out;
}

Bytes render_ip(const Ipv4 &ip, std::size_t body)
{
    if (ip.v6)
        return render_ipv6(ip, body);
    Bytes out;
    const std::size_t header = 20 + ip.options.size();
    const std::uint8_t ihl = ip.ihl.value_or(static_cast<std::uint8_t>(header / 4));

    put8(out, static_cast<std::uint8_t>((ip.version << 4) | ihl));
    put8(out, ip.tos);
    put16(out, ip.tot_len.value_or(static_cast<std::uint16_t>(header + body)));
    put16(out, ip.id);
    put16(out, ip.frag);
    put8(out, ip.ttl);
    put8(out, ip.proto);
    put16(out, 0);
    put32(out, ip.src);
    put32(out, ip.dst);
    append(out, ip.options);
    set16(out, 10, checksum(sum16(out.data(), out.size()), ip.check_error));
    return out;
}

std::uint16_t transport_check(const Ipv4 &ip, std::uint8_t proto, const Bytes &segment, std::size_t len,
                              std::uint16_t error)
{
    Bytes pseudo;
    if (ip.v6) {
        append(pseudo, ip.v6->src);
        append(pseudo, ip.v6->dst);
    } else {
        put32(pseudo, ip.src);
        put32(pseudo, ip.dst);
    }
    put16(pseudo, proto);
    put16(pseudo, static_cast<std::uint16_t>(len));
    const std::uint16_t start = sum16(pseudo.data(), pseudo.size());
    return checksum(sum16(segment.data(), std::min(len, segment.size()), start), error);
}

Bytes render_tcp(const Ipv4 &ip, const Tcp &tcp, const Bytes &payload)
{
    Bytes out;
    const std::uint8_t doff = tcp.doff.value_or(static_cast<std::uint8_t>(5 + tcp.options.size() / 4));
    put16(out, tcp.sport);
    put16(out, tcp.dport);
    put32(out, tcp.seq);
    put32(out, tcp.ack);
    put8(out, static_cast<std::uint8_t>((doff << 4) | (tcp.reserved & 15)));
    put8(out, tcp.flags);
    put16(out, tcp.window);
    put16(out, 0);
    put16(out, tcp.urgent);
    append(out, tcp.options);
    append(out, payload);
    set16(out, 16, transport_check(ip, kTcp, out, out.size(), tcp.check_error));
    return out;
}

Bytes render_udp(const Ipv4 &ip, const Udp &udp, const Bytes &payload)
{
    Bytes out;
    put16(out, udp.sport);
    put16(out, udp.dport);
    put16(out, udp.len.value_or(static_cast<std::uint16_t>(8 + payload.size())));
    put16(out, 0);
    append(out, payload);
    if (!udp.no_check) {
        const std::uint16_t check = transport_check(ip, kUdp, out, get16(out, 4), udp.check_error);
        set16(out, 6, check == 0 ? 0xffff : check);
    }
    return out;
}

struct Field {
    std::size_t begin;
    std::size_t size;
    const char *name;
};

constexpr Field kEthFields[] = {{0, 6, "eth.dst"}, {6, 6, "eth.src"}, {12, 2, "eth.type"}};
constexpr Field kIpFields[] = {{0, 1, "version/ihl"}, {1, 1, "tos"}, {2, 2, "tot_len"}, {4, 2, "id"},
                               {6, 2, "frag"},        {8, 1, "ttl"}, {9, 1, "proto"},   {10, 2, "check"},
                               {12, 4, "src"},        {16, 4, "dst"}};
constexpr Field kIp6Fields[] = {{0, 4, "version/class/label"}, {4, 2, "payload_len"}, {6, 1, "next"},
                                {7, 1, "hop_limit"},           {8, 16, "src"},        {24, 16, "dst"}};
constexpr Field kTcpFields[] = {{0, 2, "tcp.sport"},   {2, 2, "tcp.dport"},  {4, 4, "tcp.seq"},
                                {8, 4, "tcp.ack"},     {12, 1, "tcp.doff"},  {13, 1, "tcp.flags"},
                                {14, 2, "tcp.window"}, {16, 2, "tcp.check"}, {18, 2, "tcp.urgent"}};
constexpr Field kUdpFields[] = {
    {0, 2, "udp.sport"}, {2, 2, "udp.dport"}, {4, 2, "udp.len"}, {6, 2, "udp.check"}};

struct Named {
    std::size_t begin;
    std::size_t size;
    std::string name;
};

template <std::size_t N>
void name_fields(std::vector<Named> &out, const Field (&fields)[N], std::size_t at, const std::string &prefix)
{
    for (const Field &field : fields)
        out.push_back({at + field.begin, field.size, prefix + field.name});
}

/// Names for the fields of a frame, as far as it can be followed.
std::vector<Named> dissect(const Bytes &frame)
{
    std::vector<Named> out;
    name_fields(out, kEthFields, 0, "");
    std::size_t at = 14;
    if (frame.size() < at || (get16(frame, 12) != 0x0800 && get16(frame, 12) != 0x86dd))
        return out;
    for (int level = 0; level < 3 && frame.size() >= at + 40; ++level) {
        const bool v6 = frame[at] >> 4 == 6;
        if (v6)
            name_fields(out, kIp6Fields, at, fmt::format("ip[{}].", level));
        else
            name_fields(out, kIpFields, at, fmt::format("ip[{}].", level));
        std::uint8_t proto = frame[at + (v6 ? 6 : 9)];
        at += v6 ? 40 : static_cast<std::size_t>(frame[at] & 15) * 4;
        if (proto == 60 && frame.size() >= at + 8) {
            proto = frame[at];
            at += 8;
        }
        if (proto == kTcp)
            name_fields(out, kTcpFields, at, "");
        if (proto == kUdp)
            name_fields(out, kUdpFields, at, "");
        if (proto != kIpip && proto != kIpv6)
            break;
    }
    return out;
}

std::string slice(const Bytes &bytes, std::size_t begin, std::size_t size)
{
    std::string out;
    for (std::size_t i = begin; i < std::min(begin + size, bytes.size()); ++i)
        out += fmt::format("{:02x}", bytes[i]);
    return out.empty() ? "(beyond the end)" : out;
}

} // namespace

std::uint32_t ip4(const char *text)
{
    in_addr address{};
    if (inet_pton(AF_INET, text, &address) != 1)
        throw std::invalid_argument(text);
    return ntohl(address.s_addr);
}

std::uint16_t add16(std::uint16_t a, std::uint16_t b)
{
    const std::uint32_t sum = static_cast<std::uint32_t>(a) + b;
    return static_cast<std::uint16_t>((sum & 0xffff) + (sum >> 16));
}

std::uint16_t sum16(const std::uint8_t *data, std::size_t size, std::uint32_t start)
{
    std::uint64_t sum = start;
    for (std::size_t i = 0; i < size; ++i)
        sum += (i & 1) != 0 ? data[i] : static_cast<std::uint64_t>(data[i]) << 8;
    while ((sum >> 16) != 0)
        sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
}

std::uint16_t get16(const Bytes &bytes, std::size_t offset)
{
    return static_cast<std::uint16_t>((bytes.at(offset) << 8) | bytes.at(offset + 1));
}

std::size_t Packet::l4_header_len() const
{
    if (const Tcp *t = std::get_if<Tcp>(&l4))
        return 20 + t->options.size();
    return std::holds_alternative<Udp>(l4) ? 8 : 0;
}

std::size_t Packet::l3_len() const
{
    const std::size_t header = !ip.v6 ? 20 + ip.options.size() : ip.v6->limit ? 48 : 40;
    return header + l4_header_len() + payload.size();
}

Packet &Packet::tag(std::uint16_t proto, std::uint16_t tci)
{
    put16(tags, proto);
    put16(tags, tci);
    return *this;
}

Packet &Packet::resize(std::size_t size)
{
    const std::size_t headers = l3_len() - payload.size();
    if (size < headers)
        throw std::invalid_argument("resize: smaller than the headers");
    payload = pattern(size - headers);
    return *this;
}

Packet &Packet::pad_to_minimum()
{
    pad = 0;
    const std::size_t size = bytes().size();
    pad = size < 60 ? 60 - size : 0;
    return *this;
}

Bytes Packet::bytes() const
{
    Bytes body = payload;
    if (const Tcp *t = std::get_if<Tcp>(&l4))
        body = render_tcp(ip, *t, payload);
    else if (const Udp *u = std::get_if<Udp>(&l4))
        body = render_udp(ip, *u, payload);

    Bytes l3 = render_ip(ip, body.size());
    append(l3, body);
    for (auto header = outer.rbegin(); header != outer.rend(); ++header) {
        Bytes wrapped = render_ip(*header, l3.size());
        append(wrapped, l3);
        l3 = std::move(wrapped);
    }

    Bytes out;
    append(out, dmac);
    append(out, smac);
    append(out, tags);
    const bool v6 = (outer.empty() ? ip : outer.front()).v6.has_value();
    if (pppoe) {
        put16(out, ethertype.value_or(0x8864));
        put16(out, 0x1100);
        put16(out, *pppoe);
        put16(out, static_cast<std::uint16_t>(l3.size() + 2));
        put16(out, v6 ? 0x0057 : 0x0021);
    } else {
        put16(out, ethertype.value_or(v6 ? 0x86dd : 0x0800));
    }
    append(out, l3);
    out.insert(out.end(), pad, 0xa5);
    return out;
}

void change_src(Ipv4 &ip)
{
    ip.src ^= 1;
    if (ip.v6)
        ip.v6->src[15] ^= 1;
}

void change_dst(Ipv4 &ip)
{
    ip.dst ^= 0x80000000;
    if (ip.v6)
        ip.v6->dst[0] ^= 0x80;
}

Bytes pattern(std::size_t size, std::uint8_t start)
{
    Bytes out(size);
    for (std::size_t i = 0; i < size; ++i)
        out[i] = static_cast<std::uint8_t>(start + i * 7 + i / 251);
    return out;
}

std::string hex(const Bytes &bytes)
{
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (i % 16 == 0)
            out += fmt::format("{}  {:04x} ", i == 0 ? "" : "\n", i);
        out += fmt::format(" {:02x}", bytes[i]);
    }
    return out;
}

std::string mismatch(const Bytes &want, const Bytes &got)
{
    if (want == got)
        return {};
    std::string out = fmt::format("frames differ: {} bytes wanted, {} got\n", want.size(), got.size());
    const std::vector<Named> fields = dissect(want);
    std::size_t named_end = 0;
    for (const Named &field : fields) {
        named_end = std::max(named_end, field.begin + field.size);
        const std::string a = slice(want, field.begin, field.size);
        const std::string b = slice(got, field.begin, field.size);
        if (a != b)
            out += fmt::format("  {} at {}: want {}, got {}\n", field.name, field.begin, a, b);
    }
    for (std::size_t i = named_end; i < std::max(want.size(), got.size()); ++i) {
        if (slice(want, i, 1) == slice(got, i, 1))
            continue;
        out += fmt::format("  payload from {}: want {}, got {}\n", i, slice(want, i, 8), slice(got, i, 8));
        break;
    }
    return out + "want:\n" + hex(want) + "\ngot:\n" + hex(got) + "\n";
}

} // namespace ftctl::test
