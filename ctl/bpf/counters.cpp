// SPDX-License-Identifier: GPL-2.0-only
// Counters, events, and the dry run that explains what happens to a packet.
#include "bpf/datapath_impl.h"

#include <array>
#include <cstring>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <linux/pkt_cls.h>

#include "bpf/kernel_log.h"

namespace ftctl::bpf {
namespace {

// The kernel's stride for one CPU's value; ftctl_stats is made of u64, so that there is no rest.
static_assert(sizeof(ftctl_stats) % 8 == 0);
constexpr std::size_t kWords = sizeof(ftctl_stats) / sizeof(std::uint64_t);

// A producer that is faster than we are must not keep the event loop here.
constexpr unsigned kEventsPerCall = 4096;
constexpr std::uint32_t kXdpDrop = XDP_DROP;
constexpr std::uint32_t kTcDrop = TC_ACT_SHOT;
constexpr std::size_t kDryProgramsKept = 64;
constexpr std::size_t kMaxPacket = 65536;
// Room for what the datapath may push, beyond the packet that was given.
constexpr std::size_t kPushRoom = 256;

std::size_t cpu_count()
{
    const int cpus = libbpf_num_possible_cpus();
    return cpus > 0 ? static_cast<std::size_t>(cpus) : 0;
}

} // namespace

struct DatapathImpl::EventCall {
    const std::function<void(const ftctl_event &)> *handler;
    unsigned left;
};

void RingFree::operator()(ring_buffer *ring) const
{
    ring_buffer__free(ring);
}

Status DatapathImpl::prepare()
{
    const LogCapture log;
    ring_.reset(ring_buffer__new(maps_.fd(MapId::events), on_ring_event, this, nullptr));
    if (!ring_)
        return fail_errno("open the event ring", errno);
    return set_clock();
}

Result<ftctl_stats> DatapathImpl::slot_stats(std::uint32_t index) const
{
    const std::size_t cpus = cpu_count();
    std::vector<std::uint64_t> words(cpus * kWords);
    if (cpus == 0 || bpf_map_lookup_elem(maps_.fd(MapId::stats), &index, words.data()) != 0)
        return fail_errno("read the counters", cpus == 0 ? EIO : errno);
    std::array<std::uint64_t, kWords> sum{};
    for (std::size_t i = 0; i < words.size(); ++i)
        sum[i % kWords] += words[i];
    ftctl_stats total{};
    std::memcpy(&total, sum.data(), sizeof(total));
    return total;
}

Result<std::vector<SlotStats>> DatapathImpl::stats()
{
    std::vector<SlotStats> all;
    for (const auto &[ifindex, record] : records_) {
        auto counters = slot_stats(record.slot);
        if (!counters)
            return tl::unexpected(counters.error());
        all.push_back({describe(record), *counters});
    }
    return all;
}

Status DatapathImpl::clear_stats(std::uint32_t slot)
{
    if (slot >= FTCTL_MAX_SLOTS)
        return fail("clear counters", fmt::format("no slot {}", slot), {}, Code::usage);
    const std::vector<std::uint64_t> zero(cpu_count() * kWords);
    if (zero.empty() || bpf_map_update_elem(maps_.fd(MapId::stats), &slot, zero.data(), BPF_ANY) != 0)
        return fail_errno("clear counters", zero.empty() ? EIO : errno);
    return {};
}

int DatapathImpl::events_fd() const
{
    return ring_ ? ring_buffer__epoll_fd(ring_.get()) : -1;
}

int DatapathImpl::on_ring_event(void *ctx, void *data, std::size_t size)
{
    EventCall *call = static_cast<DatapathImpl *>(ctx)->event_call_;
    ftctl_event event{};
    if (size == sizeof(event)) {
        std::memcpy(&event, data, sizeof(event));
        (*call->handler)(event);
    }
    // A negative value ends the round, the record counts as consumed.
    return --call->left == 0 ? -EAGAIN : 0;
}

Status DatapathImpl::read_events(const std::function<void(const ftctl_event &)> &handler)
{
    if (!ring_)
        return fail("read events", "this process has not opened the event ring");
    EventCall call{&handler, kEventsPerCall};
    event_call_ = &call;
    const int rc = ring_buffer__consume(ring_.get());
    event_call_ = nullptr;
    if (rc < 0 && rc != -EAGAIN)
        return fail_errno("read events", -rc);
    return {};
}

Result<int> DatapathImpl::dry_program(std::uint32_t ifindex, ftctl_hook hook)
{
    const std::pair<std::uint32_t, int> key(ifindex, hook);
    if (const auto found = dry_programs_.find(key); found != dry_programs_.end())
        return found->second.get();
    auto programs = load_instance(maps_, hook, {FTCTL_SLOT_SCRATCH, ifindex, true});
    if (!programs)
        return tl::unexpected(programs.error());
    if (dry_programs_.size() >= kDryProgramsKept)
        dry_programs_.clear();
    const int fd = programs->ingress.get();
    dry_programs_.emplace(key, std::move(programs->ingress));
    return fd;
}

Result<TestRun> DatapathImpl::explain(std::uint32_t ifindex, ftctl_hook hook,
                                      const std::vector<std::uint8_t> &packet)
{
    const std::string what = fmt::format("explain a packet at device {}", ifindex);
    if (packet.size() < 14 || packet.size() > kMaxPacket)
        return fail(what, fmt::format("{} bytes are no Ethernet frame", packet.size()), {}, Code::usage);
    // The program compares MACs with its slot's; the scratch slot stands in for the device's.
    if (const auto found = records_.find(ifindex); found != records_.end()) {
        maps_.slots()[FTCTL_SLOT_SCRATCH] = maps_.slots()[found->second.slot];
        filter_.bind_as(FTCTL_SLOT_SCRATCH, found->second.slot);
    } else if (maps_.slots()[FTCTL_SLOT_SCRATCH].ifindex != ifindex) {
        return fail(what, "it is not attached", {}, Code::not_running);
    }
    auto program = dry_program(ifindex, hook);
    if (!program)
        return tl::unexpected(program.error());

    const auto before = slot_stats(FTCTL_SLOT_SCRATCH);
    if (!before)
        return tl::unexpected(before.error());
    TestRun run;
    run.packet.resize(packet.size() + kPushRoom);
    __sk_buff skb{};
    skb.ifindex = ifindex;
    bpf_test_run_opts opts{};
    opts.sz = sizeof(opts);
    opts.data_in = packet.data();
    opts.data_size_in = static_cast<std::uint32_t>(packet.size());
    opts.data_out = run.packet.data();
    opts.data_size_out = static_cast<std::uint32_t>(run.packet.size());
    if (hook == FTCTL_HOOK_TC) { // XDP instances know their device from their read-only data
        opts.ctx_in = &skb;
        opts.ctx_size_in = sizeof(skb);
    }
    int rc = bpf_prog_test_run_opts(*program, &opts);
    if (rc != 0 && errno == ENODEV) { // device just gone, or of another namespace
        opts.ctx_in = nullptr;
        opts.ctx_size_in = 0;
        rc = bpf_prog_test_run_opts(*program, &opts);
    }
    if (rc != 0)
        return fail_errno(what, errno);
    const auto after = slot_stats(FTCTL_SLOT_SCRATCH);
    if (!after)
        return tl::unexpected(after.error());

    run.verdict = opts.retval;
    run.packet.resize(std::min<std::size_t>(opts.data_size_out, run.packet.size()));
    run.dropped = run.verdict == (hook == FTCTL_HOOK_XDP ? kXdpDrop : kTcDrop);
    run.taken = after->fast_packets != before->fast_packets;
    for (unsigned reason = 0; !run.taken && reason < FTCTL_PACKET_REASONS; ++reason) {
        if (after->reasons[reason] != before->reasons[reason]) {
            run.reason = static_cast<ftctl_reason>(reason);
            break;
        }
    }
    return run;
}

} // namespace ftctl::bpf
