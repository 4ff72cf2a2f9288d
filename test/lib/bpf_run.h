// SPDX-License-Identifier: GPL-2.0-only
// The real programs on synthetic frames: BPF_PROG_TEST_RUN with maps of the test's own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "count.h"
#include "flow/filter_rule.h"
#include "ftctl/abi.h"
#include "packet.h"

namespace ftctl::test {

enum class Hook { xdp, tc };
const char *hook_name(Hook hook);

/// The devices of every test: clients are behind `a`, servers behind `b`. Slot = value + 1.
enum Device : unsigned { kDevA = 0, kDevB = 1, kDevC = 2, kDevices = 3 };
Mac device_mac(Device device);

inline constexpr std::uint32_t kXdpDrop = 1;
inline constexpr std::uint32_t kXdpPass = 2;
inline constexpr std::uint32_t kXdpRedirect = 4;
inline constexpr std::uint32_t kTcUnspec = 0xffffffff;
inline constexpr std::uint32_t kTcShot = 2;
inline constexpr std::uint32_t kTcRedirect = 7;

/// What the kernel knows of an aggregated packet. All zero: not aggregated.
struct Gso {
    std::uint32_t size = 0; ///< payload bytes of one segment
    std::uint32_t segs = 0; ///< 0 with a size: unknown, as packets from TUN and virtio have it
};

struct Run {
    std::uint32_t verdict = 0;
    Bytes bytes;
    bool marked = false; ///< at TC: the egress hook was told that the packet is ftctl's own
};

/// One test run, or the last of many.
struct Timing {
    std::uint32_t verdict = 0;
    std::uint32_t ns = 0; ///< the program's, on average; the kernel's reading of the clock is in it
};

/// Why the tests cannot run here; empty when they can.
std::string cannot_run();

/// One per process: a network namespace with three veth pairs and the programs loaded for each of them.
class Rig {
  public:
    static Rig &get();

    /// No flows, no samples, no events, zero counters; heartbeat now, generation 1, no tunnels.
    void reset(Hook hook);

    ftctl_config config();
    void set_config(const ftctl_config &config);
    void set_path(std::uint32_t index, const ftctl_path &path);
    void set_slot(Device device, const ftctl_slot &slot);
    ftctl_slot slot(Device device);
    void set_egress(Device device, bool present);

    /// With or without the maps of flows other than plain IPv4, as they are before the first such flow.
    void set_flow_maps(bool present);

    void set_broadcast(const ftctl_broadcast &key, bool present);
    /// The early filter's rules, in the order of their ids; none: no filter. Their devices are bt0, bt1, bt2.
    void set_filter(const std::vector<FilterRule> &rules);
    ftctl_filter_count filter_count(std::size_t rank);

    /// In map flowx: the flow of another tuple that has this one's digest.
    void set_stranger(const ftctl_tuple &key, const ftctl_tuple &whose, const ftctl_flow6 &flow);
    /// The addresses behind .flow count only where the tuple's map has them.
    void set_flow(const ftctl_tuple &key, const ftctl_flow6 &flow);
    /// The entries of map flow4 where a plain IPv4 flow may stand, its home first; those of flow4t.
    ftctl_flow4 *flow4_entries(const ftctl_tuple &key);
    ftctl_flow4t *flow4t_entries(const ftctl_tuple &key);
    /// The bit by which the programs know that there may be such a flow; set_flow() sets it.
    void set_bloom(const ftctl_tuple &key, bool present);
    std::optional<ftctl_flow6> flow6(const ftctl_tuple &key);
    std::optional<ftctl_flow> flow(const ftctl_tuple &key);
    void set_sample(const ftctl_sample_key &key, const ftctl_sample &sample);
    std::optional<ftctl_sample> sample(const ftctl_sample_key &key);
    std::size_t sample_count();
    void forget_samples();
    ftctl_stats stats(Device device);
    std::vector<ftctl_event> events(); ///< since the last call

    /// None when the kernel refuses to make a test run of so short a frame.
    std::optional<Run> ingress(Hook hook, Device device, const Bytes &frame, Gso gso = {});
    /// XDP, with bytes of metadata before the frame that take away from the headroom (256). The metadata is
    /// cut off the result. None when the kernel takes no so large metadata (6.1: 32 bytes).
    std::optional<Run> ingress_with_metadata(Device device, const Bytes &frame, std::uint32_t metadata);
    /// The next packet at the egress hook of any processor is ftctl's own.
    void mark_next();
    /// The witness.
    Run egress(Device device, const Bytes &frame, Gso gso = {});
    /// The programs as `explain` loads them: cfg_dry set, slot 0, device a.
    Run dry(Hook hook, const Bytes &frame);
    /// How long the ingress program, or this one in its place, takes. From the second run on the frame is
    /// what the first made of it.
    Timing time(Hook hook, Device device, const Bytes &frame, unsigned runs, int program = -1);
    /// Returns the program's return value (0 or a negative errno).
    int edit(const ftctl_flow_edit &edit);

    [[nodiscard]] std::uint32_t ifindex(Device device) const;

    Rig(const Rig &) = delete;
    Rig &operator=(const Rig &) = delete;
    ~Rig();

  private:
    Rig();
    void clear_placed();
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

std::uint64_t now_ns();
std::uint32_t now_ticks();

} // namespace ftctl::test
