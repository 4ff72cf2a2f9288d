// SPDX-License-Identifier: GPL-2.0-only
// The paths in use: one index per way, shared and counted.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "flow/ways.h"

namespace ftctl {

class PathTable {
  public:
    explicit PathTable(std::uint32_t size) : size_(size) {}

    /// The index of this way, new or shared, with one more user; none when the table is full.
    std::optional<std::uint32_t> acquire(const Way &way);
    /// One user less. The last one frees the index; it is handed out again as late as possible,
    /// since a packet may still be looking at it.
    void release(std::uint32_t index);

    [[nodiscard]] const Way *way(std::uint32_t index) const;
    /// What the path's user notes of it; 0 when the index is handed out anew.
    [[nodiscard]] std::uint64_t &written(std::uint32_t index) { return entries_.at(index).written; }
    [[nodiscard]] std::size_t used() const { return by_way_.size(); }
    /// Indexes whose way uses this device, or goes to this neighbour of that device.
    [[nodiscard]] std::vector<std::uint32_t> by_device(std::uint32_t ifindex) const;
    [[nodiscard]] std::vector<std::uint32_t> by_neighbour(std::uint32_t ifindex,
                                                          const IpAddr &next_hop) const;
    /// Indexes whose way ends at the port behind which a bridge has this station.
    [[nodiscard]] std::vector<std::uint32_t> by_station(std::uint32_t bridge, const Mac &mac) const;
    [[nodiscard]] std::vector<std::uint32_t> all() const;

  private:
    template <typename Which>
    [[nodiscard]] std::vector<std::uint32_t> which(Which &&which) const;

    struct Entry {
        Way way;
        std::uint32_t users = 0;
        std::uint64_t written = 0;
    };
    std::uint32_t size_;
    std::uint32_t fresh_ = 1; // 0 stays unused: a flow of zeros points nowhere
    std::deque<std::uint32_t> free_;
    struct Hash {
        std::size_t operator()(const Way &way) const;
    };
    std::vector<Entry> entries_; ///< by index; without users: free
    std::unordered_map<Way, std::uint32_t, Hash> by_way_;
};

} // namespace ftctl
