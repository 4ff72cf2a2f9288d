// SPDX-License-Identifier: GPL-2.0-only
// What the parts of the rig share; tests include bpf_run.h.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "bpf/maps.h"
#include "bpf/objects.h"
#include "bpf/programs.h"
#include "bpf_run.h"

namespace ftctl::test {

/// What each flow map has room for.
inline constexpr std::uint32_t kTestFlows = 1024;

/// Throws with the text of the errno (either sign).
[[noreturn]] void die(const std::string &what, int err);
/// die() when rc is negative.
void must(int rc, const std::string &what);
/// Moves this process to a network namespace of its own and makes the devices there.
void make_devices();

struct Rig::Impl {
    std::array<ftctl_xdp *, kDevices> xdp{};
    std::array<ftctl_tc *, kDevices> tc{};
    ftctl_xdp *dry_xdp = nullptr;
    ftctl_tc *dry_tc = nullptr;
    ftctl_edit *edit = nullptr;
    ring_buffer *ring = nullptr;
    bpf::Mapping bloom;                                    ///< flow_bloom's memory
    std::array<bpf::Mapping, 2> placed;                    ///< flow4's, flow4t's
    std::array<std::unique_ptr<bpf::FlowTable>, 2> tables; ///< in these
    /// Of flows that stand where their hash says; else nullptr.
    [[nodiscard]] bpf::FlowTable *table(const ftctl_tuple &key) const;
    std::map<std::string, int> maps; ///< the first object's; all others use them
    std::array<Fd, 3> inner;         ///< the flow maps that the outer ones hold, also in `maps`
    std::vector<ftctl_event> events;
    std::uint64_t *bits() const { return static_cast<std::uint64_t *>(bloom.data()); }
    int filter_counts = -1;
    std::size_t filter_rules = 0;

    ~Impl();
    int map(const std::string &name) const;
    void share_maps(bpf_object *object);
    void keep_maps(bpf_object *object);
    template <typename Skeleton>
    Skeleton *load(std::uint32_t slot, std::uint32_t ifindex, bool dry);
    Run run(bpf_program *program, const Bytes &frame, const void *ctx, std::size_t ctx_size, int *err);
    void clear(const std::string &name);
    /// TC ingress has told the egress hook that a packet is its own.
    bool marked() const;
    /// Every processor's value is made of that word.
    void fill_cpus(const std::string &name, std::uint32_t index, std::uint64_t word);
};

} // namespace ftctl::test
