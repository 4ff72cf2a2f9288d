// SPDX-License-Identifier: GPL-2.0-only
// Maps flow4 and flow4t as the daemon keeps them (ftctl/flow4.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "ftctl/abi.h"

namespace ftctl::bpf {

/// Entries of a map with room for that many flows; and the flows, an even number, for those entries.
std::uint32_t flow_table_entries(std::uint32_t flows);
std::uint32_t flow_table_flows(std::uint32_t entries);
/// Homes among so many entries.
std::uint32_t flow_table_homes(std::uint32_t entries);

/// Times are CLOCK_MONOTONIC, in nanoseconds.
class FlowTable {
  public:
    FlowTable() = default;
    FlowTable(const FlowTable &) = delete;
    FlowTable &operator=(const FlowTable &) = delete;
    virtual ~FlowTable() = default;

    /// A flow of no device and protocol would be taken for an entry without one.
    static bool can_hold(const ftctl_tuple &flow);

    /// The action of a flow, which stays where it is; nullptr: none here.
    [[nodiscard]] virtual ftctl_flow *find(const ftctl_tuple &flow) const = 0;
    /// Every flow, until the handler returns false; then false. The handler may insert and remove.
    [[nodiscard]] virtual bool
    each(const std::function<bool(const ftctl_tuple &, const ftctl_flow &)> &handler) const = 0;

    /// Looks through what is there, perhaps an earlier daemon's. What follows is for after that.
    virtual void recount(std::uint64_t now_ns) = 0;
    [[nodiscard]] std::uint32_t size() const { return size_; }
    /// Puts one that is not there into a place that nobody can be reading. false: there is no such place.
    virtual bool insert(const ftctl_tuple &key, const ftctl_flow &flow, std::uint64_t now_ns) = 0;
    /// Ends a flow. What it carried; none when it is not here.
    virtual std::optional<ftctl_flow> remove(const ftctl_tuple &flow, std::uint64_t now_ns) = 0;

    /// Flows that found no place here and stand in map flowx, where packets look when the home is not free:
    /// as long as there is one, no entry becomes free.
    [[nodiscard]] std::uint32_t crowded_out() const { return crowded_out_; }
    void set_crowded_out(std::uint32_t flows) { crowded_out_ = flows; }

  protected:
    std::uint32_t size_ = 0;
    std::uint32_t crowded_out_ = 0;
};

/// `Entry`: ftctl_flow4 or ftctl_flow4t.
template <typename Entry>
class FlowTableOf final : public FlowTable {
  public:
    /// `map`: its memory, which must outlive this.
    FlowTableOf(Entry *map, std::uint32_t entries) : map_(map), entries_(entries) {}

    [[nodiscard]] ftctl_flow *find(const ftctl_tuple &flow) const override;
    [[nodiscard]] bool
    each(const std::function<bool(const ftctl_tuple &, const ftctl_flow &)> &handler) const override;
    void recount(std::uint64_t now_ns) override;
    bool insert(const ftctl_tuple &key, const ftctl_flow &flow, std::uint64_t now_ns) override;
    std::optional<ftctl_flow> remove(const ftctl_tuple &flow, std::uint64_t now_ns) override;

  private:
    struct Gone {
        std::uint32_t index;
        std::uint64_t ns; ///< when
    };
    [[nodiscard]] std::uint32_t home_of(const ftctl_tuple &flow) const;
    Entry *entry_of(const ftctl_tuple &flow) const;
    void settle(std::uint64_t now_ns);
    void free_back_from(std::uint32_t index);

    Entry *map_;
    std::uint32_t entries_;
    std::deque<Gone> gone_; ///< that programs may still be at work with, oldest first
};

extern template class FlowTableOf<ftctl_flow4>;
extern template class FlowTableOf<ftctl_flow4t>;

} // namespace ftctl::bpf
