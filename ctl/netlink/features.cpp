// SPDX-License-Identifier: GPL-2.0-only
// What devices can do: SIOCETHTOOL and the netdev generic netlink family.
#include "netlink/policy.h"

#include <string_view>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/genetlink.h>
#include <linux/if.h>
#include <linux/sockios.h>

#include "netlink/socket.h"

namespace ftctl {
namespace {

// include/uapi/linux/netdev.h (6.3), newer than the oldest headers this is built with.
constexpr const char *netdev_family = "netdev";
constexpr std::uint8_t netdev_cmd_dev_get = 1;
constexpr std::uint16_t netdev_a_dev_ifindex = 1;
constexpr std::uint16_t netdev_a_dev_xdp_features = 3;

// Kernels have about 70 features; more than this is not believed.
constexpr std::uint32_t max_features = 1024;

class Ethtool {
  public:
    explicit Ethtool(const std::string &name) : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0))
    {
        name.copy(ifr_.ifr_name, IFNAMSIZ - 1);
    }

    /// 0 or errno.
    int call(void *request)
    {
        if (!fd_)
            return EMFILE;
        ifr_.ifr_data = static_cast<char *>(request);
        return ioctl(fd_.get(), SIOCETHTOOL, &ifr_) < 0 ? errno : 0;
    }

  private:
    Fd fd_;
    ifreq ifr_{};
};

/// A request with a tail of variable size, in storage aligned for it.
template <typename T>
class Sized {
  public:
    explicit Sized(std::size_t tail) : words_((sizeof(T) + tail + 7) / 8) {}
    T *operator->() { return reinterpret_cast<T *>(words_.data()); }
    [[nodiscard]] void *raw() { return words_.data(); }
    /// The i-th element of the tail, copied.
    template <typename E>
    E at(std::size_t i)
    {
        E e;
        std::memcpy(&e, reinterpret_cast<const char *>(words_.data()) + sizeof(T) + i * sizeof(E), sizeof(E));
        return e;
    }

  private:
    std::vector<std::uint64_t> words_;
};

int feature_count(Ethtool &tool, std::uint32_t &count)
{
    Sized<ethtool_sset_info> info(sizeof(std::uint32_t));
    info->cmd = ETHTOOL_GSSET_INFO;
    info->sset_mask = 1ULL << ETH_SS_FEATURES;
    const int err = tool.call(info.raw());
    count = err == 0 && info->sset_mask != 0 ? info.at<std::uint32_t>(0) : 0;
    return err;
}

using FeatureName = std::array<char, ETH_GSTRING_LEN>;

int read_features(Ethtool &tool, DeviceFeatures &f)
{
    std::uint32_t count = 0;
    if (const int err = feature_count(tool, count))
        return err;
    if (count == 0 || count > max_features)
        return EPROTO;
    Sized<ethtool_gstrings> names(std::size_t{count} * ETH_GSTRING_LEN);
    names->cmd = ETHTOOL_GSTRINGS;
    names->string_set = ETH_SS_FEATURES;
    names->len = count;
    if (const int err = tool.call(names.raw()))
        return err;
    const std::uint32_t blocks = (count + 31) / 32;
    Sized<ethtool_gfeatures> values(blocks * sizeof(ethtool_get_features_block));
    values->cmd = ETHTOOL_GFEATURES;
    values->size = blocks;
    if (const int err = tool.call(values.raw()))
        return err;
    for (std::uint32_t i = 0; i < count; i++) {
        const auto text = names.at<FeatureName>(i);
        const std::string_view name(text.data(), strnlen(text.data(), text.size()));
        const auto block = values.at<ethtool_get_features_block>(i / 32);
        const bool on = (block.active >> (i % 32) & 1U) != 0;
        if (name == "rx-lro")
            f.lro = on;
        else if (name == "rx-vlan-hw-parse")
            f.rx_vlan_offload = on;
        else if (name == "rx-gro")
            f.gro = on;
        else if (name == "rx-gro-hw")
            f.hw_gro = on;
    }
    return 0;
}

nl::Request &start(nl::Request &r, std::uint8_t cmd)
{
    auto &head = r.head<genlmsghdr>();
    head.cmd = cmd;
    head.version = 1;
    return r;
}

std::optional<std::uint16_t> family_id(nl::Socket &socket)
{
    nl::Request r(GENL_ID_CTRL, 0);
    start(r, CTRL_CMD_GETFAMILY).put_text(CTRL_ATTR_FAMILY_NAME, netdev_family);
    std::optional<std::uint16_t> id;
    const int err = socket.ask(r, [&id](const nl::Message &m) {
        if (const auto a = m.attrs(sizeof(genlmsghdr)).find(CTRL_ATTR_FAMILY_ID))
            id = a->num<std::uint16_t>();
        return true;
    });
    return err == 0 ? id : std::nullopt;
}

} // namespace

Result<DeviceFeatures> device_features(const std::string &name)
{
    const auto what = [&name] { return fmt::format("read the features of {}", name); };
    if (name.empty() || name.size() >= IFNAMSIZ)
        return fail_errno(what(), ENODEV);
    Ethtool tool(name);
    DeviceFeatures f;
    if (const int err = read_features(tool, f))
        return fail_errno(what(), err);
    ethtool_drvinfo info{};
    info.cmd = ETHTOOL_GDRVINFO;
    if (tool.call(&info) == 0) // devices without a driver behind them do not answer
        f.driver.assign(info.driver, strnlen(info.driver, sizeof(info.driver)));
    return f;
}

std::optional<std::uint64_t> xdp_features(std::uint32_t ifindex)
{
    auto socket = nl::Socket::open(NETLINK_GENERIC);
    if (!socket)
        return std::nullopt;
    const auto family = family_id(*socket);
    if (!family)
        return std::nullopt;
    nl::Request r(*family, 0);
    start(r, netdev_cmd_dev_get).put_u32(netdev_a_dev_ifindex, ifindex);
    std::optional<std::uint64_t> features;
    const int err = socket->ask(r, [&features](const nl::Message &m) {
        if (const auto a = m.attrs(sizeof(genlmsghdr)).find(netdev_a_dev_xdp_features))
            features = a->num<std::uint64_t>();
        return true;
    });
    return err == 0 ? features : std::nullopt;
}

} // namespace ftctl
