// SPDX-License-Identifier: GPL-2.0-only
// Map flow4 as the daemon keeps it, in ordinary memory.
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <arpa/inet.h>
#include <catch2/catch.hpp>
#include <netinet/in.h>

#include "bpf/flow_table.h"
#include "ftctl/bloom.h"
#include "ftctl/flow4.h"

using namespace ftctl;

namespace {

constexpr std::uint64_t kLong = 1000 * 1000 * 1000; // no program runs for so long
constexpr std::uint32_t kFlows = 1000;

ftctl_tuple tuple(std::uint32_t client, std::uint16_t port = 4000, std::uint8_t proto = IPPROTO_UDP)
{
    ftctl_tuple t{};
    t.family = 4;
    t.src.w[0] = htonl(0x0a000000U + client);
    t.dst.w[0] = htonl(0xc6336401U);
    t.sport = htons(port);
    t.dport = htons(443);
    t.iif_proto = ftctl_iif_proto(3, proto);
    return t;
}

/// Differs in nothing that the hash is of: all of them have one home.
ftctl_tuple neighbour(std::uint8_t number)
{
    return tuple(1, 4000, number + 1);
}

ftctl_flow flow(std::uint32_t id)
{
    ftctl_flow f{};
    f.id = id;
    return f;
}

struct Table {
    explicit Table(std::uint32_t flows = kFlows)
        : map(bpf::flow_table_entries(flows)), table(map.data(), bpf::flow_table_entries(flows))
    {
    }
    [[nodiscard]] bool insert(const ftctl_tuple &t, std::uint32_t id)
    {
        return table.insert(t, flow(id), now);
    }
    void remove(const ftctl_tuple &t) { REQUIRE(table.remove(t, now)); }
    [[nodiscard]] std::uint32_t home(const ftctl_tuple &t) const
    {
        const auto entries = static_cast<std::uint32_t>(map.size());
        return ftctl_flow4_home(ftctl_bloom_hash(&t), bpf::flow_table_homes(entries));
    }
    // As the programs look for it, without flowx.
    [[nodiscard]] const ftctl_flow4 *seen(const ftctl_tuple &t) const
    {
        ftctl_key4 key{};
        ftctl_key4_of(&t, &key);
        for (std::uint32_t i = home(t); i < home(t) + FTCTL_FLOW4_PROBES; ++i) {
            if (std::memcmp(&map.at(i).key, &key, sizeof(key)) == 0)
                return &map.at(i);
            if (map.at(i).key.iif_proto == FTCTL_FLOW4_FREE)
                return nullptr;
        }
        return nullptr;
    }
    [[nodiscard]] std::size_t not_free() const
    {
        std::size_t sum = 0;
        for (const ftctl_flow4 &entry : map)
            sum += entry.key.iif_proto != FTCTL_FLOW4_FREE;
        return sum;
    }

    std::uint64_t now = 1;
    std::vector<ftctl_flow4> map;
    bpf::FlowTableOf<ftctl_flow4> table;
};

} // namespace

TEST_CASE("the size of flow4 tells how many flows it is for", "[bpf][flow4]")
{
    for (const std::uint32_t flows : {2U, 4U, 1000U, 1U << 21, 1U << 30})
        CHECK(bpf::flow_table_flows(bpf::flow_table_entries(flows)) == flows);
    CHECK(bpf::flow_table_flows(0) == 0);
    // the last home has its places within the map
    CHECK(ftctl_flow4_home(~0ULL, bpf::flow_table_homes(100)) + FTCTL_FLOW4_PROBES == 100);
    CHECK(ftctl_flow4_home(0, bpf::flow_table_homes(100)) == 0);
}

TEST_CASE("flows come and go, and each is where the programs look for it", "[bpf][flow4]")
{
    Table t;
    std::map<std::uint32_t, std::uint32_t> there; // client, id
    std::mt19937 random(1);                       // NOLINT(cert-msc51-cpp): the same run each time
    std::uint32_t crowded_out = 0;
    for (std::uint32_t step = 0; step < 200000; ++step) {
        t.now += 1000 * 1000;
        const std::uint32_t client = random() % (2 * kFlows);
        if (there.erase(client) != 0) {
            t.remove(tuple(client));
            CHECK(t.table.find(tuple(client)) == nullptr);
        } else if (there.size() < kFlows) {
            if (t.insert(tuple(client), step))
                there[client] = step;
            else
                ++crowded_out;
        }
        if (step % 1000 != 0)
            continue;
        REQUIRE(t.table.size() == there.size());
        for (const auto &[each, id] : there) {
            const ftctl_flow4 *entry = t.seen(tuple(each));
            REQUIRE(entry != nullptr);
            REQUIRE(entry->flow.id == id);
            REQUIRE(t.table.find(tuple(each)) == &entry->flow);
        }
    }
    CHECK(crowded_out < 200000 / 20);
    for (const auto &[each, id] : there)
        t.remove(tuple(each));
    t.now += kLong;
    REQUIRE(t.insert(tuple(1), 1));
    CHECK(t.not_free() == 1);
}

