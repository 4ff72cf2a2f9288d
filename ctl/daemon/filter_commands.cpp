// SPDX-License-Identifier: GPL-2.0-only
// The commands of the early filter and of the reverse path filter.
#include <array>
#include <cstring>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>

#include "daemon/engine.h"
#include "daemon/request.h"
#include "daemon/rpf_mode.h"
#include "util/clock.h"
#include "util/suggest.h"

namespace ftctl {

using nlohmann::json;

Reply Engine::cmd_filter_add(const json &request)
{
    const auto rule_words = words(request, "words");
    if (!rule_words)
        return failure({"filter add", "no words", "", Code::usage, 0});
    auto rule = parse_filter_rule(*rule_words, "filter add");
    if (!rule)
        return failure(rule.error());
    const auto id = filter_->add(std::move(*rule));
    return id ? answer({{"id", *id}}) : failure(id.error());
}

Reply Engine::cmd_filter_del(const json &request)
{
    std::vector<std::uint32_t> ids;
    const auto it = request.find("ids");
    if (it != request.end() && it->is_array())
        for (const json &id : *it)
            if (id.is_number_unsigned() && id.get<std::uint64_t>() <= kMaxFilterId)
                ids.push_back(id.get<std::uint32_t>());
    if (ids.empty() || ids.size() != it->size())
        return failure({"filter del", "no id given", "ftctl filter del ID...", Code::usage, 0});
    if (auto done = filter_->remove(ids); !done)
        return failure(done.error());
    return answer({{"rules", filter_->size()}});
}

Reply Engine::cmd_filter_load(const json &request)
{
    EarlyFilter::Part part;
    auto lines = words(request, "lines");
    part.token = word(request, "token");
    if (!lines || part.token.empty())
        return failure({"filter load", "lines and token are needed", "", Code::usage, 0});
    part.lines = std::move(*lines);
    part.more = flag(request, "more", false);
    const auto rules = filter_->load(part, monotonic_ns());
    return rules ? answer({{"rules", *rules}}) : failure(rules.error());
}

Reply Engine::cmd_filter_flush()
{
    const std::size_t before = filter_->size();
    if (auto done = filter_->replace({}); !done)
        return failure(done.error());
    return answer({{"removed", before}});
}

Reply Engine::cmd_rpf(const json &request)
{
    const std::string device = word(request, "device"), mode = word(request, "rpf");
    if (device.empty() || mode.empty() || !parse_rpf(mode))
        return failure({"rpf", device.empty() ? "no device named" : "unknown mode '" + mode + "'",
                        "ftctl rpf DEV MODE; modes: " + join_words(rpf_words()), Code::usage, 0});
    tell_rpf(); // before the first packet is judged
    if (auto done = devices_->set_rpf(device, mode); !done)
        return failure(done.error());
    Reply reply = answer({{"name", device}, {"rpf", rpf_text(*parse_rpf(mode))}});
    if (auto saved = save(); !saved)
        reply.errors.push_back(saved.error());
    return reply;
}

namespace {

std::uint32_t v4_of(const sockaddr *addr)
{
    return reinterpret_cast<const sockaddr_in *>(addr)->sin_addr.s_addr;
}

/// The broadcast addresses that come with an IPv4 address (fib_add_ifaddr()).
void add_broadcasts(const ifaddrs &item, std::vector<ftctl_broadcast> &to)
{
    const std::uint32_t ifindex = if_nametoindex(item.ifa_name);
    const auto add = [&](std::uint32_t addr) {
        if (ifindex != 0 && addr != 0 && addr != INADDR_BROADCAST)
            to.push_back({ifindex, addr});
    };
    const std::uint32_t mask = item.ifa_netmask ? v4_of(item.ifa_netmask) : INADDR_BROADCAST;
    if (ntohl(~mask) > 1) // shorter than /31
        add(v4_of(item.ifa_addr) | ~mask);
    // without a broadcast address it is the address itself (glibc has both of the kernel's attributes there)
    if ((item.ifa_flags & IFF_BROADCAST) != 0 && item.ifa_broadaddr != nullptr &&
        v4_of(item.ifa_broadaddr) != v4_of(item.ifa_addr))
        add(v4_of(item.ifa_broadaddr));
}

} // namespace

/// What the reverse path filter goes by beyond the kernel's routes: which families have routes with several
/// next hops, which addresses may have a socket, and which are for broadcast.
void Engine::tell_rpf()
{
    ftctl_config &config = datapath_->config();
    config.multipath = (kernel_->multipath(AF_INET) ? FTCTL_MULTIPATH_4 : 0U) |
                       (kernel_->multipath(AF_INET6) ? FTCTL_MULTIPATH_6 : 0U);
    std::array<std::uint32_t, FTCTL_LOCAL_BITS / 32> local{};
    std::vector<ftctl_broadcast> broadcasts;
    ifaddrs *first = nullptr;
    if (getifaddrs(&first) != 0)
        return; // what was known stays: it only decides whether a socket is looked for early
    for (const ifaddrs *it = first; it != nullptr; it = it->ifa_next) {
        ftctl_addr addr{};
        if (it->ifa_addr != nullptr && it->ifa_addr->sa_family == AF_INET) {
            addr.w[0] = v4_of(it->ifa_addr);
            add_broadcasts(*it, broadcasts);
        } else if (it->ifa_addr != nullptr && it->ifa_addr->sa_family == AF_INET6) {
            std::memcpy(addr.w, &reinterpret_cast<const sockaddr_in6 *>(it->ifa_addr)->sin6_addr,
                        sizeof(addr));
        } else {
            continue;
        }
        const std::uint32_t bit = ftctl_local_bit(&addr);
        local.at(bit / 32) |= 1U << (bit % 32);
    }
    freeifaddrs(first);
    std::copy(local.begin(), local.end(), std::begin(config.local));
    if (auto told = datapath_->set_broadcasts(broadcasts); !told)
        spdlog::warn("{}: {}", told.error().what, told.error().why);
}

/// What the two filters did in the last second, for monitors.
void Engine::publish_drops()
{
    const auto stats = datapath_->stats();
    if (!stats)
        return;
    for (const SlotStats &slot : *stats)
        for (const unsigned reason : {FTCTL_R_FILTER, FTCTL_R_RPF, FTCTL_R_RPF_LOG, FTCTL_R_RPF_UNSURE}) {
            const std::uint64_t now = slot.stats.reasons[reason];
            auto &before = dropped_[{slot.attachment.slot, reason}];
            if (now > before)
                server_->publish({{"event", "filtered"},
                                  {"device", kernel_->name(slot.attachment.ifindex)},
                                  {"reason", reason_name(reason)},
                                  {"packets", now - before},
                                  {"total", now}});
            before = now; // smaller: the slot is another device's now
        }
}

} // namespace ftctl
