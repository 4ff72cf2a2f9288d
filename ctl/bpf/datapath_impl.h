// SPDX-License-Identifier: GPL-2.0-only
// The one implementation of Datapath, spread over several files by topic.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "bpf/datapath.h"
#include "bpf/filter_maps.h"
#include "bpf/flow_bloom.h"
#include "bpf/links.h"
#include "bpf/maps.h"
#include "bpf/pins.h"
#include "bpf/programs.h"

struct ring_buffer;

namespace ftctl::bpf {

/// A device with its programs.
struct Record {
    std::uint32_t slot = 0;
    std::uint32_t ifindex = 0;
    ftctl_hook hook = FTCTL_HOOK_NONE;
    Hooked ingress;
    Hooked egress;
    bool made_qdisc = false;
};

struct RingFree {
    void operator()(ring_buffer *ring) const;
};

class DatapathImpl final : public Datapath {
  public:
    DatapathImpl(Maps maps, PinDir pins) : maps_(std::move(maps)), pins_(std::move(pins)) {}
    /// Pinned attachments stay; unpinned ones go.
    ~DatapathImpl() override;
    DatapathImpl(const DatapathImpl &) = delete;
    DatapathImpl &operator=(const DatapathImpl &) = delete;

    /* datapath.cpp */
    /// Loads what a daemon needs beyond the maps: flow_edit, the clock and the event ring.
    Status prepare();
    void set_adopted() { adopted_ = true; }
    [[nodiscard]] bool adopted() const override { return adopted_; }
    [[nodiscard]] std::uint32_t max_flows() const override { return maps_.flow_entries() / 2; }
    ftctl_config &config() override { return maps_.config(); }
    ftctl_path &path(std::uint32_t index) override;
    ftctl_slot &slot(std::uint32_t index) override;
    Status devmap_set(std::uint32_t ifindex, bool present) override;
    Status remove_pins() override;

    /* adopt.cpp, attach.cpp */
    /// Finds attachments by pins and slots. With `repair`, halves of attachments and leftovers of
    /// devices that are gone are removed.
    void find_attachments(bool repair);
    Result<Attachment> attach(std::uint32_t ifindex, const std::string &name, ftctl_hook hook) override;
    Status detach(std::uint32_t ifindex) override;
    [[nodiscard]] std::vector<Attachment> attachments() const override;
    Status probe_load(ftctl_hook hook) override;

    /* flows.cpp */
    Status flow_insert(const FlowEntry &entry) override;
    Result<std::optional<FlowEntry>> flow_lookup(const ftctl_tuple &key) override;
    Result<std::optional<FlowEntry>> flow_delete(const ftctl_tuple &key) override;
    Status flow_edit(const ftctl_flow_edit &edit) override;
    Status set_clock() override;
    Status flow_each(const std::function<bool(const FlowEntry &)> &handler) override;

    Status set_broadcasts(const std::vector<ftctl_broadcast> &all) override;
    /* filter_maps.cpp does it */
    Status filter_replace(const FilterTables &tables) override;
    [[nodiscard]] std::vector<ftctl_filter_rule> filter_rules() const override { return filter_.read(); }
    /// Takes over the rules that are pinned.
    Status open_filter() { return filter_.open(maps_); }

    /* counters.cpp */
    Result<std::vector<SlotStats>> stats() override;
    Status clear_stats(std::uint32_t slot) override;
    [[nodiscard]] int events_fd() const override;
    Status read_events(const std::function<void(const ftctl_event &)> &handler) override;
    Result<TestRun> explain(std::uint32_t ifindex, ftctl_hook hook,
                            const std::vector<std::uint8_t> &packet) override;

  private:
    using EgressStep = std::function<Status(Record &, const Instance &)>;
    Result<Record> make_record(const Device &device, ftctl_hook hook, const EgressStep &egress);
    Result<Attachment> attach_new(const Device &device, ftctl_hook hook);
    Result<Attachment> replace_programs(Record &record, const Device &device);
    Result<Attachment> switch_hook(Record &record, const Device &device, ftctl_hook hook);
    Status attach_ingress(Record &record, const Device &device, const Instance &programs, bool tcx);
    Status attach_egress(Record &record, const Device &device, const Instance &programs);
    Status need_qdisc(Record &record, const Device &device, bool egress, int prog_fd);
    Result<std::uint32_t> take_slot(const Device &device, ftctl_hook hook);
    void release_slot(std::uint32_t index);
    Status abandon(Record &record);
    [[nodiscard]] Record read_record(std::uint32_t slot_index) const;
    void count_failed_transmissions();
    Result<ftctl_stats> slot_stats(std::uint32_t index) const;
    static int on_ring_event(void *ctx, void *data, std::size_t size);
    Status need_edit();
    Status need_index();
    Status flow_insert_hashed(const FlowEntry &entry, ftctl_shape shape);
    Result<std::optional<FlowEntry>> flow_lookup_hashed(const ftctl_tuple &key, ftctl_shape shape);
    Result<std::optional<FlowEntry>> flow_delete_hashed(const ftctl_tuple &key, ftctl_shape shape);
    Status flow_insert_placed(FlowTable &table, const FlowEntry &entry);
    Result<int> dry_program(std::uint32_t ifindex, ftctl_hook hook);

    Maps maps_;
    FlowBloom bloom_; ///< since the first change of a flow
    FilterMaps filter_;
    PinDir pins_;
    bool adopted_ = false;
    std::map<std::uint32_t, Record> records_; ///< by ifindex
    std::uint32_t last_slot_ = 0;
    std::vector<Fd> tracepoints_; ///< links
    EditPrograms edit_;
    std::unique_ptr<ring_buffer, RingFree> ring_;
    struct EventCall;
    EventCall *event_call_ = nullptr; ///< during read_events
    std::map<std::pair<std::uint32_t, int>, Fd> dry_programs_;
};

/// What is known of an attachment from its record.
Attachment describe(const Record &record);

} // namespace ftctl::bpf