TEST_CASE("the hash spreads flows as they come: few find no room", "[bpf][flow4]")
{
    constexpr std::uint32_t kMany = 1U << 16;
    const auto spread = [](const auto &nth) {
        Table t(kMany);
        std::uint32_t crowded_out = 0;
        for (std::uint32_t i = 0; i < kMany; ++i)
            crowded_out += !t.insert(nth(i), i);
        return crowded_out;
    };
    const std::uint32_t bound = kMany / 20;                          // by chance one in 45
    CHECK(spread([](std::uint32_t i) { return tuple(i); }) < bound); // hosts
    CHECK(spread([](std::uint32_t i) { return tuple(1, static_cast<std::uint16_t>(i)); }) < bound); // ports
    CHECK(spread([](std::uint32_t i) { return tuple(i % 256, static_cast<std::uint16_t>(1024 + i / 256)); }) <
          bound);
    CHECK(spread([](std::uint32_t i) { // answers: to one address, ports in a row
              ftctl_tuple t = tuple(i / 64, 443);
              std::swap(t.src, t.dst);
              t.dport = htons(static_cast<std::uint16_t>(32768 + i % 32768));
              return t;
          }) < bound);
}

TEST_CASE("where eight flows have one home the ninth finds no room", "[bpf][flow4]")
{
    Table t;
    for (std::uint8_t i = 0; i < FTCTL_FLOW4_PROBES; ++i)
        REQUIRE(t.insert(neighbour(i), i));
    CHECK_FALSE(t.insert(neighbour(8), 8));
    CHECK(t.table.find(neighbour(8)) == nullptr);
    CHECK(t.table.size() == FTCTL_FLOW4_PROBES);
    for (std::uint8_t i = 0; i < FTCTL_FLOW4_PROBES; ++i)
        CHECK(t.seen(neighbour(i)) == &t.map.at(t.home(neighbour(0)) + i));
}

TEST_CASE("the place of a removed flow gets another one only when no program can be at work", "[bpf][flow4]")
{
    Table t;
    REQUIRE(t.insert(neighbour(0), 0));
    REQUIRE(t.insert(neighbour(1), 1));
    const std::uint32_t home = t.home(neighbour(0));
    t.map.at(home).flow.carried.low = 77;
    t.remove(neighbour(0));
    CHECK(t.map.at(home).flow.carried.low == 77); // a last packet may be counting
    CHECK(t.seen(neighbour(0)) == nullptr);
    CHECK(t.seen(neighbour(1)) != nullptr);
    t.now += 1000;
    REQUIRE(t.insert(neighbour(2), 2));
    CHECK(t.seen(neighbour(2)) == &t.map.at(home + 2));
    t.now += kLong;
    REQUIRE(t.insert(neighbour(3), 3));
    CHECK(t.seen(neighbour(3)) == &t.map.at(home));
    CHECK(t.map.at(home).flow.carried.low == 0);

    // the same place over and over: the window fills up with what is gone, and empties again
    Table again;
    for (std::uint32_t i = 0; i < FTCTL_FLOW4_PROBES; ++i) {
        REQUIRE(again.insert(neighbour(0), i));
        again.remove(neighbour(0));
    }
    CHECK_FALSE(again.insert(neighbour(0), 9));
    again.now += kLong;
    CHECK(again.insert(neighbour(0), 9));
    CHECK(again.not_free() == 1);
}

TEST_CASE("an entry becomes free when none stands behind it", "[bpf][flow4]")
{
    Table t;
    for (std::uint8_t i = 0; i < 4; ++i)
        REQUIRE(t.insert(neighbour(i), i));
    t.remove(neighbour(1));
    t.remove(neighbour(2));
    t.now += kLong;
    t.remove(neighbour(0)); // settles the others
    CHECK(t.not_free() == 4);
    CHECK(t.seen(neighbour(3)) != nullptr);
    t.remove(neighbour(3));
    t.now += kLong;
    REQUIRE(t.insert(tuple(77), 77));
    CHECK(t.not_free() == 1);

    // ... and not while some flow stands elsewhere for want of room
    t.table.set_crowded_out(1);
    t.remove(tuple(77));
    t.now += kLong;
    REQUIRE(t.insert(neighbour(0), 1));
    CHECK(t.not_free() == 2);
}

TEST_CASE("what an earlier daemon left is counted, and its removed flows rest once more", "[bpf][flow4]")
{
    Table t;
    for (std::uint8_t i = 0; i < 3; ++i)
        REQUIRE(t.insert(neighbour(i), i));
    t.remove(neighbour(0));
    bpf::FlowTableOf<ftctl_flow4> next(t.map.data(), static_cast<std::uint32_t>(t.map.size()));
    next.recount(t.now);
    CHECK(next.size() == 2);
    REQUIRE(next.insert(neighbour(3), flow(3), t.now + 1));
    CHECK(next.find(neighbour(3)) == &t.map.at(t.home(neighbour(0)) + 3).flow);
    REQUIRE(next.insert(neighbour(4), flow(4), t.now + kLong));
    CHECK(next.find(neighbour(4)) == &t.map.at(t.home(neighbour(0))).flow);
    std::set<std::uint32_t> ids;
    CHECK(next.each([&](const ftctl_tuple &key, const ftctl_flow &f) {
        CHECK(std::memcmp(next.find(key), &f, sizeof(f)) == 0);
        return ids.insert(f.id).second;
    }));
    CHECK(ids == std::set<std::uint32_t>{1, 2, 3, 4});
    CHECK_FALSE(next.each([](const ftctl_tuple &, const ftctl_flow &) { return false; }));
}
