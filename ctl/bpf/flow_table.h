// SPDX-License-Identifier: GPL-2.0-only
// Map flow4 as the daemon keeps it (ftctl/flow4.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "ftctl/abi.h"

namespace ftctl::bpf {

class FlowTable {
  public:
    /// Entries of map flow4 with room for that many flows, an even number; and the flows for those entries.
    static std::uint32_t map_entries(std::uint32_t flows);
    static std::uint32_t flows_of(std::uint32_t map_entries);
    /// Homes among so many entries.
    static std::uint32_t homes_of(std::uint32_t map_entries);

    FlowTable() = default;
    /// `map`: its memory, which must outlive this. Good for find() and each(); for changes after recount().
    FlowTable(ftctl_flow4 *map, std::uint32_t map_entries) : map_(map), entries_(map_entries) {}
    /// Looks through what is there, perhaps an earlier daemon's. `now_ns` here and below: CLOCK_MONOTONIC.
    void recount(std::uint64_t now_ns);

    /// A flow of no device and protocol would be taken for an entry without one.
    static bool can_hold(const ftctl_tuple &flow);

    /// Flows that stand here.
    [[nodiscard]] std::uint32_t size() const { return size_; }
    /// The entry of a plain IPv4 flow; nullptr: none.
    [[nodiscard]] ftctl_flow4 *find(const ftctl_tuple &flow) const;
    /// Puts one that is not there into a place that nobody can be reading. false: neither its home nor the
    /// entries behind it are free.
    bool insert(const ftctl_tuple &key, const ftctl_flow &flow, std::uint64_t now_ns);
    /// Ends what find() returned. What it carried stands there until another flow is inserted.
    void remove(ftctl_flow4 *entry, std::uint64_t now_ns);
    /// Some flow that found no room here stands in map flowx: from now on no entry becomes free, or its home
    /// might.
    void keep_homes(bool keep) { keep_homes_ = keep; }

    /// Every flow, until the handler returns false; then false. The handler may insert and remove.
    bool each(const std::function<bool(const ftctl_flow4 &)> &handler) const;

  private:
    struct Gone {
        std::uint32_t index;
        std::uint64_t ns; ///< when
    };
    void settle(std::uint64_t now_ns);
    void free_back_from(std::uint32_t index);

    ftctl_flow4 *map_ = nullptr;
    std::uint32_t entries_ = 0;
    std::uint32_t size_ = 0;
    bool keep_homes_ = false;
    std::deque<Gone> gone_; ///< that programs may still be at work with, oldest first
};

} // namespace ftctl::bpf
