// SPDX-License-Identifier: GPL-2.0-only
// A network namespace for [live] tunnel tests: the router's `wan` (192.0.2.1) and `lan` (10.1.0.1),
// each a veth whose other end the test itself reads and writes as frames.
#pragma once

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tunnel/offload.h"
#include "tunnel/tun_driver.h"
#include "tunnel_packets.h"
#include "util/fd.h"

namespace tunnel_test {

using namespace std::chrono_literals;

inline void sh(const std::string &command)
{
    INFO(command);
    REQUIRE(std::system(command.c_str()) == 0);
}

/// A new network namespace for the calling thread and its commands, until it goes.
class Namespace {
  public:
    Namespace() : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC))
    {
        INFO("[live] tests need root; leave them out with ~[live]");
        REQUIRE(::geteuid() == 0);
        REQUIRE(before_);
        REQUIRE(::unshare(CLONE_NEWNET) == 0);
    }
    Namespace(const Namespace &) = delete;
    Namespace &operator=(const Namespace &) = delete;
    ~Namespace() { static_cast<void>(::setns(before_.get(), CLONE_NEWNET)); }

  private:
    ftctl::Fd before_;
};

struct Frame {
    ftctl::VnetHeader offload;
    Bytes packet; ///< from the IP header on
};

/// The far end of a veth: IP packets in and out, with what the kernel left to do about them.
class Wire {
  public:
    Wire(const std::string &near, const std::string &far) : near_mac_(mac(near)), far_mac_(mac(far))
    {
        fd_.reset(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
        REQUIRE(fd_);
        const int on = 1;
        REQUIRE(::setsockopt(fd_.get(), SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) == 0);
        REQUIRE(::setsockopt(fd_.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) == 0);
        sockaddr_ll sa{};
        sa.sll_family = AF_PACKET;
        sa.sll_protocol = htons(ETH_P_ALL);
        sa.sll_ifindex = static_cast<int>(if_nametoindex(far.c_str()));
        REQUIRE(::bind(fd_.get(), reinterpret_cast<sockaddr *>(&sa), sizeof sa) == 0);
    }

    void send(const Bytes &packet, ftctl::VnetHeader offload = {})
    {
        std::array<std::uint8_t, ETH_HLEN> eth{};
        std::copy(near_mac_.begin(), near_mac_.end(), eth.begin());
        std::copy(far_mac_.begin(), far_mac_.end(), eth.begin() + 6);
        const bool six = packet.at(0) >> 4 == 6;
        eth[12] = six ? 0x86 : 0x08;
        eth[13] = six ? 0xdd : 0x00;
        if (offload.flags != 0)
            offload.csum_start = static_cast<std::uint16_t>(offload.csum_start + ETH_HLEN);
        Bytes copy = packet;
        const std::array<iovec, 3> iov{iovec{&offload, sizeof offload}, iovec{eth.data(), eth.size()},
                                       iovec{copy.data(), copy.size()}};
        REQUIRE(::writev(fd_.get(), iov.data(), 3) ==
                static_cast<ssize_t>(sizeof offload + eth.size() + copy.size()));
    }

    /// The next packet of this protocol or next header; none within the time.
    std::optional<Frame> receive(std::uint8_t protocol, std::chrono::milliseconds wait = 2000ms)
    {
        return receive_if([protocol](const Bytes &p) { return p[p[0] >> 4 == 6 ? 6 : 9] == protocol; }, wait);
    }

    /// The next IP packet that this is true of.
    template <typename Predicate>
    std::optional<Frame> receive_if(Predicate &&wanted, std::chrono::milliseconds wait = 2000ms)
    {
        const auto deadline = std::chrono::steady_clock::now() + wait;
        Bytes buf(70000);
        for (;;) {
            const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                deadline - std::chrono::steady_clock::now());
            pollfd p{fd_.get(), POLLIN, 0};
            if (::poll(&p, 1, static_cast<int>(std::max(left, 0ms).count())) <= 0)
                return std::nullopt;
            const ssize_t n = ::read(fd_.get(), buf.data(), buf.size());
            constexpr ssize_t headers = sizeof(ftctl::VnetHeader) + ETH_HLEN;
            const std::uint8_t version = n < headers + 20 ? 0 : buf[headers] >> 4;
            if (version != 4 && !(version == 6 && n >= headers + 40))
                continue;
            Frame f;
            std::memcpy(&f.offload, buf.data(), sizeof f.offload);
            f.packet.assign(buf.begin() + headers, buf.begin() + n);
            if (wanted(f.packet))
                return f;
        }
    }

  private:
    static std::array<std::uint8_t, 6> mac(const std::string &name)
    {
        ifreq ifr{};
        name.copy(ifr.ifr_name, IFNAMSIZ - 1);
        const ftctl::Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        REQUIRE(::ioctl(fd.get(), SIOCGIFHWADDR, &ifr) == 0);
        std::array<std::uint8_t, 6> out{};
        std::memcpy(out.data(), ifr.ifr_hwaddr.sa_data, 6);
        return out;
    }
    std::array<std::uint8_t, 6> near_mac_, far_mac_;
    ftctl::Fd fd_;
};

