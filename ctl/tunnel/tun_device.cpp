// SPDX-License-Identifier: GPL-2.0-only
#include "tunnel/tun_device.h"

#include <algorithm>
#include <cctype>
#include <fcntl.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <linux/if_tun.h>

namespace ftctl {

namespace {

/// dev_valid_name(), and no '%', from which TUNSETIFF would make a pattern.
bool valid_device_name(const std::string &name)
{
    if (name.empty() || name.size() >= IFNAMSIZ || name == "." || name == "..")
        return false;
    return std::none_of(name.begin(), name.end(), [](unsigned char c) {
        return c == '/' || c == ':' || c == '%' || c <= ' ' || c == 0x7f;
    });
}

ifreq request(const std::string &name)
{
    ifreq ifr{};
    name.copy(ifr.ifr_name, IFNAMSIZ - 1);
    return ifr;
}

Fd control_socket()
{
    return Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

std::string attach_hint(int err)
{
    switch (err) {
    case EBUSY:
        return "another process holds this TUN device; stop it or choose another name";
    case EINVAL:
        return "a device of this name exists and is no TUN device; choose another name";
    case EPERM:
        return "it needs CAP_NET_ADMIN in this network namespace";
    default:
        return {};
    }
}

} // namespace

Result<TunDevice> tun_open(const std::string &name)
{
    const std::string what = fmt::format("create tunnel device {}", name);
    if (!valid_device_name(name))
        return fail(what, "not a device name", "1 to 15 characters, none of '/', ':', '%' or space",
                    Code::usage);

    TunDevice tun;
    tun.name = name;
    tun.created = if_nametoindex(name.c_str()) == 0;
    tun.fd.reset(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!tun.fd)
        return fail_errno(fmt::format("{}: open /dev/net/tun", what), errno,
                          "the kernel needs CONFIG_TUN (modprobe tun), a container the device node");
    ifreq ifr = request(name);
    ifr.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    if (::ioctl(tun.fd.get(), TUNSETIFF, &ifr) < 0) {
        const int err = errno;
        return fail_errno(what, err, attach_hint(err));
    }
    // No offloads: the kernel finishes checksums and segments before a packet is read here. Stated,
    // since an earlier owner may have left others.
    if (::ioctl(tun.fd.get(), TUNSETOFFLOAD, 0UL) < 0)
        return fail_errno(fmt::format("{}: switch offloads off", what), errno);

    ifr = request(name);
    const Fd sock = control_socket();
    if (!sock || ::ioctl(sock.get(), SIOCGIFINDEX, &ifr) < 0)
        return fail_errno(fmt::format("{}: read its index", what), errno);
    tun.ifindex = static_cast<std::uint32_t>(ifr.ifr_ifindex);
    return tun;
}

Status tun_persist(const TunDevice &tun, bool on)
{
    if (::ioctl(tun.fd.get(), TUNSETPERSIST, on ? 1UL : 0UL) < 0)
        return fail_errno(fmt::format("make tunnel device {} {}", tun.name, on ? "persistent" : "removable"),
                          errno);
    return {};
}

Status tun_set_mtu(const TunDevice &tun, std::uint32_t mtu)
{
    ifreq ifr = request(tun.name);
    ifr.ifr_mtu = static_cast<int>(mtu);
    const Fd sock = control_socket();
    if (!sock || ::ioctl(sock.get(), SIOCSIFMTU, &ifr) < 0)
        return fail_errno(fmt::format("set the MTU of {} to {}", tun.name, mtu), errno);
    return {};
}

Status tun_set_queue(const TunDevice &tun, std::uint32_t packets)
{
    ifreq ifr = request(tun.name);
    ifr.ifr_qlen = static_cast<int>(packets);
    const Fd sock = control_socket();
    if (!sock || ::ioctl(sock.get(), SIOCSIFTXQLEN, &ifr) < 0)
        return fail_errno(fmt::format("set the queue of {} to {} packets", tun.name, packets), errno);
    return {};
}

std::uint32_t tun_mtu(const std::string &name)
{
    ifreq ifr = request(name);
    const Fd sock = control_socket();
    if (!sock || ::ioctl(sock.get(), SIOCGIFMTU, &ifr) < 0 || ifr.ifr_mtu < 0)
        return 0;
    return static_cast<std::uint32_t>(ifr.ifr_mtu);
}

} // namespace ftctl
