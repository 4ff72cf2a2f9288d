// SPDX-License-Identifier: GPL-2.0-only
// The slow path of a declared tunnel: TUN device on one side, raw sockets on the other.
#include "tunnel/user_tunnel.h"

#include <algorithm>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "tunnel/ip_view.h"
#include "tunnel/raw_socket.h"
#include "tunnel/underlay.h"

namespace ftctl {

namespace {

using Mode = TunnelConfig::Mode;

constexpr unsigned kBatch = 64;             ///< packets per call of handle()
constexpr std::uint32_t kQueue = 4096;      ///< packets; a kernel's tunnel has no queue that could overflow
constexpr std::uint32_t kIpv4MinMtu = 68;   ///< IPV4_MIN_MTU
constexpr std::uint32_t kIpv6MinMtu = 1280; ///< IPV6_MIN_MTU
constexpr std::uint32_t kDefaultMtu = 1500; ///< ETH_DATA_LEN, where no underlay is known yet

/// What the kernel gives a new device of this kind: ip_tunnel_bind_dev(), ipip6_tunnel_bind_dev(),
/// ip6_tnl_link_config(). From the underlay device's MTU, not the path's.
std::uint32_t device_mtu(const TunnelConfig &config)
{
    const std::uint32_t under = underlay_device_mtu(config).value_or(kDefaultMtu);
    const std::uint32_t header = outer_bytes(config);
    const std::uint32_t least = config.mode == Mode::ipip ? kIpv4MinMtu : kIpv6MinMtu;
    return std::clamp(under, least + header, 65535U) - header;
}

std::uint16_t to_u16(std::uint32_t n)
{
    return static_cast<std::uint16_t>(std::min(n, 65535U));
}

} // namespace

Result<UserTunnel::Sockets> UserTunnel::open_sockets(const TunnelConfig &config)
{
    Sockets s;
    const TunnelRow &row = tunnel_row(config.mode);
    const bool four = row.outer_family == AF_INET;
    struct Sender {
        Fd &fd;
        int protocol;
        bool fragment;
    };
    // The option goes out as payload. With IPV6_DSTOPTS the kernel would count its 8 bytes twice when it
    // looks at the MTU (ip6_append_data() and the headersize of __ip6_append_data()).
    for (const Sender &sender :
         {Sender{s.send, row.protocol, false}, four ? Sender{s.send_fragmentable, row.protocol, true}
                                                    : Sender{s.send_option, IPPROTO_DSTOPTS, false}}) {
        auto opened = open_sender(row.outer_family, sender.protocol, sender.fragment);
        if (!opened)
            return tl::unexpected(opened.error());
        if (auto bound = bind_to_underlay(opened->get(), config); !bound)
            return tl::unexpected(bound.error());
        sender.fd = std::move(*opened);
    }
    const int icmp_protocol = row.inner_family == AF_INET ? int{IPPROTO_ICMP} : int{IPPROTO_ICMPV6};
    auto icmp = open_sender(row.inner_family, icmp_protocol, true);
    if (!icmp)
        return tl::unexpected(icmp.error());
    s.icmp = std::move(*icmp);
    auto receive = open_receiver(config);
    if (!receive)
        return tl::unexpected(receive.error());
    s.receive = std::move(*receive);
    return s;
}

Result<std::unique_ptr<TunTunnel>> UserTunnel::create(const std::string &name, const TunnelConfig &config)
{
    // Sockets first: when they fail, no device has been made.
    auto sockets = open_sockets(config);
    if (!sockets)
        return tl::unexpected(sockets.error());
    auto tun = tun_open(name);
    if (!tun)
        return tl::unexpected(tun.error());
    if (tun->created) {
        if (auto set = tun_set_mtu(*tun, device_mtu(config)); !set)
            return tl::unexpected(set.error());
        if (auto set = tun_set_queue(*tun, kQueue); !set)
            return tl::unexpected(set.error());
        disable_ipv6_autoconf(tun->ifindex);
    }
    if (auto kept = tun_persist(*tun, true); !kept)
        return tl::unexpected(kept.error());
    return std::unique_ptr<TunTunnel>(new UserTunnel(std::move(*tun), std::move(*sockets), config));
}

std::vector<int> UserTunnel::fds() const
{
    if (!tun_.fd)
        return {};
    return {tun_.fd.get(), sockets_.receive.get()};
}

void UserTunnel::handle(int fd)
{
    if (!tun_.fd)
        return;
    if (fd == tun_.fd.get())
        read_device();
    else if (fd == sockets_.receive.get())
        read_underlay();
}

Status UserTunnel::destroy()
{
    if (!tun_.fd)
        return {};
    if (auto removed = tun_persist(tun_, false); !removed && removed.error().err != EBADFD)
        return removed;
    tun_.fd.reset(); // the device goes with its last descriptor
    sockets_ = {};
    return {};
}

void UserTunnel::read_device()
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

int UserTunnel::transmit(const EncapDecision &d, std::span<const std::uint8_t> inner)
{
    SendHeader h;
    h.to = config_.remote;
    h.interface = config_.link;
    h.tos = d.tos;
    h.ttl = d.ttl;
    const auto payload = inner.first(d.length);
    if (h.to.family == AF_INET)
        return send_raw(d.df ? sockets_.send.get() : sockets_.send_fragmentable.get(), h, {}, payload);

    h.from = config_.local;
    h.flow_label = d.flow_label;
    // RFC 2473 4.1.1, padded as init_tel_txopt() does it.
    const std::array<std::uint8_t, 8> option{tunnel_row(config_.mode).protocol, 0, 4, 1,
                                             d.encap_limit.value_or(0),         1, 1, 0};
    const int fd = d.encap_limit ? sockets_.send_option.get() : sockets_.send.get();
    const auto front =
        d.encap_limit ? std::span<const std::uint8_t>(option) : std::span<const std::uint8_t>();
    const int err = send_raw(fd, h, front, payload);
    // An error may be the answer to an earlier packet. EMSGSIZE is looked into by the caller.
    return err == 0 || err == EMSGSIZE ? err : send_raw(fd, h, front, payload);
}

void UserTunnel::send_out(std::span<const std::uint8_t> inner)
{
    const EncapDecision d = encap_packet(config_, inner, 0);
    if (d.verdict == EncapDecision::Verdict::too_deep) {
        ++counters_.errors;
        build_parameter_problem(inner, d.pointer, icmp_);
        send_icmp();
        return;
    }
    if (d.verdict != EncapDecision::Verdict::send) {
        ++counters_.errors;
        return;
    }
    const int err = transmit(d, inner);
    if (err == 0)
        ++counters_.encap;
    else if (err == EMSGSIZE)
        on_too_big(d, inner);
    else
        ++counters_.errors; // no route, no buffer, an OUTPUT rule: the kernel's tunnel drops as well
}

/// Outer DF around an IPv4 packet without it: the kernel's tunnel loses it in ip_fragment(). But
/// before that, tnl_update_pmtu() lowers the MTU of the inner route, after which this machine's own
/// packets are fragmented to fit. From here that takes an ICMP to ourselves; 0: none.
std::uint32_t UserTunnel::limit_for_ourselves(std::span<const std::uint8_t> inner, std::uint32_t path) const
{
    const std::uint32_t header = outer_bytes(config_);
    const auto in = Ipv4View::parse(inner);
    if (config_.mode != Mode::ipip || path <= header || !in || in->total_length() + header <= path ||
        !is_local_address(in->saddr()))
        return 0;
    return path - header;
}

void UserTunnel::on_too_big(const EncapDecision &first, std::span<const std::uint8_t> inner)
{
    const std::uint32_t path = underlay_path_mtu(config_);
    const EncapDecision d = encap_packet(config_, inner, path);
    std::uint32_t mtu = d.mtu;
    if (d.verdict != EncapDecision::Verdict::too_big) {
        // With DF clear after all (6in4), or IPv6 was reporting about an earlier packet: it may fit.
        const bool again = d.verdict == EncapDecision::Verdict::send &&
                           (d.df != first.df || config_.remote.family == AF_INET6);
        if (again && transmit(d, inner) == 0) {
            ++counters_.encap;
            return;
        }
        mtu = limit_for_ourselves(inner, path);
    }
    ++counters_.too_big;
    if (mtu == 0)
        return;
    if (inner_family(config_.mode) == AF_INET)
        build_frag_needed(inner, to_u16(mtu), icmp_);
    else
        build_packet_too_big(inner, to_u16(mtu), icmp_);
    send_icmp();
}

void UserTunnel::send_icmp()
{
    if (icmp_.length == 0)
        return;
    SendHeader h;
    h.to = icmp_.destination;
    h.interface = tun_.ifindex; // where a link-local source is
    h.tos = icmp_.tos;
    if (send_raw(sockets_.icmp.get(), h, {}, std::span(icmp_.bytes).first(icmp_.length)) != 0)
        ++counters_.errors;
}

bool UserTunnel::receive(std::span<std::uint8_t> &packet, DecapDecision &d)
{
    OuterHeader outer;
    for (;;) {
        const bool four = config_.remote.family == AF_INET;
        const ssize_t n = four ? ::recv(sockets_.receive.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT)
                               : receive_raw6(sockets_.receive.get(), buffer_, outer);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN)
                ++counters_.errors;
            return false;
        }
        packet = std::span(buffer_).first(static_cast<std::size_t>(n));
        d = four ? decap_packet(config_, packet) : decap_payload(config_, outer, packet);
        return true;
    }
}

void UserTunnel::read_underlay()
{
    // Read at most once per call: it decides only how an aggregate is cut.
    std::uint32_t mtu = 0;
    std::span<std::uint8_t> packet;
    DecapDecision d;
    for (unsigned i = 0; i < kBatch && receive(packet, d); ++i) {
        if (mtu == 0)
            mtu = tun_mtu(tun_.name);
        deliver(packet, d, mtu);
    }
}

void UserTunnel::deliver(std::span<std::uint8_t> packet, const DecapDecision &d, std::uint32_t mtu)
{
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
    if (!fill_vnet_header(inner, to_u16(mtu), header)) {
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
    return UserTunnel::create(name, *valid);
}

} // namespace ftctl
