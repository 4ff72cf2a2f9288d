// SPDX-License-Identifier: GPL-2.0-only
// The slow path of a declared IPIP tunnel: TUN device on one side, raw sockets on the other.
#include "tunnel/ipip.h"

#include <algorithm>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <fmt/format.h>

#include "tunnel/rules.h"
#include "tunnel/socket_filter.h"
#include "tunnel/underlay.h"

namespace ftctl {

namespace {

constexpr unsigned kBatch = 64;             ///< packets per call of handle()
constexpr int kSocketBuffer = 4 << 20;      ///< bytes: a burst of aggregates fits
constexpr std::uint32_t kMinMtu = 68;       ///< IPV4_MIN_MTU
constexpr std::uint32_t kDefaultMtu = 1500; ///< ETH_DATA_LEN, where no underlay is known yet

/// Beyond net.core.[rw]mem_max where CAP_NET_ADMIN allows it; else as much as one gets.
void set_buffer(int fd, int force, int plain)
{
    if (::setsockopt(fd, SOL_SOCKET, force, &kSocketBuffer, sizeof kSocketBuffer) < 0)
        ::setsockopt(fd, SOL_SOCKET, plain, &kSocketBuffer, sizeof kSocketBuffer);
}

Result<Fd> open_raw(int protocol)
{
    Fd fd(::socket(AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
    if (!fd)
        return fail_errno(fmt::format("open a raw socket for protocol {}", protocol), errno,
                          "it needs CAP_NET_RAW");
    set_buffer(fd.get(), SO_SNDBUFFORCE, SO_SNDBUF);
    return fd;
}

/// pmtudisc: IP_PMTUDISC_DO sends DF and refuses what does not fit, IP_PMTUDISC_DONT fragments.
Result<Fd> open_sender(int protocol, int pmtudisc)
{
    auto fd = open_raw(protocol);
    if (!fd)
        return fd;
    if (!attach_drop_filter(fd->get()) ||
        ::setsockopt(fd->get(), IPPROTO_IP, IP_MTU_DISCOVER, &pmtudisc, sizeof pmtudisc) < 0)
        return fail_errno("prepare a raw socket for sending", errno);
    return fd;
}

template <typename T>
void put_cmsg(cmsghdr *cmsg, int type, T value)
{
    cmsg->cmsg_level = IPPROTO_IP;
    cmsg->cmsg_type = type;
    cmsg->cmsg_len = CMSG_LEN(sizeof value);
    std::memcpy(CMSG_DATA(cmsg), &value, sizeof value);
}

/// One packet through a raw socket; the kernel writes the outer header. ttl 0: the default.
/// Returns 0 or a positive errno.
int send_raw(int fd, std::uint32_t to, std::span<const std::uint8_t> payload, int tos, int ttl)
{
    sockaddr_in sa{};
    sa.sin_family = AF_INET;
    sa.sin_addr.s_addr = to;
    iovec iov{const_cast<std::uint8_t *>(payload.data()), payload.size()};
    alignas(cmsghdr) std::array<char, 2 * CMSG_SPACE(sizeof(int))> control{};
    msghdr msg{};
    msg.msg_name = &sa;
    msg.msg_namelen = sizeof sa;
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.data();
    msg.msg_controllen = control.size();
    cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    put_cmsg(cmsg, IP_TOS, tos);
    if (ttl != 0)
        put_cmsg(CMSG_NXTHDR(&msg, cmsg), IP_TTL, ttl);
    else
        msg.msg_controllen = CMSG_SPACE(sizeof(int));
    return ::sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

} // namespace

Result<std::unique_ptr<TunTunnel>> IpipTunnel::create(const std::string &name, const TunnelConfig &config)
{
    // Sockets first: when they fail, no device has been made.
    Sockets s;
    const int protocol = tunnel_row(config.mode).protocol;
    for (auto &[fd, pmtudisc] : {std::pair<Fd &, int>{s.send_df, IP_PMTUDISC_DO},
                                 std::pair<Fd &, int>{s.send_fragmentable, IP_PMTUDISC_DONT}}) {
        auto opened = open_sender(protocol, pmtudisc);
        if (!opened)
            return tl::unexpected(opened.error());
        if (auto bound = bind_to_underlay(opened->get(), config); !bound)
            return tl::unexpected(bound.error());
        fd = std::move(*opened);
    }
    auto icmp = open_sender(IPPROTO_ICMP, IP_PMTUDISC_DONT);
    if (!icmp)
        return tl::unexpected(icmp.error());
    s.icmp = std::move(*icmp);

    auto receive = open_raw(protocol);
    if (!receive)
        return tl::unexpected(receive.error());
    s.receive = std::move(*receive);
    set_buffer(s.receive.get(), SO_RCVBUFFORCE, SO_RCVBUF);
    if (!attach_source_filter(s.receive.get(), config.remote.v4()))
        return fail_errno("filter the tunnel's socket to its peer", errno);
    if (auto bound = bind_to_underlay(s.receive.get(), config); !bound)
        return tl::unexpected(bound.error());

    auto tun = tun_open(name);
    if (!tun)
        return tl::unexpected(tun.error());
    if (tun->created) {
        // ip_tunnel_bind_dev(): the underlay device's MTU, not the path's.
        const std::uint32_t under = underlay_device_mtu(config).value_or(kDefaultMtu);
        const std::uint32_t header = tunnel_row(config.mode).header_bytes;
        const std::uint32_t mtu = std::clamp(under, kMinMtu + header, 65535U) - header;
        if (auto set = tun_set_mtu(*tun, mtu); !set)
            return tl::unexpected(set.error());
        disable_ipv6_autoconf(tun->ifindex);
    }
    if (auto kept = tun_persist(*tun, true); !kept)
        return tl::unexpected(kept.error());
    return std::unique_ptr<TunTunnel>(new IpipTunnel(std::move(*tun), std::move(s), config));
}

std::vector<int> IpipTunnel::fds() const
{
    if (!tun_.fd)
        return {};
    return {tun_.fd.get(), sockets_.receive.get()};
}

void IpipTunnel::handle(int fd)
{
    if (!tun_.fd)
        return;
    if (fd == tun_.fd.get())
        read_device();
    else if (fd == sockets_.receive.get())
        read_underlay();
}

Status IpipTunnel::destroy()
{
    if (!tun_.fd)
        return {};
    if (auto removed = tun_persist(tun_, false); !removed && removed.error().err != EBADFD)
        return removed;
    tun_.fd.reset(); // the device goes with its last descriptor
    sockets_ = {};
    return {};
}

void IpipTunnel::read_device()
{
    for (unsigned i = 0; i < kBatch; ++i) {
        const ssize_t n = ::read(tun_.fd.get(), buffer_.data(), buffer_.size());
        if (n < 0) {
            if (errno == EINTR)
                continue;
            if (errno != EAGAIN)
                ++counters_.errors;
            return;
        }
        if (static_cast<std::size_t>(n) <= sizeof(VnetHeader)) {
            ++counters_.errors;
            continue;
        }
        send_out(std::span(buffer_).first(static_cast<std::size_t>(n)).subspan(sizeof(VnetHeader)));
    }
}

void IpipTunnel::send_out(std::span<const std::uint8_t> inner)
{
    const EncapDecision d = encap_ipv4(config_, inner, 0);
    if (d.verdict != EncapDecision::Verdict::send) {
        ++counters_.errors;
        return;
    }
    const int fd = d.df ? sockets_.send_df.get() : sockets_.send_fragmentable.get();
    const int err = send_raw(fd, config_.remote.v4(), inner.first(d.length), d.tos, d.ttl);
    if (err == 0)
        ++counters_.encap;
    else if (err == EMSGSIZE)
        refuse_too_big(inner);
    else
        ++counters_.errors; // no route, no buffer, an OUTPUT rule: the kernel's tunnel drops as well
}

void IpipTunnel::refuse_too_big(std::span<const std::uint8_t> inner)
{
    ++counters_.too_big;
    const std::uint32_t path = underlay_path_mtu(config_);
    const EncapDecision d = encap_ipv4(config_, inner, path);
    std::uint32_t mtu = d.mtu;
    if (d.verdict != EncapDecision::Verdict::too_big) {
        // Outer DF around a packet without it: the kernel's tunnel loses it in ip_fragment(). But
        // before that, tnl_update_pmtu() lowers the MTU of the inner route, after which this
        // machine's own packets are fragmented to fit. From here that takes an ICMP to ourselves.
        const std::uint32_t header = tunnel_row(config_.mode).header_bytes;
        const auto in = Ipv4View::parse(inner);
        if (path <= header || !in || d.length + header <= path || !is_local_address(in->saddr()))
            return;
        mtu = path - header;
    }
    build_frag_needed(inner, static_cast<std::uint16_t>(std::min(mtu, 65535U)), icmp_);
    if (icmp_.length != 0 && send_raw(sockets_.icmp.get(), icmp_.destination,
                                      std::span(icmp_.bytes).first(icmp_.length), icmp_.tos, 0) != 0)
        ++counters_.errors;
}

void IpipTunnel::read_underlay()
{
    // Read at most once per call: it decides only how an aggregate is cut.
    std::uint32_t mtu = 0;
    for (unsigned i = 0; i < kBatch; ++i) {
        const ssize_t n = ::recv(sockets_.receive.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            if (errno != EAGAIN)
                ++counters_.errors;
            return;
        }
        if (mtu == 0)
            mtu = tun_mtu(tun_.name);
        deliver(std::span(buffer_).first(static_cast<std::size_t>(n)), mtu);
    }
}

void IpipTunnel::deliver(std::span<std::uint8_t> packet, std::uint32_t mtu)
{
    const DecapDecision d = decap_ipv4(config_, packet);
    if (d.verdict == DecapDecision::Verdict::drop_ecn) {
        ++counters_.dropped_ecn;
        return;
    }
    if (d.verdict != DecapDecision::Verdict::deliver) {
        ++counters_.errors;
        return;
    }
    const auto inner = packet.subspan(d.offset, d.length);
    set_tos(inner, d.tos);
    VnetHeader header;
    if (!fill_vnet_header(inner, static_cast<std::uint16_t>(std::min(mtu, 65535U)), header)) {
        ++counters_.errors;
        return;
    }
    const std::array<iovec, 2> iov{iovec{&header, sizeof header}, iovec{inner.data(), inner.size()}};
    if (::writev(tun_.fd.get(), iov.data(), static_cast<int>(iov.size())) < 0)
        ++counters_.errors; // the device is down (EIO), as the kernel's tunnel would not take it either
    else
        ++counters_.decap;
}

Result<std::unique_ptr<TunTunnel>> TunTunnel::create(const std::string &name, const TunnelConfig &config)
{
    auto valid = validate_tunnel(config);
    if (!valid)
        return tl::unexpected(valid.error());
    // One driver so far; a new mode is a row in the rules and a case here.
    return IpipTunnel::create(name, *valid);
}

} // namespace ftctl
