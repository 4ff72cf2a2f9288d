// SPDX-License-Identifier: GPL-2.0-only
// The rig's maps: what a test sets and what it finds afterwards.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bpf_run_impl.h"
#include "ftctl/bloom.h"
#include "ftctl/flow4.h"

namespace ftctl::test {

int Rig::Impl::map(const std::string &name) const
{
    const auto found = maps.find(name);
    if (found == maps.end())
        throw std::runtime_error("the programs have no map " + name);
    return found->second;
}

void Rig::Impl::clear(const std::string &name)
{
    const int fd = map(name);
    std::array<std::uint8_t, sizeof(ftctl_tuple)> key{};
    while (bpf_map_get_next_key(fd, nullptr, key.data()) == 0)
        must(bpf_map_delete_elem(fd, key.data()), "clear " + name);
}

void Rig::Impl::fill_cpus(const std::string &name, std::uint32_t index, std::uint64_t word)
{
    const bpf_map *map = bpf_object__find_map_by_name(tc.front()->obj, name.c_str());
    const std::size_t words = (bpf_map__value_size(map) + 7) / 8;
    const std::vector<std::uint64_t> value(words * static_cast<std::size_t>(libbpf_num_possible_cpus()),
                                           word);
    must(bpf_map_update_elem(bpf_map__fd(map), &index, value.data(), BPF_ANY), name);
}

void Rig::mark_next()
{
    impl_->fill_cpus("scratch", 0, 1);
}

bool Rig::Impl::marked() const
{
    const bpf_map *map = bpf_object__find_map_by_name(tc.front()->obj, "scratch");
    std::vector<std::uint64_t> marks(static_cast<std::size_t>(libbpf_num_possible_cpus()));
    const std::uint32_t zero = 0;
    must(bpf_map_lookup_elem(bpf_map__fd(map), &zero, marks.data()), "scratch");
    return std::any_of(marks.begin(), marks.end(), [](std::uint64_t mark) { return mark != 0; });
}

void Rig::reset(Hook hook)
{
    for (const char *name : {"flow6", "flowx", "samples"})
        impl_->clear(name);
    clear_placed();
    std::fill_n(impl_->bits(), (2U << FTCTL_BLOOM_FIRST) / 64, 0);
    ftctl_config fresh{};
    fresh.abi = FTCTL_ABI;
    fresh.gen = 1;
    fresh.bloom_level = FTCTL_BLOOM_FIRST;
    fresh.heartbeat_ns = now_ns();
    fresh.watch_until_ns = now_ns() + 3600 * FTCTL_NSEC_PER_SEC;
    timespec tick{};
    clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
    fresh.tick_ns = static_cast<std::uint32_t>(tick.tv_nsec);
    set_config(fresh);
    must(bpf::run_clock_set(bpf_program__fd(impl_->edit->progs.clock_set)), "clock_set");

    for (unsigned i = 0; i < kDevices; ++i) {
        const auto device = static_cast<Device>(i);
        const Mac mac = device_mac(device);
        ftctl_slot slot{};
        for (unsigned byte = 0; byte < 6; ++byte)
            slot.mac |= static_cast<std::uint64_t>(mac.at(byte)) << (8 * byte);
        slot.upper = FTCTL_NO_MAC;
        slot.ifindex = ifindex(device);
        slot.hook = hook == Hook::xdp ? FTCTL_HOOK_XDP : FTCTL_HOOK_TC;
        set_slot(device, slot);
        if (device == kDevA) { // what `explain` asks about
            const std::uint32_t scratch = FTCTL_SLOT_SCRATCH;
            must(bpf_map_update_elem(impl_->map("slots"), &scratch, &slot, BPF_ANY), "slots");
        }
        set_egress(device, true);
        impl_->fill_cpus("stats", i + 1, 0);
    }
    events();
}

ftctl_config Rig::config()
{
    ftctl_config out{};
    const std::uint32_t zero = 0;
    must(bpf_map_lookup_elem(impl_->map("config"), &zero, &out), "config");
    return out;
}

void Rig::set_config(const ftctl_config &config)
{
    const std::uint32_t zero = 0;
    must(bpf_map_update_elem(impl_->map("config"), &zero, &config, BPF_ANY), "config");
}

void Rig::set_path(std::uint32_t index, const ftctl_path &path)
{
    must(bpf_map_update_elem(impl_->map("paths"), &index, &path, BPF_ANY), "paths");
}

void Rig::set_slot(Device device, const ftctl_slot &slot)
{
    const std::uint32_t index = device + 1;
    must(bpf_map_update_elem(impl_->map("slots"), &index, &slot, BPF_ANY), "slots");
}

ftctl_slot Rig::slot(Device device)
{
    const std::uint32_t index = device + 1;
    ftctl_slot out{};
    must(bpf_map_lookup_elem(impl_->map("slots"), &index, &out), "slots");
    return out;
}

void Rig::set_egress(Device device, bool present)
{
    const int fd = impl_->map("egress");
    const std::uint32_t key = ifindex(device);
    bpf_devmap_val value{};
    value.ifindex = key;
    if (present)
        must(bpf_map_update_elem(fd, &key, &value, BPF_ANY), "egress");
    else if (bpf_map_delete_elem(fd, &key) < 0 && errno != ENOENT)
        die("egress", errno);
}

void Rig::set_broadcast(const ftctl_broadcast &key, bool present)
{
    const std::uint32_t value = 1;
    must(present ? bpf_map_update_elem(impl_->map("broadcasts"), &key, &value, BPF_ANY)
                 : bpf_map_delete_elem(impl_->map("broadcasts"), &key),
         "broadcasts");
}

namespace {

/// A tuple in the layout of its hash map, whose name comes with it. The size is the largest one's.
struct MapKey {
    const char *map;
    std::array<std::uint8_t, sizeof(ftctl_tuple)> bytes{};
};

template <typename Key>
MapKey map_key(const char *map, const Key &key)
{
    MapKey out{map, {}};
    std::memcpy(out.bytes.data(), &key, sizeof key);
    return out;
}

MapKey map_key(const ftctl_tuple &t)
{
    if (t.vlan[0].proto == 0 && t.pppoe == 0 && t.family == 6 && t.tunnel == FTCTL_TUNNEL_NONE)
        return map_key("flow6", ftctl_key6{t.src, t.dst, t.sport, t.dport, t.iif_proto});
    return map_key("flowx", ftctl_keyx{ftctl_tuple_digest(&t)});
}

} // namespace

void Rig::set_flow(const ftctl_tuple &key, const ftctl_flow6 &flow)
{
    bpf::FlowTable *table = impl_->table(key);
    if (ftctl_flow *there = table != nullptr ? table->find(key) : nullptr; there != nullptr)
        *there = flow.flow;
    else if (table == nullptr || !table->insert(key, flow.flow, now_ns()))
        set_stranger(key, key, flow); // where the daemon puts them as well
    set_bloom(key, true);
}

bpf::FlowTable *Rig::Impl::table(const ftctl_tuple &t) const
{
    if (t.vlan[0].proto != 0 || t.pppoe != 0 || t.family != 4 || t.tunnel == FTCTL_TUNNEL_IPV6)
        return nullptr;
    return tables.at(t.tunnel == FTCTL_TUNNEL_IPV4 ? 1 : 0).get();
}

namespace {

std::uint32_t home_of(const ftctl_tuple &key)
{
    return ftctl_flow4_home(ftctl_bloom_hash(&key),
                            bpf::flow_table_homes(bpf::flow_table_entries(kTestFlows)));
}

} // namespace

ftctl_flow4 *Rig::flow4_entries(const ftctl_tuple &key)
{
    return static_cast<ftctl_flow4 *>(impl_->placed[0].data()) + home_of(key);
}

ftctl_flow4t *Rig::flow4t_entries(const ftctl_tuple &key)
{
    return static_cast<ftctl_flow4t *>(impl_->placed[1].data()) + home_of(key);
}

void Rig::set_stranger(const ftctl_tuple &key, const ftctl_tuple &whose, const ftctl_flow6 &flow)
{
    const MapKey at = map_key(key);
    const ftctl_flowx value{flow, whose, 0}; // the others are how it begins
    must(bpf_map_update_elem(impl_->map(at.map), at.bytes.data(), &value, BPF_ANY), at.map);
    set_bloom(key, true);
}

void Rig::set_bloom(const ftctl_tuple &key, bool present)
{
    const std::uint32_t bit = ftctl_bloom_bit(ftctl_bloom_hash(&key), FTCTL_BLOOM_FIRST);
    const std::uint64_t mask = 1ULL << bit % 64;
    std::uint64_t &word = impl_->bits()[bit / 64];
    word = present ? word | mask : word & ~mask;
}

std::optional<ftctl_flow6> Rig::flow6(const ftctl_tuple &key)
{
    ftctl_flowx out{};
    if (const bpf::FlowTable *table = impl_->table(key); table != nullptr) {
        if (const ftctl_flow *there = table->find(key); there != nullptr)
            return ftctl_flow6{*there, {}, {}};
    }
    const MapKey at = map_key(key);
    if (bpf_map_lookup_elem(impl_->map(at.map), at.bytes.data(), &out) < 0)
        return std::nullopt;
    return out.flow;
}

std::optional<ftctl_flow> Rig::flow(const ftctl_tuple &key)
{
    const auto found = flow6(key);
    if (!found)
        return std::nullopt;
    return found->flow;
}

std::optional<ftctl_sample> Rig::sample(const ftctl_sample_key &key)
{
    ftctl_sample out{};
    if (bpf_map_lookup_elem(impl_->map("samples"), &key, &out) < 0)
        return std::nullopt;
    return out;
}

void Rig::set_sample(const ftctl_sample_key &key, const ftctl_sample &sample)
{
    must(bpf_map_update_elem(impl_->map("samples"), &key, &sample, BPF_ANY), "samples");
}

std::size_t Rig::sample_count()
{
    std::size_t count = 0;
    ftctl_sample_key key{};
    const void *previous = nullptr;
    while (bpf_map_get_next_key(impl_->map("samples"), previous, &key) == 0) {
        previous = &key;
        ++count;
    }
    return count;
}

void Rig::forget_samples()
{
    impl_->clear("samples");
}

ftctl_stats Rig::stats(Device device)
{
    std::vector<ftctl_stats> cpus(static_cast<std::size_t>(libbpf_num_possible_cpus()));
    const std::uint32_t index = device + 1;
    must(bpf_map_lookup_elem(impl_->map("stats"), &index, cpus.data()), "stats");
    ftctl_stats out{};
    for (const ftctl_stats &cpu : cpus) {
        out.rx_packets += cpu.rx_packets;
        out.fast_packets += cpu.fast_packets;
        out.fast_bytes += cpu.fast_bytes;
        out.tx_failed += cpu.tx_failed;
        for (unsigned reason = 0; reason < FTCTL_PACKET_REASONS; ++reason)
            out.reasons[reason] += cpu.reasons[reason];
    }
    return out;
}

std::vector<ftctl_event> Rig::events()
{
    ring_buffer__consume(impl_->ring);
    return std::exchange(impl_->events, {});
}

} // namespace ftctl::test
