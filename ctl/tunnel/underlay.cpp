// SPDX-License-Identifier: GPL-2.0-only
#include "tunnel/underlay.h"

#include <array>
#include <functional>
#include <memory>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>

#include "tunnel/rules.h"
#include "tunnel/socket_filter.h"
#include "util/fd.h"

namespace ftctl {

namespace {

sockaddr_in to_sockaddr(const IpAddr &a)
{
    sockaddr_in sa{};
    sa.sin_family = AF_INET;
    sa.sin_addr.s_addr = a.v4();
    return sa;
}

bool is_link_local(const IpAddr &a)
{
    return a.bytes[0] == 0xfe && (a.bytes[1] & 0xc0) == 0x80;
}

/// Connects a socket to the tunnel's peer, so that it has the route's facts.
bool connect_to_peer(int fd, const TunnelConfig &config)
{
    if (config.remote.family == AF_INET) {
        const sockaddr_in sa = to_sockaddr(config.remote);
        return ::connect(fd, reinterpret_cast<const sockaddr *>(&sa), sizeof sa) == 0;
    }
    sockaddr_in6 sa{};
    sa.sin6_family = AF_INET6;
    std::memcpy(&sa.sin6_addr, config.remote.bytes.data(), sizeof sa.sin6_addr);
    if (is_link_local(config.remote))
        sa.sin6_scope_id = config.link;
    return ::connect(fd, reinterpret_cast<const sockaddr *>(&sa), sizeof sa) == 0;
}

std::optional<std::uint32_t> device_mtu(std::uint32_t ifindex)
{
    ifreq ifr{};
    const Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || !if_indextoname(ifindex, ifr.ifr_name) || ::ioctl(fd.get(), SIOCGIFMTU, &ifr) < 0 ||
        ifr.ifr_mtu <= 0)
        return std::nullopt;
    return static_cast<std::uint32_t>(ifr.ifr_mtu);
}

using MnlSocket = std::unique_ptr<mnl_socket, int (*)(mnl_socket *)>;

/// One request to rtnetlink, answered before it returns. The handler sees each message of the answer.
bool ask_rtnetlink(nlmsghdr *request, const std::function<void(const nlmsghdr *)> &handler)
{
    const MnlSocket sock(mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC), mnl_socket_close);
    if (!sock || mnl_socket_bind(sock.get(), 0, MNL_SOCKET_AUTOPID) < 0)
        return false;
    request->nlmsg_seq = 1;
    if (mnl_socket_sendto(sock.get(), request, request->nlmsg_len) < 0)
        return false;
    const auto forward = [](const nlmsghdr *nlh, void *data) {
        (*static_cast<const std::function<void(const nlmsghdr *)> *>(data))(nlh);
        return MNL_CB_STOP;
    };
    std::array<char, 8192> buf{};
    const ssize_t n = mnl_socket_recvfrom(sock.get(), buf.data(), buf.size());
    if (n <= 0)
        return false;
    auto *data = const_cast<std::function<void(const nlmsghdr *)> *>(&handler);
    return mnl_cb_run(buf.data(), static_cast<std::size_t>(n), 1, mnl_socket_get_portid(sock.get()), forward,
                      data) >= 0;
}

/// The device of the route to the remote; 0: none.
std::uint32_t route_device(const TunnelConfig &config)
{
    std::array<char, 512> buf{};
    nlmsghdr *nlh = mnl_nlmsg_put_header(buf.data());
    nlh->nlmsg_type = RTM_GETROUTE;
    nlh->nlmsg_flags = NLM_F_REQUEST;
    auto *rtm = static_cast<rtmsg *>(mnl_nlmsg_put_extra_header(nlh, sizeof(rtmsg)));
    rtm->rtm_family = config.remote.family;
    rtm->rtm_dst_len = static_cast<unsigned char>(config.remote.size() * 8);
    mnl_attr_put(nlh, RTA_DST, config.remote.size(), config.remote.bytes.data());
    if (config.fwmark != 0)
        mnl_attr_put_u32(nlh, RTA_MARK, config.fwmark);

    std::uint32_t oif = 0;
    ask_rtnetlink(nlh, [&oif](const nlmsghdr *answer) {
        if (answer->nlmsg_type != RTM_NEWROUTE || mnl_nlmsg_get_payload_len(answer) < sizeof(rtmsg))
            return;
        const auto oif_attr = [](const nlattr *attr, void *data) {
            if (mnl_attr_get_type(attr) == RTA_OIF && mnl_attr_validate(attr, MNL_TYPE_U32) >= 0)
                *static_cast<std::uint32_t *>(data) = mnl_attr_get_u32(attr);
            return MNL_CB_OK;
        };
        mnl_attr_parse(answer, sizeof(rtmsg), oif_attr, &oif);
    });
    return oif;
}

} // namespace

