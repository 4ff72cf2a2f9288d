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
// ftctl_flow4.key.src of entries that are gone
constexpr std::uint32_t kQuarantined = 1;
constexpr std::uint32_t kSettled = 0;

// Programs look at it meanwhile.
std::uint32_t kind_of(const ftctl_flow4 &entry)
{
    return __atomic_load_n(&entry.key.iif_proto, __ATOMIC_ACQUIRE);
}

void set_kind(ftctl_flow4 &entry, std::uint32_t kind)
{
    __atomic_store_n(&entry.key.iif_proto, kind, __ATOMIC_RELEASE);
}

bool is_settled(const ftctl_flow4 &entry)
{
    return kind_of(entry) == FTCTL_FLOW4_GONE && entry.key.src == kSettled;
}

bool is_flow(std::uint32_t kind)
{
    return kind != FTCTL_FLOW4_FREE && kind != FTCTL_FLOW4_GONE;
}

bool has_flow(const ftctl_flow4 &entry)
{
    return is_flow(kind_of(entry));
}

} // namespace

bool FlowTable::can_hold(const ftctl_tuple &flow)
{
    return is_flow(flow.iif_proto);
}

std::uint32_t FlowTable::map_entries(std::uint32_t flows)
{
    return flows / 2 * 3 + kSpare;
}

std::uint32_t FlowTable::flows_of(std::uint32_t map_entries)
{
    return map_entries < kSpare ? 0 : (map_entries - kSpare) / 3 * 2;
}

std::uint32_t FlowTable::homes_of(std::uint32_t map_entries)
{
    return map_entries - kSpare;
}

void FlowTable::recount(std::uint64_t now_ns)
{
    size_ = 0;
    gone_.clear();
    for (std::uint32_t i = 0; i < entries_; ++i) {
        if (has_flow(map_[i]))
            ++size_;
        else if (kind_of(map_[i]) == FTCTL_FLOW4_GONE && !is_settled(map_[i]))
            gone_.push_back({i, now_ns}); // when is not known
    }
}

ftctl_flow4 *FlowTable::find(const ftctl_tuple &flow) const
{
    ftctl_key4 key{};
    ftctl_key4_of(&flow, &key);
    const std::uint32_t home = ftctl_flow4_home(ftctl_bloom_hash(&flow), homes_of(entries_));
    for (std::uint32_t i = home; i < home + FTCTL_FLOW4_PROBES; ++i) {
        if (std::memcmp(&map_[i].key, &key, sizeof(key)) == 0)
            return &map_[i];
        if (kind_of(map_[i]) == FTCTL_FLOW4_FREE)
            break;
    }
    return nullptr;
}

bool FlowTable::each(const std::function<bool(const ftctl_flow4 &)> &handler) const
{
    for (std::uint32_t i = 0; i < entries_; ++i) {
        if (has_flow(map_[i]) && !handler(map_[i]))
            return false;
    }
    return true;
}

// Entries that are gone and settled become free from that one on downwards, when the one behind it is.
void FlowTable::free_back_from(std::uint32_t index)
{
    if (keep_homes_ || (index + 1 < entries_ && kind_of(map_[index + 1]) != FTCTL_FLOW4_FREE))
        return;
    while (is_settled(map_[index])) {
        set_kind(map_[index], FTCTL_FLOW4_FREE);
        if (index == 0)
            break;
        --index;
    }
}

void FlowTable::settle(std::uint64_t now_ns)
{
    while (!gone_.empty() && now_ns - gone_.front().ns >= kQuarantineNs) {
        const std::uint32_t index = gone_.front().index;
        gone_.pop_front();
        map_[index].key.src = kSettled;
        free_back_from(index);
    }
}

bool FlowTable::insert(const ftctl_tuple &key, const ftctl_flow &flow, std::uint64_t now_ns)
{
    settle(now_ns);
    const std::uint32_t home = ftctl_flow4_home(ftctl_bloom_hash(&key), homes_of(entries_));
    for (std::uint32_t i = home; i < home + FTCTL_FLOW4_PROBES; ++i) {
        ftctl_flow4 &entry = map_[i];
        if (kind_of(entry) != FTCTL_FLOW4_FREE && !is_settled(entry))
            continue;
        ftctl_key4 words{};
        ftctl_key4_of(&key, &words);
        entry.flow = flow;
        entry.key.src = words.src;
        entry.key.dst = words.dst;
        entry.key.sport = words.sport;
        entry.key.dport = words.dport;
        set_kind(entry, words.iif_proto);
        ++size_;
        return true;
    }
    return false;
}

void FlowTable::remove(ftctl_flow4 *entry, std::uint64_t now_ns)
{
    set_kind(*entry, FTCTL_FLOW4_GONE);
    entry->key.src = kQuarantined;
    --size_;
    gone_.push_back({static_cast<std::uint32_t>(entry - map_), now_ns});
    settle(now_ns);
}

} // namespace ftctl::bpf
