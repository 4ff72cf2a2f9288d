// SPDX-License-Identifier: GPL-2.0-only
// Rates from two listings of flows.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <unordered_map>

#include <nlohmann/json.hpp>

namespace ftctl {

/// One listing, a flow at a time, compared with an earlier one. There may be a million flows: of each only
/// its counters are kept, and of the rows the busiest.
class TopSample {
  public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t kKeep = 10000; ///< rows

    /// Rates are since `before` (null: there are none yet), which was taken `seconds` earlier; 0: as the
    /// clock has it. Its counters are taken over. A connection that was not there before counts from zero.
    explicit TopSample(TopSample *before, double seconds = 0);
    void add(const nlohmann::json &flow);

    /// A row for every direction, busiest first: the keys of direction_rows(), and "pps" and "bps" (bits a
    /// second).
    [[nodiscard]] nlohmann::json rows();
    /// Of all directions, those without a row included.
    [[nodiscard]] std::size_t directions() const { return directions_; }
    [[nodiscard]] std::size_t live() const { return live_; }
    [[nodiscard]] double bps() const { return bps_; }
    [[nodiscard]] double pps() const { return pps_; }

  private:
    struct Counts {
        std::uint64_t packets = 0;
        std::uint64_t bytes = 0;
    };
    using Counted = std::unordered_map<std::uint64_t, std::array<Counts, 2>>; ///< by the flow's id

    void keep_busiest();

    Clock::time_point at_;
    Counted before_;
    double seconds_ = 0;
    Counted counted_;
    std::vector<nlohmann::json> rows_;
    std::size_t directions_ = 0;
    std::size_t live_ = 0;
    double bps_ = 0;
    double pps_ = 0;
};

/// A line of totals and the first `limit` rows.
void view_top(std::ostream &out, TopSample &sample, std::size_t limit, bool colour);

} // namespace ftctl
