// SPDX-License-Identifier: GPL-2.0-only
// The only code that talks to bpf(2): programs, maps, links, pins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ftctl/abi.h"
#include "util/filter_tables.h"
#include "util/result.h"

namespace ftctl {

/// Where pins live: a bpffs of our own, since `ip netns exec` hides /sys/fs/bpf.
inline constexpr const char *kRunDir = "/run/ftctl";
inline constexpr const char *kBpffs = "/run/ftctl/bpf";

/// Makes sure kBpffs is a bpffs. Needs CAP_SYS_ADMIN when it has to be mounted; mounts it in the
/// mount namespace of pid 1 as well, so that it outlives `ip netns exec`.
Status ensure_bpffs();

/// One attachment, as its pins tell it.
struct Attachment {
    std::uint32_t slot = 0;
    std::uint32_t ifindex = 0;
    ftctl_hook hook = FTCTL_HOOK_NONE;
    std::uint32_t ingress_prog_id = 0;
    std::uint32_t egress_prog_id = 0; ///< the witness (TC egress)
    bool tcx = false;                 ///< tcx link; false: clsact filter
};

/// A flow as it stands in a map; the tuple's shape says in which (ftctl_shape_of).
struct FlowEntry {
    ftctl_tuple key{};
    ftctl_flow flow{};
    ftctl_addr new_src{}; ///< IPv6: as in ftctl_flow6; IPv4: zero, as ftctl_flow has the addresses
    ftctl_addr new_dst{};
};

struct SlotStats {
    Attachment attachment;
    ftctl_stats stats{}; ///< summed over CPUs
};

/// Runs of the real program on a synthetic packet.
struct TestRun {
    std::uint32_t verdict = 0;        ///< XDP_* or TC_ACT_*
    std::vector<std::uint8_t> packet; ///< after the program
    ftctl_reason reason{};            ///< why it went to the stack or was dropped; 0 when taken
    bool taken = false;
    bool dropped = false;
};

/// Creation parameters; fixed for the life of the maps.
struct DatapathLimits {
    std::uint32_t flows = 262144; ///< connections; each has two flows
};

class Datapath {
  public:
    /// Opens the pinned maps of an instance, or makes and pins them. Pins of another FTCTL_ABI are
    /// removed, never read. `adopted()` tells which. Limits count only when the maps are made.
    static Result<std::unique_ptr<Datapath>> open_or_create(const std::string &instance,
                                                            const DatapathLimits &limits);
    /// Opens the pins for reading and detaching, with no daemon; Code::not_running when there are none.
    static Result<std::unique_ptr<Datapath>> open_existing(const std::string &instance);
    /// Unpinned, for tests.
    static Result<std::unique_ptr<Datapath>> create_private(const DatapathLimits &limits);

    virtual ~Datapath() = default;

    [[nodiscard]] virtual bool adopted() const = 0;
    [[nodiscard]] virtual std::uint32_t max_flows() const = 0; ///< connections

    /// Memory-mapped; written with plain stores (see abi.h for the rules).
    virtual ftctl_config &config() = 0;
    virtual ftctl_path &path(std::uint32_t index) = 0;
    virtual ftctl_slot &slot(std::uint32_t index) = 0;

    /* attachments */

    /// Loads an instance of the programs for this device and attaches: XDP (native) or TC ingress,
    /// and the witness at TC egress. tcx where the kernel has it, else clsact with a fixed handle.
    /// On failure nothing of it stays. The error carries the kernel's extack text. A foreign XDP
    /// program is never replaced (EBUSY). The slot's .mac must be set by the caller afterwards.
    virtual Result<Attachment> attach(std::uint32_t ifindex, const std::string &name, ftctl_hook hook) = 0;
    /// Detaches and removes the pins; a clsact qdisc goes only if ftctl made it and it is empty.
    /// Fine when the device is gone.
    virtual Status detach(std::uint32_t ifindex) = 0;
    [[nodiscard]] virtual std::vector<Attachment> attachments() const = 0;
    /// Loads and throws away: would attach work? For --dry-run and doctor.
    virtual Status probe_load(ftctl_hook hook) = 0;
    /// Removes everything pinned under the instance's directory, the directory as well.
    virtual Status remove_pins() = 0;

    /* devmap: egress devices for XDP */
    virtual Status devmap_set(std::uint32_t ifindex, bool present) = 0;

    /* flows */
    virtual Status flow_insert(const FlowEntry &entry) = 0; ///< EEXIST, E2BIG in Error::err
    virtual Result<std::optional<FlowEntry>> flow_lookup(const ftctl_tuple &key) = 0;
    /// Removes and returns the final counters; none when it was not there.
    virtual Result<std::optional<FlowEntry>> flow_delete(const ftctl_tuple &key) = 0;
    /// Tells the programs how jiffies and CLOCK_MONOTONIC are apart. Done when opened; again now and then, in
    /// case that a kernel without a clock of high resolution lost ticks.
    virtual Status set_clock() = 0;
    virtual Status flow_edit(const ftctl_flow_edit &edit) = 0; ///< ENOENT in Error::err
    /// All flows of all maps, in batches; stops early when the handler returns false.
    virtual Status flow_each(const std::function<bool(const FlowEntry &)> &handler) = 0;

    /* reverse path filter */

    /// All IPv4 broadcast addresses of devices (as ifindex and address): those that were told before and are
    /// not among them are forgotten.
    virtual Status set_broadcasts(const std::vector<ftctl_broadcast> &all) = 0;

    /* early filter */

    /// Puts these rules in the place of those in use, at once for every packet; none: no filter.
    virtual Status filter_replace(const FilterTables &tables) = 0;
    /// The rules in use, by rank, with their counters.
    [[nodiscard]] virtual std::vector<ftctl_filter_rule> filter_rules() const = 0;

    /* counters and events */
    virtual Result<std::vector<SlotStats>> stats() = 0;
    virtual Status clear_stats(std::uint32_t slot) = 0;
    [[nodiscard]] virtual int events_fd() const = 0; ///< epoll-able
    virtual Status read_events(const std::function<void(const ftctl_event &)> &handler) = 0;

    /// Runs the ingress program for `ifindex` at `hook` on a packet (from the Ethernet header on),
    /// with the instance's maps, without side effects on flows and counters.
    virtual Result<TestRun> explain(std::uint32_t ifindex, ftctl_hook hook,
                                    const std::vector<std::uint8_t> &packet) = 0;
};

/// The name of a reason ("no-flow"), "?" when unknown. Text of what it means: reason_help().
const char *reason_name(unsigned reason);
const char *reason_help(unsigned reason);
/// The name of an ftctl_detail ("ttl"); "" for none and for unknown ones.
const char *detail_name(unsigned detail);
/// A reason and what it is about, as listings show it: "mangled:ttl", "device:eth7".
std::string reason_text(unsigned reason, const std::string &detail);
/// All packet reasons in id order, for listings.
std::vector<unsigned> packet_reasons();

/// One capability of this kernel, found by trying.
struct Probe {
    std::string name; ///< "tcx", "xdp-native", ...
    bool ok = false;
    bool required = false;
    std::string detail; ///< what was found
    std::string hint;   ///< what to change when !ok
};
std::vector<Probe> probe_kernel();
/// What may change while the daemon runs.
std::vector<Probe> probe_conntrack();

} // namespace ftctl
