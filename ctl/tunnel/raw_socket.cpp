// SPDX-License-Identifier: GPL-2.0-only
#include "tunnel/raw_socket.h"

#include <array>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <fmt/format.h>

#include "tunnel/socket_filter.h"
#include "tunnel/underlay.h"

namespace ftctl {

namespace {

constexpr int kSocketBuffer = 4 << 20;   ///< bytes: a burst of aggregates fits
constexpr int kFlowInfoSend = 33;        ///< IPV6_FLOWINFO_SEND of <linux/in6.h>
constexpr unsigned kStoredErrors = 1024; ///< read off a socket's error queue at a time, at most

/// Beyond net.core.[rw]mem_max where CAP_NET_ADMIN allows it; else as much as one gets.
void set_buffer(int fd, int force, int plain)
{
    if (::setsockopt(fd, SOL_SOCKET, force, &kSocketBuffer, sizeof kSocketBuffer) < 0)
        ::setsockopt(fd, SOL_SOCKET, plain, &kSocketBuffer, sizeof kSocketBuffer);
}

bool set_int(int fd, int level, int option, int value)
{
    return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

/// Control data of one message. The buffer is as large as everything that may be asked for.
class Control {
  public:
    explicit Control(msghdr &msg) : msg_(msg)
    {
        msg_.msg_control = buffer_.data();
        msg_.msg_controllen = 0;
    }
    template <typename T>
    void put(int level, int type, const T &value)
    {
        cmsghdr cmsg{};
        cmsg.cmsg_level = level;
        cmsg.cmsg_type = type;
        cmsg.cmsg_len = CMSG_LEN(sizeof value);
        char *at = buffer_.data() + msg_.msg_controllen;
        std::memcpy(at, &cmsg, sizeof cmsg);
        std::memcpy(at + CMSG_LEN(0), &value, sizeof value);
        msg_.msg_controllen += CMSG_SPACE(sizeof value);
    }

  private:
    msghdr &msg_;
    alignas(
        cmsghdr) std::array<char, 2 * CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(in6_pktinfo))> buffer_{};
};

int send4(int fd, const SendHeader &h, msghdr &msg)
{
    sockaddr_in sa{};
    sa.sin_family = AF_INET;
    sa.sin_addr.s_addr = h.to.v4();
    msg.msg_name = &sa;
    msg.msg_namelen = sizeof sa;
    Control control(msg);
    control.put(IPPROTO_IP, IP_TOS, static_cast<int>(h.tos));
    if (h.ttl != 0)
        control.put(IPPROTO_IP, IP_TTL, static_cast<int>(h.ttl));
    return ::sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

int send6(int fd, const SendHeader &h, msghdr &msg)
{
    sockaddr_in6 sa{};
    sa.sin6_family = AF_INET6;
    sa.sin6_flowinfo = htonl(h.flow_label);
    std::memcpy(&sa.sin6_addr, h.to.bytes.data(), sizeof sa.sin6_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&sa.sin6_addr))
        sa.sin6_scope_id = h.interface;
    msg.msg_name = &sa;
    msg.msg_namelen = sizeof sa;
    Control control(msg);
    control.put(IPPROTO_IPV6, IPV6_TCLASS, static_cast<int>(h.tos));
    if (h.ttl != 0)
        control.put(IPPROTO_IPV6, IPV6_HOPLIMIT, static_cast<int>(h.ttl));
    if (h.from) {
        in6_pktinfo info{};
        std::memcpy(&info.ipi6_addr, h.from.bytes.data(), sizeof info.ipi6_addr);
        info.ipi6_ifindex = h.interface;
        control.put(IPPROTO_IPV6, IPV6_PKTINFO, info);
    }
    return ::sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

/// ICMP errors that were stored with the socket; what they tell of the path the kernel has learnt.
void forget_errors(int fd)
{
    std::array<std::uint8_t, 64> buffer{};
    for (unsigned i = 0; i < kStoredErrors; ++i)
        if (::recv(fd, buffer.data(), buffer.size(), MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            return;
}

} // namespace

Result<Fd> open_raw(std::uint8_t family, int protocol)
{
    Fd fd(::socket(family, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
    if (!fd && errno == EAFNOSUPPORT)
        return fail_errno(fmt::format("open a raw socket for protocol {}", protocol), errno,
                          "this kernel has IPv6 switched off");
    if (!fd)
        return fail_errno(fmt::format("open a raw socket for protocol {}", protocol), errno,
                          "it needs CAP_NET_RAW");
    set_buffer(fd.get(), SO_SNDBUFFORCE, SO_SNDBUF);
    return fd;
}

Result<Fd> open_sender(std::uint8_t family, int protocol, bool fragment)
{
    auto fd = open_raw(family, protocol);
    if (!fd)
        return fd;
    const int raw = fd->get();
    bool ok = attach_drop_filter(raw);
    if (family == AF_INET) {
        ok = ok && set_int(raw, IPPROTO_IP, IP_MTU_DISCOVER, fragment ? IP_PMTUDISC_DONT : IP_PMTUDISC_DO);
    } else {
        // Without RECVERR the kernel does not even learn a path MTU for an unconnected socket
        // (rawv6_err()). Labels are what the caller says: none are drawn for a 0.
        ok =
            ok && set_int(raw, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, 0) &&
            set_int(raw, IPPROTO_IPV6, kFlowInfoSend, 1) &&
            set_int(raw, IPPROTO_IPV6, IPV6_MTU_DISCOVER, fragment ? IPV6_PMTUDISC_DONT : IPV6_PMTUDISC_DO) &&
            (fragment ||
             (set_int(raw, IPPROTO_IPV6, IPV6_DONTFRAG, 1) && set_int(raw, IPPROTO_IPV6, IPV6_RECVERR, 1)));
    }
    if (!ok)
        return fail_errno("prepare a raw socket for sending", errno);
    return fd;
}

Result<Fd> open_receiver(const TunnelConfig &config)
{
    const TunnelRow &row = tunnel_row(config.mode);
    auto fd = open_raw(row.outer_family, row.protocol);
    if (!fd)
        return fd;
    const int raw = fd->get();
    set_buffer(raw, SO_RCVBUFFORCE, SO_RCVBUF);
    const bool ok = row.outer_family == AF_INET ? attach_source_filter(raw, config.remote.v4())
                                                : attach_peer_filter(raw, config.remote, config.local) &&
                                                      set_int(raw, IPPROTO_IPV6, IPV6_RECVTCLASS, 1) &&
                                                      set_int(raw, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    if (!ok)
        return fail_errno("filter the tunnel's socket to its peer", errno);
    if (auto bound = bind_to_underlay(raw, config); !bound)
        return tl::unexpected(bound.error());
    return fd;
}

int send_raw(int fd, const SendHeader &header, std::span<const std::uint8_t> front,
             std::span<const std::uint8_t> payload)
{
    std::array<iovec, 2> iov{iovec{const_cast<std::uint8_t *>(front.data()), front.size()},
                             iovec{const_cast<std::uint8_t *>(payload.data()), payload.size()}};
    msghdr msg{};
    msg.msg_iov = iov.data();
    msg.msg_iovlen = iov.size();
    if (header.to.family == AF_INET)
        return send4(fd, header, msg);
    const int err = send6(fd, header, msg);
    if (err != 0)
        forget_errors(fd);
    return err;
}

ssize_t receive_raw6(int fd, std::span<std::uint8_t> buffer, OuterHeader &outer)
{
    sockaddr_in6 from{};
    iovec iov{buffer.data(), buffer.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(in6_pktinfo))> control{};
    msghdr msg{};
    msg.msg_name = &from;
    msg.msg_namelen = sizeof from;
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.data();
    msg.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(fd, &msg, MSG_DONTWAIT);
    if (n < 0)
        return n;
    outer = {};
    if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        return n; // no header: not the peer's
    outer.src = IpAddr::from_bytes(AF_INET6, &from.sin6_addr, sizeof from.sin6_addr);
    for (cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS &&
            c->cmsg_len >= CMSG_LEN(sizeof(int))) {
            int tclass = 0;
            std::memcpy(&tclass, CMSG_DATA(c), sizeof tclass);
            outer.traffic_class = static_cast<std::uint8_t>(tclass);
        } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO &&
                   c->cmsg_len >= CMSG_LEN(sizeof(in6_pktinfo))) {
            in6_pktinfo info{};
            std::memcpy(&info, CMSG_DATA(c), sizeof info);
            outer.dst = IpAddr::from_bytes(AF_INET6, &info.ipi6_addr, sizeof info.ipi6_addr);
        }
    }
    return n;
}

} // namespace ftctl
