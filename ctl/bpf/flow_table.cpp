// SPDX-License-Identifier: GPL-2.0-only
#include "bpf/flow_table.h"

#include <cstring>

#include "ftctl/bloom.h"
#include "ftctl/flow4.h"

namespace ftctl::bpf {
namespace {

// Half as many entries again as flows: of a full table one flow in 45 finds no room, when it is half full one
// in 2400.
constexpr std::uint32_t kSpare = FTCTL_FLOW4_PROBES - 1; // behind the last home

// An entry whose flow is gone gets no other one for so long. A program runs for microseconds, but the
// processor may be a virtual one that has to wait for its turn.
constexpr std::uint64_t kQuarantineNs = 100 * 1000 * 1000;
// key.src of entries that are gone
constexpr std::uint32_t kQuarantined = 1;
constexpr std::uint32_t kSettled = 0;

// What keys of both kinds have, and how they are made of tuples.
ftctl_key4 &plain(ftctl_key4 &key)
{
    return key;
}

ftctl_key4 &plain(ftctl_key4t &key)
{
    return key.in;
}

void set_key(const ftctl_tuple &flow, ftctl_key4 &key)
{
    ftctl_key4_of(&flow, &key);
}

void set_key(const ftctl_tuple &flow, ftctl_key4t &key)
{
    ftctl_key4t_of(&flow, &key);
}

ftctl_tuple tuple_of(const ftctl_key4 &key)
{
    ftctl_tuple tuple{};
    tuple.src.w[0] = key.src;
    tuple.dst.w[0] = key.dst;
    tuple.sport = key.sport;
    tuple.dport = key.dport;
    tuple.iif_proto = key.iif_proto;
    tuple.family = 4;
    return tuple;
}

ftctl_tuple tuple_of(const ftctl_key4t &key)
{
    ftctl_tuple tuple = tuple_of(key.in);
    tuple.outer_src.w[0] = key.outer_src;
    tuple.outer_dst.w[0] = key.outer_dst;
    tuple.tunnel = FTCTL_TUNNEL_IPV4;
    return tuple;
}

// Programs look at it meanwhile.
template <typename Entry>
std::uint32_t kind_of(Entry &entry)
{
    return __atomic_load_n(&plain(entry.key).iif_proto, __ATOMIC_ACQUIRE);
}

template <typename Entry>
void set_kind(Entry &entry, std::uint32_t kind)
{
    __atomic_store_n(&plain(entry.key).iif_proto, kind, __ATOMIC_RELEASE);
}

template <typename Entry>
bool is_settled(Entry &entry)
{
    return kind_of(entry) == FTCTL_FLOW4_GONE && plain(entry.key).src == kSettled;
}

bool is_flow(std::uint32_t kind)
{
    return kind != FTCTL_FLOW4_FREE && kind != FTCTL_FLOW4_GONE;
}

} // namespace

std::uint32_t flow_table_entries(std::uint32_t flows)
{
    return flows / 2 * 3 + kSpare;
}

std::uint32_t flow_table_flows(std::uint32_t entries)
{
    return entries < kSpare ? 0 : (entries - kSpare) / 3 * 2;
}

std::uint32_t flow_table_homes(std::uint32_t entries)
{
    return entries - kSpare;
}

bool FlowTable::can_hold(const ftctl_tuple &flow)
{
    return is_flow(flow.iif_proto);
}

template <typename Entry>
std::uint32_t FlowTableOf<Entry>::home_of(const ftctl_tuple &flow) const
{
    return ftctl_flow4_home(ftctl_bloom_hash(&flow), flow_table_homes(entries_));
}

template <typename Entry>
Entry *FlowTableOf<Entry>::entry_of(const ftctl_tuple &flow) const
{
    decltype(Entry::key) key{};
    set_key(flow, key);
    const std::uint32_t home = home_of(flow);
    for (std::uint32_t i = home; i < home + FTCTL_FLOW4_PROBES; ++i) {
        if (std::memcmp(&map_[i].key, &key, sizeof(key)) == 0)
            return &map_[i];
        if (kind_of(map_[i]) == FTCTL_FLOW4_FREE)
            break;
    }
    return nullptr;
}

template <typename Entry>
ftctl_flow *FlowTableOf<Entry>::find(const ftctl_tuple &flow) const
{
    Entry *entry = entry_of(flow);
    return entry != nullptr ? &entry->flow : nullptr;
}

template <typename Entry>
bool FlowTableOf<Entry>::each(
    const std::function<bool(const ftctl_tuple &, const ftctl_flow &)> &handler) const
{
    for (std::uint32_t i = 0; i < entries_; ++i) {
        if (is_flow(kind_of(map_[i])) && !handler(tuple_of(map_[i].key), map_[i].flow))
            return false;
    }
    return true;
}

template <typename Entry>
void FlowTableOf<Entry>::recount(std::uint64_t now_ns)
{
    size_ = 0;
    gone_.clear();
    for (std::uint32_t i = 0; i < entries_; ++i) {
        const std::uint32_t kind = kind_of(map_[i]);
        if (is_flow(kind))
            ++size_;
        else if (kind == FTCTL_FLOW4_GONE && !is_settled(map_[i]))
            gone_.push_back({i, now_ns}); // when is not known
    }
}

// Entries that are gone and settled become free from that one on downwards, when the one behind it is.
template <typename Entry>
void FlowTableOf<Entry>::free_back_from(std::uint32_t index)
{
    if (crowded_out_ > 0 || (index + 1 < entries_ && kind_of(map_[index + 1]) != FTCTL_FLOW4_FREE))
        return;
    while (is_settled(map_[index])) {
        set_kind(map_[index], FTCTL_FLOW4_FREE);
        if (index == 0)
            break;
        --index;
    }
}

template <typename Entry>
void FlowTableOf<Entry>::settle(std::uint64_t now_ns)
{
    while (!gone_.empty() && now_ns - gone_.front().ns >= kQuarantineNs) {
        const std::uint32_t index = gone_.front().index;
        gone_.pop_front();
        plain(map_[index].key).src = kSettled;
        free_back_from(index);
    }
}

template <typename Entry>
bool FlowTableOf<Entry>::insert(const ftctl_tuple &key, const ftctl_flow &flow, std::uint64_t now_ns)
{
    settle(now_ns);
    const std::uint32_t home = home_of(key);
    for (std::uint32_t i = home; i < home + FTCTL_FLOW4_PROBES; ++i) {
        Entry &entry = map_[i];
        const std::uint32_t kind = kind_of(entry);
        if (kind != FTCTL_FLOW4_FREE && !is_settled(entry))
            continue;
        decltype(Entry::key) words{};
        set_key(key, words);
        plain(words).iif_proto = kind; // changes last of all
        entry.flow = flow;
        entry.key = words;
        set_kind(entry, key.iif_proto);
        ++size_;
        return true;
    }
    return false;
}

template <typename Entry>
std::optional<ftctl_flow> FlowTableOf<Entry>::remove(const ftctl_tuple &flow, std::uint64_t now_ns)
{
    Entry *entry = entry_of(flow);
    if (entry == nullptr)
        return std::nullopt;
    set_kind(*entry, FTCTL_FLOW4_GONE);
    plain(entry->key).src = kQuarantined;
    --size_;
    gone_.push_back({static_cast<std::uint32_t>(entry - map_), now_ns});
    settle(now_ns);
    return entry->flow; // from now on only a packet that has found it already is lost to the count
}

template class FlowTableOf<ftctl_flow4>;
template class FlowTableOf<ftctl_flow4t>;

} // namespace ftctl::bpf
