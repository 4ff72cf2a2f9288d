// SPDX-License-Identifier: GPL-2.0-only
// The namespace of tunnel_lab.h with IPv6 as well: the router is 2001:db8:f::1 on `wan` and
// 2001:db8:1::1 on `lan`; the tunnel's peer is 2001:db8:e::1 (or 198.51.100.1).
#pragma once

#include "tunnel_lab.h"
#include "tunnel_packets6.h"

namespace tunnel_test {

using Mode = ftctl::TunnelConfig::Mode;

class Lab6 : public Lab {
  public:
    Lab6()
    {
        sh("for f in wanp lanp; do echo 1 > /proc/sys/net/ipv6/conf/$f/disable_ipv6; done");
        sh("echo 1 > /proc/sys/net/ipv6/conf/all/forwarding");
        // A device that forwards joins all routers' group and reports it: packets the tests did not send.
        sh("echo 0 > /proc/sys/net/ipv6/conf/default/forwarding");
        sh("ip addr add 2001:db8:f::1/64 dev wan nodad && ip addr add 2001:db8:1::1/64 dev lan nodad");
        sh("ip neigh add 2001:db8:f::9 lladdr 02:00:00:00:00:09 dev wan nud permanent");
        sh("ip neigh add 2001:db8:1::2 lladdr 02:00:00:00:00:02 dev lan nud permanent");
        sh("ip route add 2001:db8:e::/64 via 2001:db8:f::9");
        wait_local("2001:db8:f::1");
        wait_local("2001:db8:1::1");
    }

    static ftctl::TunnelConfig config(Mode mode)
    {
        ftctl::TunnelConfig c;
        c.mode = mode;
        const bool four = ftctl::outer_family(mode) == AF_INET;
        c.local = *ftctl::IpAddr::parse(four ? "192.0.2.1" : "2001:db8:f::1");
        c.remote = *ftctl::IpAddr::parse(four ? "198.51.100.1" : "2001:db8:e::1");
        return c;
    }

    /// A tunnel that is up: this machine is 10.9.0.1 and 2001:db8:9::1 in it, 10.2.0.0/24 and
    /// 2001:db8:2::/64 lie behind it.
    static std::unique_ptr<ftctl::TunTunnel> tunnel(const ftctl::TunnelConfig &c)
    {
        auto t = Lab::tunnel(c);
        sh("ip addr add 2001:db8:9::1/128 dev tun0 nodad && ip route add 2001:db8:2::/64 dev tun0");
        wait_local("2001:db8:9::1");
        return t;
    }

    /// An address is this machine's only once the kernel's worker has been at it (addrconf_dad_work()).
    static void wait_local(const std::string &address)
    {
        sh("timeout 20 sh -c 'until ip -6 route show table local | grep -q " + address +
           "; do sleep 0.01; done'");
    }
};

/// A UDP socket of this machine for IPv6.
class Udp6 {
  public:
    Udp6(const std::string &local, std::uint16_t port, const std::string &remote = {})
    {
        fd_.reset(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        sockaddr_in6 sa = address(local, port);
        REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr *>(&sa), sizeof sa) == 0);
        set(IPV6_RECVTCLASS, 1);
        set(IPV6_AUTOFLOWLABEL, 0);
        set(33, 1); // IPV6_FLOWINFO_SEND
        there_ = address(remote.empty() ? "::1" : remote, 7);
    }
    void set(int option, int value)
    {
        REQUIRE(::setsockopt(fd_.get(), IPPROTO_IPV6, option, &value, sizeof value) == 0);
    }
    void flow_label(std::uint32_t label) { there_.sin6_flowinfo = htonl(label); }
    int path_mtu()
    {
        const ftctl::Fd fd(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr *>(&there_), sizeof there_) == 0);
        int mtu = 0;
        socklen_t len = sizeof mtu;
        REQUIRE(::getsockopt(fd.get(), IPPROTO_IPV6, IPV6_MTU, &mtu, &len) == 0);
        return mtu;
    }
    void send(std::size_t payload)
    {
        const Bytes data(payload, 0x42);
        REQUIRE(::sendto(fd_.get(), data.data(), data.size(), 0, reinterpret_cast<const sockaddr *>(&there_),
                         sizeof there_) == static_cast<ssize_t>(payload));
    }
    std::optional<Udp::Datagram> receive()
    {
        Bytes buf(70000);
        alignas(cmsghdr) std::array<char, 64> control{};
        iovec iov{buf.data(), buf.size()};
        msghdr msg{};
        msg.msg_iov = &iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.data();
        msg.msg_controllen = control.size();
        const ssize_t n = ::recvmsg(fd_.get(), &msg, MSG_DONTWAIT);
        if (n < 0)
            return std::nullopt;
        const cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        REQUIRE(cmsg != nullptr);
        int tclass = 0;
        std::memcpy(&tclass, CMSG_DATA(cmsg), sizeof tclass);
        return Udp::Datagram{static_cast<std::size_t>(n), tclass};
    }

  private:
    static sockaddr_in6 address(const std::string &text, std::uint16_t port)
    {
        sockaddr_in6 sa{};
        sa.sin6_family = AF_INET6;
        sa.sin6_port = htons(port);
        std::memcpy(&sa.sin6_addr, ftctl::IpAddr::parse(text)->bytes.data(), 16);
        return sa;
    }
    ftctl::Fd fd_;
    sockaddr_in6 there_{};
};

} // namespace tunnel_test
