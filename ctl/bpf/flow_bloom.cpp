// SPDX-License-Identifier: GPL-2.0-only
#include "bpf/flow_bloom.h"

#include <algorithm>
#include <limits>

#include "ftctl/bloom.h"

namespace ftctl::bpf {
namespace {

constexpr std::uint8_t kMany = std::numeric_limits<std::uint8_t>::max();
constexpr std::uint32_t kWordBits = 64;
// Bits for each flow: with fewer the level grows, with more it shrinks; by four, so that it comes to lie
// between.
constexpr std::uint64_t kFewest = 8;
constexpr std::uint64_t kMost = 128;
constexpr std::uint32_t kStep = 2;

} // namespace

std::uint32_t FlowBloom::map_entries(std::uint32_t flow_entries)
{
    return (2U << ftctl_bloom_last(flow_entries)) / kWordBits;
}

FlowBloom::FlowBloom(ftctl_config &config, std::uint64_t *map, std::uint32_t flow_entries)
    : config_(&config), map_(map), last_(ftctl_bloom_last(flow_entries)), level_(FTCTL_BLOOM_FIRST),
      counts_(std::size_t{1} << last_)
{
}

// The numbers at the last level that begin as this one.
bool FlowBloom::any(std::uint32_t bit) const
{
    const std::size_t width = std::size_t{1} << (last_ - level_);
    const auto first = counts_.begin() + static_cast<std::ptrdiff_t>((bit - bits()) * width);
    return std::any_of(first, first + static_cast<std::ptrdiff_t>(width), [](auto n) { return n != 0; });
}

void FlowBloom::set(std::uint32_t bit, bool value)
{
    std::uint64_t &word = map_[bit / kWordBits];
    const std::uint64_t mask = 1ULL << bit % kWordBits;
    __atomic_store_n(&word, value ? word | mask : word & ~mask, __ATOMIC_RELAXED);
}

void FlowBloom::count(const ftctl_tuple &flow)
{
    std::uint8_t &count = counts_[ftctl_bloom_bit(ftctl_bloom_hash(&flow), last_) - (1U << last_)];
    if (count != kMany)
        ++count;
    ++flows_;
}

void FlowBloom::show(std::uint32_t level)
{
    level_ = level;
    for (std::uint64_t bit = bits(); bit < 2 * bits(); bit += kWordBits) {
        std::uint64_t word = 0;
        for (std::uint32_t i = 0; i < kWordBits; ++i)
            word |= static_cast<std::uint64_t>(any(static_cast<std::uint32_t>(bit) + i)) << i;
        __atomic_store_n(&map_[bit / kWordBits], word, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&config_->bloom_level, level_, __ATOMIC_RELEASE);
}

void FlowBloom::show()
{
    std::uint32_t level = FTCTL_BLOOM_FIRST;
    while (level < last_ && (1ULL << level) < kFewest * flows_)
        level = std::min(level + kStep, last_);
    show(level);
}

void FlowBloom::add(const ftctl_tuple &flow)
{
    count(flow);
    if (level_ < last_ && bits() < kFewest * flows_)
        show(std::min(level_ + kStep, last_));
    else
        set(ftctl_bloom_bit(ftctl_bloom_hash(&flow), level_), true);
}

void FlowBloom::remove(const ftctl_tuple &flow)
{
    const std::uint64_t hash = ftctl_bloom_hash(&flow);
    std::uint8_t &count = counts_[ftctl_bloom_bit(hash, last_) - (1U << last_)];
    if (count != kMany)
        --count;
    --flows_;
    if (level_ > FTCTL_BLOOM_FIRST && bits() > kMost * flows_)
        show(std::max(level_ - kStep, FTCTL_BLOOM_FIRST));
    else if (const std::uint32_t bit = ftctl_bloom_bit(hash, level_); !any(bit))
        set(bit, false);
}

} // namespace ftctl::bpf
