// SPDX-License-Identifier: GPL-2.0-only
// The rig's early filter: rules as an operator writes them, in maps of the test's own.
#include <algorithm>
#include <stdexcept>
#include <unistd.h>

#include "bpf_run_impl.h"
#include "flow/filter_set.h"

namespace ftctl::test {
namespace {

constexpr std::uint32_t kStripes = 3;
constexpr std::uint32_t kWhich = 1; // of the two sets

int make(bpf_map_type type, std::size_t key, std::size_t value, std::size_t entries, std::uint32_t flags)
{
    LIBBPF_OPTS(bpf_map_create_opts, opts);
    opts.map_flags = flags;
    const int fd = bpf_map_create(type, "test_filter", static_cast<__u32>(key), static_cast<__u32>(value),
                                  static_cast<__u32>(entries), &opts);
    must(fd, "make a map of the filter");
    return fd;
}

} // namespace

void Rig::set_filter(const std::vector<FilterRule> &rules)
{
    ftctl_config now = config();
    now.filter = 0;
    set_config(now);
    if (impl_->filter_counts >= 0)
        close(std::exchange(impl_->filter_counts, -1));
    impl_->filter_rules = rules.size();
    if (rules.empty())
        return;
    const auto made = make_filter_tables(rules);
    if (!made)
        throw std::runtime_error(made.error().why);
    const FilterTables &tables = *made;
    const int prefixes = make(BPF_MAP_TYPE_LPM_TRIE, sizeof(ftctl_filter_key), sizeof(ftctl_filter_hit),
                              tables.prefixes.size() + 1, BPF_F_NO_PREALLOC);
    for (const auto &[key, hit] : tables.prefixes)
        must(bpf_map_update_elem(prefixes, &key, &hit, BPF_ANY), "prefix");
    const int sets = make(BPF_MAP_TYPE_ARRAY, 4, sizeof(ftctl_filter_set), 1, BPF_F_MMAPABLE);
    const std::uint32_t zero = 0;
    tables.set->stripes = kStripes;
    for (std::uint32_t i = 0; i < tables.set->devices; i++)
        for (unsigned device = 0; device < kDevices; device++)
            if (fmt::format("bt{}", device) == tables.set->device[i].name)
                tables.set->slot[device + 1] = tables.set->device[i].mask;
    must(bpf_map_update_elem(sets, &zero, tables.set.get(), BPF_ANY), "set");
    impl_->filter_counts = make(BPF_MAP_TYPE_ARRAY, 4, sizeof(ftctl_filter_count), rules.size() * kStripes,
                                BPF_F_MMAPABLE | BPF_F_INNER_MAP);
    for (const auto &[name, fd] : {std::pair{"filter_prefixes", prefixes},
                                   {"filter_sets", sets},
                                   {"filter_counts", impl_->filter_counts}})
        must(bpf_map_update_elem(impl_->map(name), &kWhich, &fd, BPF_ANY), name);
    close(prefixes);
    close(sets);
    now.filter = 1 + kWhich;
    set_config(now);
}

ftctl_filter_count Rig::filter_count(std::size_t rank)
{
    ftctl_filter_count sum{};
    for (std::uint32_t stripe = 0; stripe < kStripes; stripe++) {
        const auto index = static_cast<std::uint32_t>(stripe * impl_->filter_rules + rank);
        ftctl_filter_count count{};
        must(bpf_map_lookup_elem(impl_->filter_counts, &index, &count), "count");
        sum.packets += count.packets;
        sum.bytes += count.bytes;
    }
    return sum;
}

} // namespace ftctl::test
