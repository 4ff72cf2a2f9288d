// SPDX-License-Identifier: GPL-2.0-only
// The shared maps: definitions, creation, and the check of what is found pinned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <linux/bpf.h>

#include "bpf/datapath.h"
#include "bpf/flow_table.h"
#include "ftctl/filter.h"
#include "util/fd.h"
#include "util/result.h"

struct bpf_map;
struct bpf_object;

namespace ftctl::bpf {

enum class MapId : std::size_t {
    config,
    paths,
    slots,
    stats,
    flow4,
    outer_flow4t,
    outer_flow6,
    outer_flowx,
    flow_bloom,
    samples,
    events,
    egress,
    scratch,
    filter_prefixes,
    filter_sets,
    filter_counts,
    filter_rules,
    broadcasts,
};
inline constexpr std::size_t kMapCount = 18;

/// A map as both sides know it; bpf/*.bpf.c must define the same.
struct MapSpec {
    const char *name;
    bpf_map_type type;
    std::uint32_t key_size;
    std::uint32_t value_size;
    std::uint32_t max_entries; ///< 0: chosen when the map is made (for limits.flows, the filter's)
    std::uint32_t flags;
    const MapSpec *inner = nullptr; ///< of arrays of maps: what their maps are like
};
const MapSpec &map_spec(MapId id);
/// Name of the shared map that a map of an object is: without FTCTL_VARIABLE, where it is a variable to
/// programs.
std::string_view shared_name(const bpf_map *map);
/// A new map; `entries` where the spec leaves that open.
Result<Fd> make_map(const MapSpec &spec, std::uint32_t entries);
/// The map that an array of maps holds at `index`. ENOENT in Error::err: none. `what`: the operation, for
/// errors.
Result<Fd> inner_map(int outer, std::uint32_t index, const std::string &what);

/// A map's memory, shared with the datapath. T must be the map's value type.
class Mapping {
  public:
    Mapping() = default;
    Mapping(Mapping &&other) noexcept;
    Mapping &operator=(Mapping &&other) noexcept;
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    ~Mapping();

    static Result<Mapping> map(int fd, std::size_t bytes, const char *name);
    [[nodiscard]] void *data() const { return data_; }

  private:
    void *data_ = nullptr;
    std::size_t bytes_ = 0;
};

/// All maps of an instance, open and mapped.
class Maps {
  public:
    /// New maps: abi and instance number are set, everything else is zero.
    static Result<Maps> create(const DatapathLimits &limits);
    /// Opens `dir`/<name>. Code::not_running when config is not there; Code::partial when what is
    /// there does not fit this program: another FTCTL_ABI, other sizes, an incomplete set.
    static Result<Maps> open(const std::string &dir);
    /// Pins all of them, config last: a set without config was never finished.
    [[nodiscard]] Status pin(const std::string &dir) const;
    /// Makes a skeleton's object use these maps. Before load. Maps that are not shared stay its own;
    /// so does scratch of a dry instance, which must not disturb the others.
    [[nodiscard]] Status reuse(bpf_object *object, bool dry) const;

    [[nodiscard]] int fd(MapId id) const { return fds_[static_cast<std::size_t>(id)].get(); }
    /// Flows that each flow map has room for: two for each connection.
    [[nodiscard]] std::uint32_t flow_entries() const { return flow_entries_; }
    /// The hash map of flows of that shape, or map flow4t; -1 while it has not been made, and of plain IPv4
    /// flows.
    [[nodiscard]] int flow_fd(ftctl_shape shape) const;
    /// Makes it, empty, with room for flow_entries(), if there is none. Packets find it from then on.
    Status need_flow_map(ftctl_shape shape);

    [[nodiscard]] ftctl_config &config() const { return *static_cast<ftctl_config *>(config_.data()); }
    [[nodiscard]] ftctl_path *paths() const { return static_cast<ftctl_path *>(paths_.data()); }
    [[nodiscard]] ftctl_slot *slots() const { return static_cast<ftctl_slot *>(slots_.data()); }
    /// The flows of that shape that stand where their hash says; nullptr: they are in a hash map, or there
    /// are none yet.
    [[nodiscard]] FlowTable *flow_table(ftctl_shape shape) const { return tables_.at(shape).get(); }
    [[nodiscard]] std::uint32_t flow4_entries() const { return flow_table_entries(flow_entries_); }
    /// Seldom has more than one direction of a connection a tunnel.
    [[nodiscard]] std::uint32_t flow4t_entries() const { return flow_table_entries(flow_entries_ / 2); }
    [[nodiscard]] std::uint64_t *flow_bloom() const { return static_cast<std::uint64_t *>(bloom_.data()); }

  private:
    Status map_memory();
    Status open_flow_maps();
    [[nodiscard]] std::uint32_t flow_map_entries(ftctl_shape shape) const;
    Status take_flow_map(ftctl_shape shape, Fd map);

    std::array<Fd, kMapCount> fds_;
    std::array<Fd, FTCTL_SHAPES> inner_; ///< by ftctl_shape
    std::uint32_t flow_entries_ = 0;
    Mapping config_;
    Mapping paths_;
    Mapping slots_;
    Mapping flow4_;
    Mapping flow4t_;
    std::array<std::unique_ptr<FlowTable>, FTCTL_SHAPES> tables_; ///< by ftctl_shape, in these two
    Mapping bloom_;
};

/// A number that names our network namespace until the next boot (SO_NETNS_COOKIE); 0 when unknown.
std::uint64_t netns_cookie();

} // namespace ftctl::bpf
