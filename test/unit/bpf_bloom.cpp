// SPDX-License-Identifier: GPL-2.0-only
// The Bloom filter of flows, against the set of flows.
#include <random>
#include <vector>

#include <catch2/catch.hpp>

#include "bpf/flow_bloom.h"
#include "ftctl/bloom.h"

using namespace ftctl;

namespace {

ftctl_tuple tuple(std::uint32_t number)
{
    ftctl_tuple t{};
    t.family = number % 3 == 0 ? 6 : 4;
    t.src.w[t.family == 6 && number % 2 == 0 ? 1 : 0] = 0x0a000000U + number;
    t.dst.w[0] = 0x01020304U;
    t.sport = static_cast<std::uint16_t>(number * 7);
    t.dport = 80;
    return t;
}

struct Bloom {
    explicit Bloom(std::uint32_t flow_entries)
        : map(bpf::FlowBloom::map_entries(flow_entries)), bloom(config, map.data(), flow_entries)
    {
    }
    // As the programs ask.
    [[nodiscard]] bool may_be(const ftctl_tuple &t) const
    {
        const std::uint32_t bit = ftctl_bloom_bit(ftctl_bloom_hash(&t), config.bloom_level);
        return (map.at(bit / 64) >> bit % 64 & 1) != 0;
    }
    [[nodiscard]] std::size_t bits_set() const
    {
        std::size_t sum = 0;
        for (std::uint32_t bit = 1U << config.bloom_level; bit < 2U << config.bloom_level; ++bit)
            sum += map.at(bit / 64) >> bit % 64 & 1;
        return sum;
    }

    ftctl_config config{};
    std::vector<std::uint64_t> map;
    bpf::FlowBloom bloom;
};

} // namespace

TEST_CASE("levels of the Bloom filter do not overlap, and the last one ends with the map", "[bpf][bloom]")
{
    for (const std::uint32_t entries : {1U, 2048U, 8192U, 8193U, 1U << 21, 1U << 30}) {
        const std::uint32_t last = ftctl_bloom_last(entries);
        CHECK(last >= FTCTL_BLOOM_FIRST);
        CHECK(last <= FTCTL_BLOOM_LAST);
        CHECK(bpf::FlowBloom::map_entries(entries) == (2ULL << last) / 64);
        for (std::uint32_t level = FTCTL_BLOOM_FIRST; level <= last; ++level) {
            CHECK(ftctl_bloom_bit(0, level) == 1U << level);
            CHECK(ftctl_bloom_bit(~0ULL, level) == (2U << level) - 1);
        }
    }
}

TEST_CASE("no flow is without its bit, while they come and go", "[bpf][bloom]")
{
    constexpr std::uint32_t kFlows = 60000;
    Bloom b(4 * kFlows);
    b.bloom.show();
    CHECK(b.config.bloom_level == FTCTL_BLOOM_FIRST);
    CHECK(b.bits_set() == 0);

    std::vector<bool> there(kFlows);
    std::uint32_t highest = 0;
    const auto all_found = [&] {
        std::size_t missed = 0;
        for (std::uint32_t i = 0; i < kFlows; ++i)
            missed += there[i] && !b.may_be(tuple(i));
        return missed == 0;
    };
    const auto strangers = [&] {
        std::size_t sum = 0;
        for (std::uint32_t i = kFlows; i < 2 * kFlows; ++i)
            sum += b.may_be(tuple(i));
        return sum;
    };
    for (std::uint32_t i = 0; i < kFlows; ++i) {
        b.bloom.add(tuple(i));
        there[i] = true;
        if (b.config.bloom_level > highest) {
            highest = b.config.bloom_level;
            CHECK(all_found());
        }
    }
    CHECK(highest == ftctl_bloom_last(4 * kFlows));
    CHECK(all_found());
    CHECK(strangers() < kFlows / 4);

    std::mt19937 random(7); // NOLINT(*-msc51-cpp): the same in each run
    for (std::uint32_t step = 0; step < 4 * kFlows; ++step) {
        const std::uint32_t i = random() % kFlows;
        if (there[i])
            b.bloom.remove(tuple(i));
        else
            b.bloom.add(tuple(i));
        there[i] = !there[i];
    }
    CHECK(all_found());
    for (std::uint32_t i = 0; i < kFlows; ++i) {
        if (there[i] && i % 1000 != 0) {
            b.bloom.remove(tuple(i));
            there[i] = false;
        }
    }
    CHECK(all_found());
    CHECK(b.config.bloom_level == FTCTL_BLOOM_FIRST);
    for (std::uint32_t i = 0; i < kFlows; ++i)
        if (there[i])
            b.bloom.remove(tuple(i));
    CHECK(b.bits_set() == 0);
}

TEST_CASE("more flows of one bit than can be counted keep it for good", "[bpf][bloom]")
{
    Bloom b(1024);
    b.bloom.show();
    ftctl_tuple t = tuple(1);
    for (int i = 0; i < 300; ++i)
        b.bloom.add(t);
    for (int i = 0; i < 300; ++i) {
        CHECK(b.may_be(t));
        b.bloom.remove(t);
    }
    CHECK(b.may_be(t));
    t = tuple(2);
    CHECK_FALSE(b.may_be(t));
}

TEST_CASE("flows that were counted show when the level is written", "[bpf][bloom]")
{
    Bloom b(1U << 18);
    for (std::uint32_t i = 0; i < 20000; ++i)
        b.bloom.count(tuple(i));
    CHECK(b.config.bloom_level == 0);
    b.bloom.show();
    CHECK((1U << b.config.bloom_level) >= 8 * 20000);
    for (std::uint32_t i = 0; i < 20000; ++i)
        REQUIRE(b.may_be(tuple(i)));
}
