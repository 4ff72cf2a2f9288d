// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/kernel_view.h"

#include <algorithm>
#include <array>

#include <linux/rtnetlink.h>
#include <spdlog/spdlog.h>

#include "util/clock.h"

namespace ftctl {

namespace {

/// Per device, and for "all"; a change of any of them sends every flow back to the witness.
constexpr std::array kDeviceSettings = {
    "forwarding",     "rp_filter",      "send_redirects",      "accept_local",
    "route_localnet", "src_valid_mark", "accept_source_route", "drop_unicast_in_l2_multicast"};
constexpr std::array kDeviceSettings6 = {"forwarding",
                                         "force_forwarding",
                                         "disable_ipv6",
                                         "mtu",
                                         "disable_policy",
                                         "proxy_ndp",
                                         "drop_unicast_in_l2_multicast"};
constexpr const char *kAutoFlowLabels = "net/ipv6/auto_flowlabels";
constexpr const char *kUsePmtu = "net/ipv4/ip_forward_use_pmtu";
constexpr const char *kUpdatePriority = "net/ipv4/ip_forward_update_priority";
constexpr const char *kMultipathHash6 = "net/ipv6/fib_multipath_hash_policy";
constexpr std::array kGlobalSettings = {"net/ipv4/ip_forward", kUsePmtu,
                                        kUpdatePriority,       "net/ipv4/fib_multipath_hash_policy",
                                        kAutoFlowLabels,       kMultipathHash6};
constexpr std::size_t kMaxLocal = 65536;

void read_ipv6_settings(const std::string &dev, Sysctls &now)
{
    for (const char *setting : kDeviceSettings6) {
        const std::string path = "net/ipv6/conf/" + dev + "/" + setting;
        now.forwarding[path] = sysctl_number(path).value_or(-1);
    }
}

} // namespace

Result<std::unique_ptr<KernelView>> KernelView::open()
{
    auto control = RtControl::open();
    if (!control)
        return tl::unexpected(control.error());
    auto view = std::make_unique<KernelView>();
    view->control_ = std::move(*control);
    if (auto done = view->refresh(); !done)
        return tl::unexpected(done.error());
    return view;
}

Result<RouteAnswer> KernelView::route(const RouteQuery &query)
{
    const bool cached = may_cache(query.dst.family);
    const std::uint64_t now = monotonic_ns();
    if (cached)
        if (const RouteAnswer *known = routes_.find(query, now))
            return *known;
    auto answer = control_->route(query);
    if (answer && cached)
        routes_.store(query, *answer, now);
    if (answer && answer->type == RTN_LOCAL && local_.size() < kMaxLocal)
        local_.insert(query.dst);
    return answer;
}

bool KernelView::may_cache(std::uint8_t family) const
{
    if (!rules_read_)
        return false;
    if (family == AF_INET6)
        return policy6_.cacheable;
    // Learnt path MTUs count for forwarded packets then, and nothing announces them.
    const auto use_pmtu = sysctls_.forwarding.find(kUsePmtu);
    return policy4_.cacheable && use_pmtu != sysctls_.forwarding.end() && use_pmtu->second == 0;
}

const Link *KernelView::link(std::uint32_t ifindex)
{
    if (const auto it = links_.find(ifindex); it != links_.end())
        return &it->second;
    // younger than the last event read
    auto fresh = control_->link(ifindex);
    if (!fresh)
        return nullptr;
    overlay(*fresh);
    version_++;
    return &links_.insert_or_assign(ifindex, std::move(*fresh)).first->second;
}

bool KernelView::sends_redirects(std::uint32_t ifindex)
{
    // IN_DEV_TX_REDIRECTS: either "all" or the device
    const auto on = [](const std::string &name) {
        const auto value = sysctl_number("net/ipv4/conf/" + name + "/send_redirects");
        return value.value_or(1) != 0;
    };
    return on("all") || on(name(ifindex));
}

Status KernelView::refresh()
{
    auto links = control_->links();
    if (!links)
        return tl::unexpected(links.error());
    forget_routes();
    version_++;
    links_.clear();
    links_changed_ = true;
    for (Link &link : *links) {
        overlay(link);
        links_.emplace(link.index, std::move(link));
    }
    auto neighbours = control_->neighbours();
    if (!neighbours)
        return tl::unexpected(neighbours.error());
    neighbours_.clear();
    for (Neigh &neigh : *neighbours)
        neighbours_.insert_or_assign({neigh.ifindex, neigh.addr}, neigh);
    local_.clear();
    refresh_bridges();
    (void)poll_pppoe();
    sysctls_ = read_sysctls();
    return refresh_rules();
}

Status KernelView::refresh_rules()
{
    suspect_routes();
    if (auto done = refresh_rules(AF_INET, policy4_); !done)
        return done;
    auto done = refresh_rules(AF_INET6, policy6_);
    // A kernel without IPv6 routes no such packet.
    if (!done && (done.error().err == EAFNOSUPPORT || done.error().err == EOPNOTSUPP)) {
        policy6_ = {};
        done = {};
    }
    rules_read_ = done.has_value();
    return done;
}

Status KernelView::refresh_rules(std::uint8_t family, Policy &policy)
{
    const auto rules = control_->rules(family);
    if (!rules)
        return tl::unexpected(rules.error());
    const auto traits = control_->route_traits(family);
    if (!traits)
        return tl::unexpected(traits.error());
    policy = {rules->fwmark, rules->tos || rules->other || traits->tos, traits->multipath,
              !rules->ports && !traits->multipath && !traits->alternatives};
    return {};
}

std::uint32_t KernelView::ipv6_mtu(std::uint32_t ifindex)
{
    const std::string path = "net/ipv6/conf/" + name(ifindex) + "/mtu";
    auto it = sysctls_.forwarding.find(path);
    if (it == sysctls_.forwarding.end()) {
        asked_.insert(ifindex);
        // all of the device's, as the next poll will have them: nothing has changed by the question
        read_ipv6_settings(name(ifindex), sysctls_);
        it = sysctls_.forwarding.find(path);
    }
    return it->second > 0 ? static_cast<std::uint32_t>(it->second) : 0;
}

int KernelView::auto_flow_labels()
{
    const auto it = sysctls_.forwarding.find(kAutoFlowLabels);
    return it == sysctls_.forwarding.end() || it->second < 0 ? 1 : static_cast<int>(it->second);
}

bool KernelView::priority_by_tos() const
{
    const auto it = sysctls_.forwarding.find(kUpdatePriority);
    return it == sysctls_.forwarding.end() || it->second != 0; // kernels before 4.19 always do
}

bool KernelView::flow_label_routed() const
{
    // rt6_multipath_hash(): only policy 1 is over addresses, protocol and ports alone.
    constexpr long by_ports = 1;
    const auto it = sysctls_.forwarding.find(kMultipathHash6);
    return policy6_.multipath && (it == sysctls_.forwarding.end() || it->second != by_ports);
}

void KernelView::apply(const LinkChanged &event)
{
    Link link = event.link;
    overlay(link);
    version_++;
    links_changed_ = true;
    links_.insert_or_assign(link.index, std::move(link));
}

void KernelView::apply(const LinkGone &event)
{
    version_++;
    links_.erase(event.index);
    links_changed_ = true;
    asked_.erase(event.index);
    pppoe_.forget(event.index);
    const auto first = neighbours_.lower_bound({event.index, IpAddr{}});
    const auto last = neighbours_.lower_bound({event.index + 1, IpAddr{}});
    neighbours_.erase(first, last);
}

void KernelView::apply(const NeighChanged &event)
{
    const auto key = std::make_pair(event.neigh.ifindex, event.neigh.addr);
    version_++;
    if (event.gone)
        neighbours_.erase(key);
    else
        neighbours_.insert_or_assign(key, event.neigh);
}

const Link *KernelView::link_by_name(const std::string &name) const
{
    const auto it = std::find_if(links_.begin(), links_.end(),
                                 [&](const auto &entry) { return entry.second.name == name; });
    return it == links_.end() ? nullptr : &it->second;
}

const Neigh *KernelView::neighbour(std::uint32_t ifindex, const IpAddr &addr) const
{
    const auto it = neighbours_.find({ifindex, addr});
    return it == neighbours_.end() ? nullptr : &it->second;
}

std::string KernelView::name(std::uint32_t ifindex) const
{
    const auto it = links_.find(ifindex);
    return it == links_.end() ? "if" + std::to_string(ifindex) : it->second.name;
}

void KernelView::set_attached(std::uint32_t ifindex, bool on)
{
    if (on)
        attached_.insert(ifindex);
    else
        attached_.erase(ifindex);
    version_++;
    sysctls_ = read_sysctls(); // the set of devices that are watched has changed, not a setting
}

void KernelView::declare_tunnel(const std::string &name, const TunnelConfig &config)
{
    version_++;
    declared_[name] = config;
    for (auto &[index, link] : links_)
        overlay(link);
}

void KernelView::forget_tunnel(const std::string &name)
{
    version_++;
    declared_.erase(name);
    for (auto &[index, link] : links_)
        if (link.name == name)
            link.tunnel.reset();
}

bool KernelView::poll_sysctls()
{
    Sysctls now = read_sysctls();
    const bool changed = now.forwarding != sysctls_.forwarding;
    if (changed) {
        version_++;
        forget_routes();
    }
    if (changed)
        for (const auto &[name, value] : now.forwarding)
            if (const auto was = sysctls_.forwarding.find(name);
                was == sysctls_.forwarding.end() || was->second != value)
                spdlog::info("{} is {} now", name, value);
    sysctls_ = std::move(now);
    return changed;
}

void KernelView::overlay(Link &link) const
{
    if (const auto it = declared_.find(link.name); it != declared_.end())
        link.tunnel = it->second;
}

Sysctls KernelView::read_sysctls() const
{
    Sysctls now;
    now.udp_stream_s =
        sysctl_number("net/netfilter/nf_conntrack_udp_timeout_stream").value_or(now.udp_stream_s);
    now.gre_stream_s =
        sysctl_number("net/netfilter/nf_conntrack_gre_timeout_stream").value_or(now.gre_stream_s);
    now.tcp_established_s =
        sysctl_number("net/netfilter/nf_conntrack_tcp_timeout_established").value_or(now.tcp_established_s);
    for (const char *name : kGlobalSettings)
        now.forwarding[name] = sysctl_number(name).value_or(-1);
    const auto device = [&now](const std::string &dev) {
        for (const char *setting : kDeviceSettings) {
            const std::string path = "net/ipv4/conf/" + dev + "/" + setting;
            now.forwarding[path] = sysctl_number(path).value_or(-1);
        }
        read_ipv6_settings(dev, now);
    };
    device("all");
    for (const std::uint32_t ifindex : attached_)
        device(name(ifindex));
    for (const auto &[dev, config] : declared_)
        device(dev);
    for (const std::uint32_t ifindex : asked_)
        read_ipv6_settings(name(ifindex), now);
    return now;
}

} // namespace ftctl
