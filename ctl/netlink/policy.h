// SPDX-License-Identifier: GPL-2.0-only
// What else decides about packets: IPsec policies, the nftables ruleset, sysctls, device features.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "util/addr.h"
#include "util/result.h"

namespace ftctl {

/// An XFRM policy selector; what it does not name matches everything.
struct XfrmSelector {
    Prefix src;
    Prefix dst;
    std::uint8_t proto = 0; ///< 0: any
    std::uint16_t sport = 0, sport_mask = 0;
    std::uint16_t dport = 0, dport_mask = 0;
    std::uint32_t ifindex = 0;
    std::uint8_t family = 0;
    [[nodiscard]] bool matches(const Tuple &t) const;
};

/// Policies that touch forwarded packets (direction out or fwd) and do more than allow them
/// without templates, plus the default action.
struct XfrmPolicies {
    std::vector<XfrmSelector> selectors;
    bool default_block = false; ///< XFRM_MSG_GETDEFAULT says block for fwd or out
    /// A policy matches t or the opposite direction of it. With NAT the kernel looks at a packet
    /// before and after translation: ask for both tuples of the connection, and when both its
    /// addresses are translated also for (original source, reply source).
    [[nodiscard]] bool touches(const Tuple &t) const;
};

class XfrmWatch {
  public:
    static Result<std::unique_ptr<XfrmWatch>> open(); ///< ok with nothing to watch where XFRM is absent
    virtual ~XfrmWatch() = default;
    [[nodiscard]] virtual int fd() const = 0; ///< -1 where XFRM is absent
    /// Drains the socket; true when policies may have changed (also after ENOBUFS).
    virtual Result<bool> read() = 0;
    virtual Result<XfrmPolicies> policies() = 0;
};

/// The nftables generation: a number that changes with every committed transaction.
class NftWatch {
  public:
    static Result<std::unique_ptr<NftWatch>> open();
    virtual ~NftWatch() = default;
    [[nodiscard]] virtual int fd() const = 0;
    /// Drains the socket; true when the ruleset changed since the last call (NEWGEN, ENOBUFS).
    virtual Result<bool> read() = 0;
};

/// The table of our own that keeps conntrack on: `inet ftctl`, one `ct state` rule.
/// Through libnftables; no process is started.
class TrackTable {
  public:
    static Result<std::unique_ptr<TrackTable>> open();
    virtual ~TrackTable() = default;
    /// Conntrack is held on in this namespace, for this family, by somebody else's rules. Where the
    /// kernel can list its hooks (nfnetlink_hook) that is the answer; elsewhere the ruleset is read
    /// for ct and nat expressions; when neither can be told: false.
    virtual Result<bool> tracked_by_others(std::uint8_t family) = 0;
    /// The table is there with its rule; a flushed table counts as absent and add() repairs it.
    virtual Result<bool> exists() = 0;
    virtual Status add() = 0;    ///< idempotent
    virtual Status remove() = 0; ///< idempotent
};

/// Reads /proc/sys/net/... of the namespace; name with dots or slashes ("net/ipv4/ip_forward").
std::optional<long> sysctl_number(const std::string &name);

/// ethtool facts of a device (SIOCETHTOOL); absent where the driver does not say.
struct DeviceFeatures {
    bool lro = false;
    bool rx_vlan_offload = false; ///< rx-vlan-hw-parse
    bool gro = false;
    bool hw_gro = false;
    std::string driver;
};
Result<DeviceFeatures> device_features(const std::string &name);

/// NETDEV_XDP_ACT_* of a device from the netdev generic netlink family; none on kernels without it.
std::optional<std::uint64_t> xdp_features(std::uint32_t ifindex);

} // namespace ftctl
