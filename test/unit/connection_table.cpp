// SPDX-License-Identifier: GPL-2.0-only
// The table of connections against a plain map.
#include <map>
#include <random>
#include <set>

#include <catch2/catch.hpp>
#include <netinet/in.h>

#include "daemon/connection_table.h"

using namespace ftctl;

namespace {

Tuple tuple_of(std::uint32_t n, bool reply = false)
{
    const Tuple t{IpAddr::from_v4(htonl(0xc0000200 + n / 7)), IpAddr::from_v4(htonl(0xc6336400 + n % 7)),
                  static_cast<std::uint16_t>(n), 53, IPPROTO_UDP};
    return reply ? t.reversed() : t;
}

Connection connection(std::uint32_t id, std::uint32_t n)
{
    Connection conn;
    conn.id = id;
    conn.orig = tuple_of(n);
    conn.reply = tuple_of(n, true);
    return conn;
}

} // namespace

TEST_CASE("connections are found by id and by either tuple, whatever came and went", "[daemon]")
{
    ConnectionTable table;
    std::map<std::uint32_t, std::uint32_t> model; // tuple number -> id
    std::mt19937 random(4711);                    // NOLINT(cert-msc51-cpp): the same each time
    std::uint32_t next_id = 1;
    for (int step = 0; step < 60000; step++) {
        const std::uint32_t n = random() % 12000;
        if (const auto it = model.find(n); it != model.end()) {
            table.erase(*table.by_id(it->second));
            model.erase(it);
        } else {
            const Connection &added = table.add(connection(next_id, n));
            REQUIRE(added.id == next_id);
            model[n] = next_id++;
        }
    }
    REQUIRE(model.size() > 4096); // several chunks
    CHECK(table.size() == model.size());
    for (std::uint32_t n = 0; n < 12000; n++) {
        const auto it = model.find(n);
        const Connection *conn = table.find(tuple_of(n));
        REQUIRE((conn != nullptr) == (it != model.end()));
        REQUIRE(table.find_reply(tuple_of(n, true)) == conn);
        if (!conn)
            continue;
        REQUIRE(conn->id == it->second);
        REQUIRE(table.by_id(it->second) == conn);
        REQUIRE(table.at(table.number_of_id(conn->id)) == conn);
    }
    CHECK_FALSE(table.by_id(next_id));
    std::set<std::uint32_t> seen;
    table.each([&](const Connection &conn) { seen.insert(conn.id); });
    CHECK(seen.size() == model.size());
    CHECK(table.end() < next_id / 2); // records are used again
}

TEST_CASE("of two connections with one reply tuple the newer one is found by it", "[daemon]")
{
    ConnectionTable table;
    const Connection &old = table.add(connection(1, 10));
    Connection second = connection(2, 11);
    second.reply = old.reply;
    const Connection &fresh = table.add(second);
    CHECK(table.find_reply(old.reply) == &fresh);
    table.erase(old);
    CHECK(table.find_reply(second.reply) == &fresh);
    CHECK(table.find(second.orig) == &fresh);
    table.erase(fresh);
    CHECK_FALSE(table.find_reply(second.reply));
    CHECK(table.size() == 0);
}

TEST_CASE("numbers with equal and with neighbouring hashes do not hide each other", "[daemon]")
{
    HashIndex index;
    const auto find = [&](std::uint32_t hash, std::uint32_t number) {
        return index.find(hash, [&](std::uint32_t n) { return n == number; });
    };
    // the last slots of 1024, so that the run goes round the end
    for (std::uint32_t i = 0; i < 12; i++)
        index.insert(1020 + i / 3, i);
    for (const std::uint32_t gone : {4U, 0U, 11U, 7U}) {
        index.erase(1020 + gone / 3, gone);
        index.erase(1020 + gone / 3, gone); // not there: nothing happens
        CHECK(find(1020 + gone / 3, gone) == HashIndex::kNone);
    }
    for (const std::uint32_t left : {1U, 2U, 3U, 5U, 6U, 8U, 9U, 10U})
        CHECK(find(1020 + left / 3, left) == left);
    CHECK(index.size() == 8);
}
