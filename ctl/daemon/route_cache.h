// SPDX-License-Identifier: GPL-2.0-only
// The kernel's answers to route queries, for a moment: many connections ask the same.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "netlink/route.h"

namespace ftctl {

/// Asks nothing itself: its owner says when answers may be kept, and forgets them when something changed.
/// Protocol and ports are not looked at. It may only be used where they decide nothing.
class RouteCache {
  public:
    /// The answer to such a query, if it is younger than kLifetime.
    [[nodiscard]] const RouteAnswer *find(const RouteQuery &query, std::uint64_t now_ns);
    void store(const RouteQuery &query, const RouteAnswer &answer, std::uint64_t now_ns);
    void clear() { answers_.clear(); }
    [[nodiscard]] std::size_t size() const { return answers_.size(); }

    /// For changes that nothing announces: settings, learnt path MTUs.
    static constexpr std::uint64_t kLifetime = 500 * 1000 * 1000;
    static constexpr std::size_t kMost = 65536;

  private:
    struct Key {
        Tuple addrs; ///< source and destination; without source: none
        std::uint32_t iif = 0;
        std::uint32_t oif = 0;
        std::uint32_t mark = 0;
        std::uint8_t tos = 0;
        bool operator==(const Key &) const = default;
    };
    struct Hash {
        std::size_t operator()(const Key &key) const
        {
            // devices, marks and TOS are few, and not chosen by strangers
            return TupleHash{}(key.addrs) ^ (key.iif * 0x9e3779b97f4a7c15ULL) ^
                   (std::uint64_t{key.oif} << 32 ^ key.mark) ^ key.tos;
        }
    };
    static Key key_of(const RouteQuery &query)
    {
        return {{query.src, query.dst, 0, 0, 0}, query.iif, query.oif, query.mark, query.tos};
    }

    std::unordered_map<Key, RouteAnswer, Hash> answers_;
    std::uint64_t since_ns_ = 0; ///< of the oldest
};

} // namespace ftctl
