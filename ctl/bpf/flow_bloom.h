// SPDX-License-Identifier: GPL-2.0-only
// The datapath's Bloom filter of flows (ftctl/bloom.h), kept by counting.
#pragma once

#include <cstdint>
#include <vector>

#include "ftctl/abi.h"

namespace ftctl::bpf {

class FlowBloom {
  public:
    /// Entries of map flow_bloom beside flow maps of so many entries.
    static std::uint32_t map_entries(std::uint32_t flow_entries);

    FlowBloom() = default;
    /// Knows of no flow yet and leaves the map alone. `config` and `map` (the map's memory) must outlive it.
    FlowBloom(ftctl_config &config, std::uint64_t *map, std::uint32_t flow_entries);

    /// Counts a flow that is in a flow map; show() follows.
    void count(const ftctl_tuple &flow);
    /// Writes the level that fits, and puts it into use.
    void show();
    /// Before a flow is put into its map.
    void add(const ftctl_tuple &flow);
    /// After it is gone from there, or did not get in. It must have been counted or added.
    void remove(const ftctl_tuple &flow);

    /// false: made without arguments.
    explicit operator bool() const { return map_ != nullptr; }

  private:
    [[nodiscard]] std::uint64_t bits() const { return 1ULL << level_; }
    [[nodiscard]] bool any(std::uint32_t bit) const;
    void set(std::uint32_t bit, bool value);
    void show(std::uint32_t level);

    ftctl_config *config_ = nullptr;
    std::uint64_t *map_ = nullptr;
    std::uint32_t last_ = 0;
    std::uint32_t level_ = 0; ///< in use
    std::uint64_t flows_ = 0;
    std::vector<std::uint8_t> counts_; ///< of flows by bit of the last level; 255: so many or more, for good
};

} // namespace ftctl::bpf
