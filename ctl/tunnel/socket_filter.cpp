// SPDX-License-Identifier: GPL-2.0-only
#include "tunnel/socket_filter.h"

#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <span>
#include <sys/socket.h>
#include <vector>

#include <linux/filter.h>

namespace ftctl {

namespace {

bool attach(int fd, std::span<sock_filter> code)
{
    const sock_fprog prog{static_cast<unsigned short>(code.size()), code.data()};
    return ::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof prog) == 0;
}

constexpr sock_filter statement(unsigned code, std::uint32_t k)
{
    return {static_cast<std::uint16_t>(code), 0, 0, k};
}

} // namespace

bool attach_drop_filter(int fd)
{
    std::array<sock_filter, 1> code{statement(BPF_RET | BPF_K, 0)};
    return attach(fd, code);
}

bool attach_source_filter(int fd, std::uint32_t source)
{
    // Raw IPv4 sockets see the packet from its IP header on; 12 is the source address.
    std::array<sock_filter, 4> code{
        statement(BPF_LD | BPF_W | BPF_ABS, 12),
        sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, ntohl(source)},
        statement(BPF_RET | BPF_K, 0xffffffff),
        statement(BPF_RET | BPF_K, 0),
    };
    return attach(fd, code);
}

bool attach_peer_filter(int fd, const IpAddr &source, const IpAddr &local)
{
    // Raw IPv6 sockets see the packet from behind its headers; those are reached from SKF_NET_OFF on.
    constexpr std::uint32_t source_at = 8;
    constexpr std::uint32_t destination_at = 24;
    constexpr std::size_t words = 4;
    std::vector<sock_filter> code;
    const auto expect = [&code](const IpAddr &addr, std::uint32_t at) {
        for (std::size_t i = 0; i < words; i++) {
            std::uint32_t word = 0;
            std::memcpy(&word, addr.bytes.data() + 4 * i, sizeof word);
            code.push_back(statement(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(SKF_NET_OFF) + at +
                                                                   static_cast<std::uint32_t>(4 * i)));
            code.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, 0, ntohl(word)});
        }
    };
    expect(source, source_at);
    if (local)
        expect(local, destination_at);
    code.push_back(statement(BPF_RET | BPF_K, 0xffffffff));
    const std::size_t drop = code.size();
    code.push_back(statement(BPF_RET | BPF_K, 0));
    for (std::size_t i = 1; i < drop - 1; i += 2)
        code[i].jf = static_cast<std::uint8_t>(drop - i - 1);
    return attach(fd, code);
}

} // namespace ftctl
