// SPDX-License-Identifier: GPL-2.0-only
#include "bpf/filter_maps.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

namespace ftctl::bpf {
namespace {

const char *const kWhat = "load the filter";

std::uint32_t stripe_count()
{
    const int cpus = libbpf_num_possible_cpus();
    return static_cast<std::uint32_t>(std::clamp(cpus, 1, FTCTL_FILTER_STRIPES));
}

constexpr std::array kOuter = {MapId::filter_prefixes, MapId::filter_sets, MapId::filter_counts,
                               MapId::filter_rules};

/// The same rule, whatever was counted and noted.
bool same(const ftctl_filter_rule &a, const ftctl_filter_rule &b)
{
    const auto plain = [](ftctl_filter_rule rule) {
        rule.packets = rule.bytes = 0;
        std::fill(std::begin(rule.comment), std::end(rule.comment), '\0');
        return rule;
    };
    const ftctl_filter_rule x = plain(a), y = plain(b);
    return std::memcmp(&x, &y, sizeof(x)) == 0; // padding is explicit, and zero
}

/// Returns when no packet is under way that has read an earlier ftctl_config.filter: the kernel waits for
/// that after every change of an array of maps.
void wait_for_packets(int outer, std::uint32_t which, int inner)
{
    bpf_map_update_elem(outer, &which, &inner, BPF_ANY);
}

} // namespace

Status FilterMaps::Set::map()
{
    const std::uint32_t stripes = std::max(set().stripes, 1U);
    auto count = Mapping::map(counts.get(), size * stripes * sizeof(ftctl_filter_count), "filter_count");
    if (!count)
        return tl::unexpected(count.error());
    auto rule = Mapping::map(rules.get(), size * sizeof(ftctl_filter_rule), "filter_rule");
    if (!rule)
        return tl::unexpected(rule.error());
    counts_memory = std::move(*count);
    rules_memory = std::move(*rule);
    return {};
}

ftctl_filter_count FilterMaps::Set::counted(std::size_t rank) const
{
    const auto *counts_of = static_cast<const ftctl_filter_count *>(counts_memory.data());
    ftctl_filter_count sum{};
    for (std::size_t stripe = 0; stripe < set().stripes; stripe++) {
        const ftctl_filter_count &count = counts_of[stripe * size + rank];
        sum.packets += __atomic_load_n(&count.packets, __ATOMIC_RELAXED);
        sum.bytes += __atomic_load_n(&count.bytes, __ATOMIC_RELAXED);
    }
    return sum;
}

Result<FilterMaps::Set> FilterMaps::make(const FilterTables &tables)
{
    Set out;
    out.size = tables.rules.size();
    const std::uint32_t stripes = stripe_count();
    const auto take = [](Fd &into, MapId id, std::size_t entries) -> Status {
        auto fd = make_map(*map_spec(id).inner, static_cast<std::uint32_t>(entries));
        if (!fd)
            return tl::unexpected(fd.error());
        into = std::move(*fd);
        return {};
    };
    Status done =
        take(out.prefixes, MapId::filter_prefixes, std::max<std::size_t>(tables.prefixes.size(), 1));
    if (done)
        done = take(out.classes, MapId::filter_sets, 1);
    if (done)
        done = take(out.counts, MapId::filter_counts, out.size * stripes);
    if (done)
        done = take(out.rules, MapId::filter_rules, out.size);
    if (!done)
        return tl::unexpected(done.error());
    for (const auto &[key, hit] : tables.prefixes)
        if (bpf_map_update_elem(out.prefixes.get(), &key, &hit, BPF_ANY) != 0)
            return fail_errno(kWhat, errno);
    auto classes = Mapping::map(out.classes.get(), sizeof(ftctl_filter_set), "filter_set");
    if (!classes)
        return tl::unexpected(classes.error());
    out.classes_memory = std::move(*classes);
    std::memcpy(&out.set(), tables.set.get(), sizeof(ftctl_filter_set));
    out.set().stripes = stripes;
    if (done = out.map(); !done)
        return tl::unexpected(done.error());
    std::copy(tables.rules.begin(), tables.rules.end(), out.rule());
    return out;
}

Status FilterMaps::open(const Maps &maps)
{
    const std::uint32_t in_use = maps.config().filter;
    if (in_use == 0)
        return {};
    const std::uint32_t which = in_use - 1;
    Set set;
    const std::array<Fd *, kOuter.size()> into = {&set.prefixes, &set.classes, &set.counts, &set.rules};
    for (std::size_t i = 0; i < kOuter.size(); i++) {
        auto fd = inner_map(maps.fd(kOuter.at(i)), which, kWhat);
        if (!fd)
            return tl::unexpected(fd.error());
        *into.at(i) = std::move(*fd);
    }
    auto classes = Mapping::map(set.classes.get(), sizeof(ftctl_filter_set), "filter_set");
    if (!classes)
        return tl::unexpected(classes.error());
    set.classes_memory = std::move(*classes);
    set.size = set.set().rules;
    if (auto done = set.map(); !done)
        return done;
    set_ = std::move(set);
    return {};
}

Status FilterMaps::replace(const Maps &maps, const FilterTables &tables,
                           const std::map<std::uint32_t, std::string> &slots)
{
    const std::uint32_t old_which = maps.config().filter - 1; // when there is an old one
    const std::uint32_t which = maps.config().filter == 1 ? 1 : 0;
    std::optional<Set> fresh;
    if (!tables.rules.empty()) {
        auto made = make(tables);
        if (!made)
            return tl::unexpected(made.error());
        fresh = std::move(*made);
        for (const auto &[slot, device] : slots)
            bind(*fresh, slot, device);
        const std::array<int, kOuter.size()> fds = {fresh->prefixes.get(), fresh->classes.get(),
                                                    fresh->counts.get(), fresh->rules.get()};
        for (std::size_t i = 0; i < kOuter.size(); i++)
            if (bpf_map_update_elem(maps.fd(kOuter.at(i)), &which, &fds.at(i), BPF_ANY) != 0)
                return fail_errno(kWhat, errno);
    }
    // What stays keeps its counters: as they are now, and once no packet is counted there, the rest.
    std::vector<std::pair<std::size_t, std::size_t>> kept; // ranks, old and new
    std::vector<ftctl_filter_count> before;
    if (fresh && set_) {
        std::unordered_map<std::uint32_t, std::size_t> ranks;
        for (std::size_t rank = 0; rank < set_->size; rank++)
            ranks.emplace(set_->rule()[rank].id, rank);
        for (std::size_t rank = 0; rank < fresh->size; rank++) {
            const auto it = ranks.find(fresh->rule()[rank].id);
            if (it == ranks.end() || !same(set_->rule()[it->second], fresh->rule()[rank]))
                continue;
            const ftctl_filter_count now = set_->counted(it->second);
            fresh->rule()[rank].packets = set_->rule()[it->second].packets + now.packets;
            fresh->rule()[rank].bytes = set_->rule()[it->second].bytes + now.bytes;
            kept.emplace_back(it->second, rank);
            before.push_back(now);
        }
    }
    __atomic_store_n(&maps.config().filter, fresh ? which + 1 : 0, __ATOMIC_RELEASE);
    if (set_)
        wait_for_packets(maps.fd(MapId::filter_rules), old_which, set_->rules.get());
    for (std::size_t i = 0; i < kept.size(); i++) {
        const ftctl_filter_count last = set_->counted(kept[i].first);
        fresh->rule()[kept[i].second].packets += last.packets - before[i].packets;
        fresh->rule()[kept[i].second].bytes += last.bytes - before[i].bytes;
    }
    if (set_)
        for (const MapId id : kOuter)
            bpf_map_delete_elem(maps.fd(id), &old_which);
    set_ = std::move(fresh);
    return {};
}

std::vector<ftctl_filter_rule> FilterMaps::read() const
{
    std::vector<ftctl_filter_rule> rules;
    if (!set_)
        return rules;
    rules.assign(set_->rule(), set_->rule() + set_->size);
    for (std::size_t rank = 0; rank < rules.size(); rank++) {
        const ftctl_filter_count count = set_->counted(rank);
        rules[rank].packets += count.packets;
        rules[rank].bytes += count.bytes;
    }
    return rules;
}

void FilterMaps::bind(const Set &set, std::uint32_t slot, const std::string &device)
{
    const ftctl_filter_set &classes = set.set();
    std::uint16_t mask = classes.other_slot;
    for (std::uint32_t i = 0; i < classes.devices; i++)
        if (device == classes.device[i].name)
            mask = classes.device[i].mask;
    __atomic_store_n(&set.set().slot[slot], mask, __ATOMIC_RELAXED);
}

void FilterMaps::bind(std::uint32_t slot, const std::string &device)
{
    if (set_)
        bind(*set_, slot, device);
}

void FilterMaps::bind_as(std::uint32_t to, std::uint32_t from)
{
    if (set_)
        set_->set().slot[to] = set_->set().slot[from];
}

} // namespace ftctl::bpf
