// SPDX-License-Identifier: GPL-2.0-only
// The devices that the programs believe in.
#include <cerrno>
#include <cstring>
#include <sched.h>
#include <stdexcept>
#include <sys/socket.h>

#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>

#include "bpf_run_impl.h"

namespace ftctl::test {
namespace {

constexpr std::uint32_t kFirstIfindex = 40;

/// RTM_NEWLINK for a veth pair with the ifindex and the MAC address that the tests reckon with.
void make_veth(mnl_socket *sock, Device device)
{
    std::array<char, 1024> buffer{};
    nlmsghdr *message = mnl_nlmsg_put_header(buffer.data());
    message->nlmsg_type = RTM_NEWLINK;
    message->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    auto *link = static_cast<ifinfomsg *>(mnl_nlmsg_put_extra_header(message, sizeof(ifinfomsg)));
    link->ifi_index = static_cast<int>(kFirstIfindex + device);
    const Mac mac = device_mac(device);
    mnl_attr_put(message, IFLA_ADDRESS, mac.size(), mac.data());
    mnl_attr_put_strz(message, IFLA_IFNAME, fmt::format("bt{}", static_cast<unsigned>(device)).c_str());
    nlattr *info = mnl_attr_nest_start(message, IFLA_LINKINFO);
    mnl_attr_put_strz(message, IFLA_INFO_KIND, "veth");
    mnl_attr_nest_end(message, info);

    must(static_cast<int>(mnl_socket_sendto(sock, message, message->nlmsg_len)), "veth");
    std::array<char, 8192> answer{};
    const ssize_t size = mnl_socket_recvfrom(sock, answer.data(), answer.size());
    must(static_cast<int>(size), "veth");
    must(mnl_cb_run(answer.data(), static_cast<std::size_t>(size), 0, mnl_socket_get_portid(sock), nullptr,
                    nullptr),
         "veth");
}

} // namespace

void make_devices()
{
    must(unshare(CLONE_NEWNET), "unshare");
    mnl_socket *sock = mnl_socket_open(NETLINK_ROUTE);
    if (sock == nullptr)
        die("netlink", errno);
    must(mnl_socket_bind(sock, 0, MNL_SOCKET_AUTOPID), "netlink");
    for (unsigned device = 0; device < kDevices; ++device)
        make_veth(sock, static_cast<Device>(device));
    mnl_socket_close(sock);
}

void die(const std::string &what, int err)
{
    throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(err < 0 ? -err : err)));
}

void must(int rc, const std::string &what)
{
    if (rc < 0)
        die(what, errno != 0 ? errno : rc);
}

std::uint32_t Rig::ifindex(Device device) const
{
    return kFirstIfindex + device;
}

Mac device_mac(Device device)
{
    return {0x02, 0xf7, 0xc7, 0x10, 0x00, static_cast<std::uint8_t>(0x0a + device)};
}

} // namespace ftctl::test
