// SPDX-License-Identifier: GPL-2.0-only
#include "tunnel/socket_filter.h"

#include <arpa/inet.h>
#include <array>
#include <span>
#include <sys/socket.h>

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

} // namespace ftctl