/// A UDP socket of this machine.
class Udp {
  public:
    Udp(const std::string &local, std::uint16_t port, const std::string &remote = {})
    {
        fd_.reset(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        const sockaddr_in here = address(local, port);
        REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr *>(&here), sizeof here) == 0);
        set(IP_RECVTOS, 1);
        if (!remote.empty()) {
            const sockaddr_in there = address(remote, 7);
            REQUIRE(::connect(fd_.get(), reinterpret_cast<const sockaddr *>(&there), sizeof there) == 0);
        }
    }
    void set(int option, int value)
    {
        REQUIRE(::setsockopt(fd_.get(), IPPROTO_IP, option, &value, sizeof value) == 0);
    }
    int path_mtu()
    {
        int mtu = 0;
        socklen_t len = sizeof mtu;
        REQUIRE(::getsockopt(fd_.get(), IPPROTO_IP, IP_MTU, &mtu, &len) == 0);
        return mtu;
    }
    void send(std::size_t payload)
    {
        const Bytes data(payload, 0x42);
        // An ICMP error that came before is reported here once.
        if (::send(fd_.get(), data.data(), data.size(), 0) < 0)
            REQUIRE(::send(fd_.get(), data.data(), data.size(), 0) == static_cast<ssize_t>(payload));
    }
    struct Datagram {
        std::size_t size;
        int tos;
    };
    std::optional<Datagram> receive()
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
        return Datagram{static_cast<std::size_t>(n), *CMSG_DATA(cmsg)};
    }

  private:
    static sockaddr_in address(const std::string &text, std::uint16_t port)
    {
        sockaddr_in sa{};
        sa.sin_family = AF_INET;
        sa.sin_port = htons(port);
        sa.sin_addr.s_addr = ftctl::IpAddr::parse(text)->v4();
        return sa;
    }
    ftctl::Fd fd_;
};

class Lab {
  public:
    Lab()
    {
        sh("ip link set lo up");
        for (const char *dev : {"wan", "lan"}) {
            const std::string d = dev;
            sh("ip link add " + d + " type veth peer name " + d + "p");
            // The far end is the test's: the stack must not answer there.
            sh("ip link set " + d + "p arp off up && ip link set " + d + " up");
        }
        sh("ip addr add 192.0.2.1/24 dev wan && ip addr add 10.1.0.1/24 dev lan");
        sh("ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev wan nud permanent");
        sh("ip neigh add 10.1.0.2 lladdr 02:00:00:00:00:02 dev lan nud permanent");
        sh("ip route add 198.51.100.0/24 via 192.0.2.9");
        sh("for f in wan lan default; do echo 1 > /proc/sys/net/ipv4/conf/$f/forwarding; done");
        sh("for f in wanp lanp; do echo 0 > /proc/sys/net/ipv4/conf/$f/forwarding; done");
        sh("echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter"); // the test's answers come from anywhere
        wan.emplace("wan", "wanp");
        lan.emplace("lan", "lanp");
    }

    static ftctl::TunnelConfig config(const std::string &remote = "198.51.100.1")
    {
        ftctl::TunnelConfig c;
        c.local = *ftctl::IpAddr::parse("192.0.2.1");
        c.remote = *ftctl::IpAddr::parse(remote);
        return c;
    }

    /// A tunnel that is up: this machine is 10.9.0.1 in it, 10.2.0.0/24 lies behind it.
    static std::unique_ptr<ftctl::TunTunnel> tunnel(const ftctl::TunnelConfig &c = config())
    {
        auto t = ftctl::TunTunnel::create("tun0", c);
        INFO((t ? std::string() : t.error().what + ": " + t.error().why));
        REQUIRE(t);
        sh("ip addr replace 10.9.0.1/32 dev tun0 && ip link set tun0 up && ip route replace 10.2.0.0/24 dev "
           "tun0");
        return std::move(*t);
    }

    std::optional<Wire> wan, lan;

  private:
    Namespace ns_; // constructed after the members above, which the constructor's body fills
};

/// Lets the tunnel work until the condition holds; false after two seconds.
template <typename Condition>
bool pump(ftctl::TunTunnel &t, Condition &&condition)
{
    const auto deadline = std::chrono::steady_clock::now() + 2s;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline)
            return false;
        std::array<pollfd, 2> p{pollfd{t.fds()[0], POLLIN, 0}, pollfd{t.fds()[1], POLLIN, 0}};
        ::poll(p.data(), p.size(), 5);
        for (const pollfd &one : p) {
            if (one.revents != 0)
                t.handle(one.fd);
        }
    }
    return true;
}

} // namespace tunnel_test
