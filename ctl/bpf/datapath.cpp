// SPDX-License-Identifier: GPL-2.0-only
// How a Datapath comes to be, and what needs no file of its own.
#include "bpf/datapath_impl.h"

#include <algorithm>
#include <array>
#include <cassert>

#include <bpf/bpf.h>
#include <fmt/format.h>
#include <net/if.h>
#include <spdlog/spdlog.h>

#include "bpf/kernel_log.h"

namespace ftctl {
namespace {

using bpf::DatapathImpl;
using bpf::Maps;
using bpf::PinDir;

void remove_link_pins(const PinDir &pins)
{
    for (const std::string &name : pins.link_names())
        bpf::remove_link_pin(pins, name);
}

// Is a pinned link still attached to a device, wherever that is?
bool any_attached(const PinDir &pins)
{
    for (const bpf::LinkPin &pin : pins.links()) {
        auto hooked = bpf::open_pinned(pins, pin);
        if (pin.kind != bpf::PinKind::clsact_qdisc && hooked && bpf::attached_program(*hooked) != 0)
            return true;
    }
    return false;
}

// Pins of a namespace that is no more must not be adopted: their ifindexes mean other devices. Of one
// that lives, they belong to another daemon. true: they are ours.
Result<bool> from_this_namespace(const Maps &maps, const PinDir &pins, const std::string &instance)
{
    const std::uint64_t theirs = maps.config().netns_cookie;
    if (theirs == 0 || theirs == bpf::netns_cookie())
        return true;
    if (any_attached(pins))
        return fail(fmt::format("open instance {}", instance),
                    "it is attached to devices of another network namespace",
                    "give this namespace's daemon a name of its own: -i NAME");
    return false;
}

Result<std::unique_ptr<Datapath>> make_pinned(const PinDir &pins, const DatapathLimits &limits)
{
    auto maps = Maps::create(limits);
    if (!maps)
        return tl::unexpected(maps.error());
    if (auto created = pins.create(); !created)
        return tl::unexpected(created.error());
    if (auto pinned = maps->pin(pins.maps()); !pinned) {
        static_cast<void>(pins.remove());
        return tl::unexpected(pinned.error());
    }
    auto datapath = std::make_unique<DatapathImpl>(std::move(*maps), pins);
    if (auto ready = datapath->prepare(); !ready) {
        static_cast<void>(pins.remove());
        return tl::unexpected(ready.error());
    }
    return datapath;
}

} // namespace

Result<std::unique_ptr<Datapath>> Datapath::open_or_create(const std::string &instance,
                                                           const DatapathLimits &limits)
{
    bpf::route_libbpf_messages();
    if (auto valid = bpf::check_instance_name(instance); !valid)
        return tl::unexpected(valid.error());
    if (auto mounted = ensure_bpffs(); !mounted)
        return tl::unexpected(mounted.error());
    const PinDir pins(instance);
    auto maps = Maps::open(pins.maps());
    bool ours = false;
    if (maps) {
        auto here = from_this_namespace(*maps, pins, instance);
        if (!here)
            return tl::unexpected(here.error());
        ours = *here;
    } else if (maps.error().code != Code::not_running && maps.error().code != Code::partial) {
        return tl::unexpected(maps.error());
    } else if (maps.error().code == Code::partial) {
        spdlog::info("{}: {}; starting anew", maps.error().what, maps.error().why);
    }
    if (!ours) {
        remove_link_pins(pins);
        if (auto removed = pins.remove(); !removed)
            return tl::unexpected(removed.error());
        return make_pinned(pins, limits);
    }
    if (auto created = pins.create(); !created) // links/ may be missing
        return tl::unexpected(created.error());
    auto datapath = std::make_unique<DatapathImpl>(std::move(*maps), pins);
    if (auto ready = datapath->prepare(); !ready)
        return tl::unexpected(ready.error());
    if (auto filter = datapath->open_filter(); !filter)
        return tl::unexpected(filter.error());
    datapath->set_adopted();
    datapath->find_attachments(true);
    return datapath;
}

Result<std::unique_ptr<Datapath>> Datapath::open_existing(const std::string &instance)
{
    bpf::route_libbpf_messages();
    if (auto valid = bpf::check_instance_name(instance); !valid)
        return tl::unexpected(valid.error());
    const PinDir pins(instance);
    auto maps = Maps::open(pins.maps());
    if (!maps) {
        auto error = maps.error();
        if (error.code == Code::not_running) {
            error.what = fmt::format("open instance {}", instance);
            error.why = "nothing is pinned";
            error.hint = "start ftctld";
        } else if (error.code == Code::partial) {
            error.code = Code::refused;
            error.hint = "start ftctld: it removes what another version left";
        }
        return tl::unexpected(error);
    }
    auto datapath = std::make_unique<DatapathImpl>(std::move(*maps), pins);
    if (auto filter = datapath->open_filter(); !filter)
        return tl::unexpected(filter.error());
    datapath->set_adopted();
    datapath->find_attachments(false);
    return datapath;
}

Result<std::unique_ptr<Datapath>> Datapath::create_private(const DatapathLimits &limits)
{
    bpf::route_libbpf_messages();
    auto maps = Maps::create(limits);
    if (!maps)
        return tl::unexpected(maps.error());
    auto datapath = std::make_unique<DatapathImpl>(std::move(*maps), PinDir());
    if (auto ready = datapath->prepare(); !ready)
        return tl::unexpected(ready.error());
    return datapath;
}

namespace bpf {

DatapathImpl::~DatapathImpl()
{
    if (pins_.enabled())
        return;
    for (auto &[ifindex, record] : records_)
        static_cast<void>(abandon(record));
}

ftctl_path &DatapathImpl::path(std::uint32_t index)
{
    assert(index < FTCTL_MAX_PATHS);
    return maps_.paths()[index];
}

ftctl_slot &DatapathImpl::slot(std::uint32_t index)
{
    assert(index < FTCTL_MAX_SLOTS);
    return maps_.slots()[index];
}

Status DatapathImpl::devmap_set(std::uint32_t ifindex, bool present)
{
    const int fd = maps_.fd(MapId::egress);
    if (present) {
        if (bpf_map_update_elem(fd, &ifindex, &ifindex, BPF_ANY) != 0)
            return fail_errno(fmt::format("enter device {} into the devmap", ifindex), errno);
    } else if (bpf_map_delete_elem(fd, &ifindex) != 0 && errno != ENOENT) {
        // A device that goes away takes its entry with it.
        return fail_errno(fmt::format("remove device {} from the devmap", ifindex), errno);
    }
    return {};
}

Status DatapathImpl::set_broadcasts(const std::vector<ftctl_broadcast> &all)
{
    const int fd = maps_.fd(MapId::broadcasts);
    const auto same = [](const ftctl_broadcast &a) {
        return [&a](const ftctl_broadcast &b) { return a.ifindex == b.ifindex && a.addr == b.addr; };
    };
    std::vector<ftctl_broadcast> known;
    ftctl_broadcast key{};
    for (const ftctl_broadcast *last = nullptr; bpf_map_get_next_key(fd, last, &key) == 0;
         last = &known.back())
        known.push_back(key);
    for (const ftctl_broadcast &old : known)
        if (std::none_of(all.begin(), all.end(), same(old)))
            bpf_map_delete_elem(fd, &old);
    const std::uint32_t value = 1;
    for (const ftctl_broadcast &one : all)
        if (bpf_map_update_elem(fd, &one, &value, BPF_ANY) != 0)
            return fail_errno("tell the reverse path filter a broadcast address", errno);
    return {};
}

Status DatapathImpl::filter_replace(const FilterTables &tables)
{
    std::map<std::uint32_t, std::string> slots;
    for (const auto &[ifindex, record] : records_) {
        std::array<char, IF_NAMESIZE> name{};
        if (if_indextoname(ifindex, name.data()) != nullptr)
            slots[record.slot] = name.data();
    }
    return filter_.replace(maps_, tables, slots);
}

Status DatapathImpl::remove_pins()
{
    Status first;
    for (auto &[ifindex, record] : records_) {
        if (auto gone = abandon(record); !gone && first)
            first = std::move(gone);
    }
    records_.clear();
    tracepoints_.clear();
    if (!pins_.enabled())
        return first;
    remove_link_pins(pins_);
    if (auto removed = pins_.remove(); !removed && first)
        first = std::move(removed);
    return first;
}

} // namespace bpf
} // namespace ftctl
