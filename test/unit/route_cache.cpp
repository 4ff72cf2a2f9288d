// SPDX-License-Identifier: GPL-2.0-only
// The cache of route answers.
#include <functional>

#include <catch2/catch.hpp>
#include <netinet/in.h>

#include "daemon/route_cache.h"

using namespace ftctl;

TEST_CASE("route answers are kept for a moment, by all that a query says but protocol and ports", "[daemon]")
{
    RouteCache cache;
    RouteQuery query;
    query.dst = *IpAddr::parse("198.51.100.2");
    query.src = *IpAddr::parse("192.0.2.2");
    query.iif = 3;
    RouteAnswer answer;
    answer.oif = 7;
    constexpr std::uint64_t now = 1000 * RouteCache::kLifetime;
    CHECK_FALSE(cache.find(query, now));
    cache.store(query, answer, now);
    REQUIRE(cache.find(query, now));
    CHECK(cache.find(query, now)->oif == 7);

    RouteQuery other = query;
    other.proto = IPPROTO_TCP;
    other.sport = 4000;
    other.dport = 80;
    CHECK(cache.find(other, now));
    const auto differs = [&](const std::function<void(RouteQuery &)> &change) {
        RouteQuery changed = query;
        change(changed);
        return cache.find(changed, now) == nullptr;
    };
    CHECK(differs([](RouteQuery &q) { q.dst = *IpAddr::parse("198.51.100.3"); }));
    CHECK(differs([](RouteQuery &q) { q.src = {}; }));
    CHECK(differs([](RouteQuery &q) { q.iif = 4; }));
    CHECK(differs([](RouteQuery &q) { q.oif = 4; }));
    CHECK(differs([](RouteQuery &q) { q.mark = 4; }));
    CHECK(differs([](RouteQuery &q) { q.tos = 4; }));

    cache.store(other, answer, now + RouteCache::kLifetime - 1); // does not make the others younger
    CHECK(cache.find(query, now + RouteCache::kLifetime - 1));
    CHECK_FALSE(cache.find(query, now + RouteCache::kLifetime));
    cache.store(query, answer, now);
    cache.clear();
    CHECK_FALSE(cache.find(query, now));
}