std::optional<std::uint32_t> underlay_device_mtu(const TunnelConfig &config)
{
    const std::uint32_t ifindex = config.link != 0 ? config.link : route_device(config);
    return ifindex != 0 ? device_mtu(ifindex) : std::nullopt;
}

Status bind_to_underlay(int fd, const TunnelConfig &config)
{
    if (config.fwmark != 0 && ::setsockopt(fd, SOL_SOCKET, SO_MARK, &config.fwmark, sizeof config.fwmark) < 0)
        return fail_errno(fmt::format("set the mark {:#x} on the tunnel's socket", config.fwmark), errno,
                          "it needs CAP_NET_ADMIN");
    if (config.link != 0) {
        std::array<char, IF_NAMESIZE> name{};
        if (!if_indextoname(config.link, name.data()))
            return fail_errno(fmt::format("find the underlay device (index {})", config.link), errno,
                              "name a device that exists");
        if (::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name.data(),
                         static_cast<socklen_t>(std::strlen(name.data()) + 1)) < 0)
            return fail_errno(fmt::format("bind the tunnel's socket to {}", name.data()), errno);
    }
    if (config.local.family == AF_INET) {
        // As `ip link add ... type ipip`: the address may come later.
        const int on = 1;
        const sockaddr_in sa = to_sockaddr(config.local);
        if (::setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &on, sizeof on) < 0 ||
            ::bind(fd, reinterpret_cast<const sockaddr *>(&sa), sizeof sa) < 0)
            return fail_errno(fmt::format("bind the tunnel's socket to {}", config.local.str()), errno);
    }
    return {};
}

std::uint32_t underlay_path_mtu(const TunnelConfig &config)
{
    // The same kind of socket as the tunnel's, so that policy rules choose the same route. It is
    // connected only here: a connected socket would keep the source address of the moment.
    const TunnelRow &row = tunnel_row(config.mode);
    const bool four = row.outer_family == AF_INET;
    const Fd fd(::socket(row.outer_family, SOCK_RAW | SOCK_CLOEXEC, row.protocol));
    int mtu = 0;
    socklen_t len = sizeof mtu;
    if (!fd || !attach_drop_filter(fd.get()) || !bind_to_underlay(fd.get(), config) ||
        !connect_to_peer(fd.get(), config) ||
        ::getsockopt(fd.get(), four ? IPPROTO_IP : IPPROTO_IPV6, four ? IP_MTU : IPV6_MTU, &mtu, &len) < 0 ||
        mtu < 0)
        return 0;
    return static_cast<std::uint32_t>(mtu);
}

bool is_local_address(std::uint32_t be)
{
    const Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in sa{};
    sa.sin_family = AF_INET;
    sa.sin_addr.s_addr = be;
    return fd && ::bind(fd.get(), reinterpret_cast<const sockaddr *>(&sa), sizeof sa) == 0;
}

void disable_ipv6_autoconf(std::uint32_t ifindex)
{
    std::array<char, 512> buf{};
    nlmsghdr *nlh = mnl_nlmsg_put_header(buf.data());
    nlh->nlmsg_type = RTM_SETLINK;
    nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    auto *ifi = static_cast<ifinfomsg *>(mnl_nlmsg_put_extra_header(nlh, sizeof(ifinfomsg)));
    ifi->ifi_index = static_cast<int>(ifindex);
    nlattr *spec = mnl_attr_nest_start(nlh, IFLA_AF_SPEC);
    nlattr *inet6 = mnl_attr_nest_start(nlh, AF_INET6);
    mnl_attr_put_u8(nlh, IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
    mnl_attr_nest_end(nlh, inet6);
    mnl_attr_nest_end(nlh, spec);
    // Refused where IPv6 is off: then there is nothing to switch off.
    ask_rtnetlink(nlh, [](const nlmsghdr *) {});
}

} // namespace ftctl
