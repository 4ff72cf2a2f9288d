// SPDX-License-Identifier: GPL-2.0-only
// Attaching and detaching. An attachment is complete or it is not there.
#include "bpf/datapath_impl.h"

#include <array>
#include <atomic>

#include <bpf/bpf.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "bpf/clsact.h"
#include "bpf/kernel_log.h"

namespace ftctl::bpf {
namespace {

constexpr std::uint64_t kTakeNothing = ~0ULL;

// Where filters of others stand at clsact ingress, ours must come after them: a packet that tcx
// takes never reaches clsact (sch_handle_ingress), and those filters would miss it.
Result<bool> ingress_by_tcx(std::uint32_t ifindex, ftctl_hook hook)
{
    if (!have_tcx())
        return false;
    if (hook != FTCTL_HOOK_TC)
        return true;
    const auto state = clsact_state(ifindex);
    if (!state)
        return tl::unexpected(state.error());
    return !state->foreign_ingress;
}

} // namespace

Attachment describe(const Record &record)
{
    Attachment a;
    a.slot = record.slot;
    a.ifindex = record.ifindex;
    a.hook = record.hook;
    a.ingress_prog_id = attached_program(record.ingress);
    a.egress_prog_id = attached_program(record.egress);
    a.tcx = !(record.hook == FTCTL_HOOK_TC ? record.ingress : record.egress).is_clsact();
    return a;
}

Result<std::uint32_t> DatapathImpl::take_slot(const Device &device, ftctl_hook hook)
{
    // Round robin: a program that was just detached may still be running on another CPU with the
    // slot that was last freed.
    for (std::uint32_t n = 1; n < FTCTL_MAX_SLOTS; ++n) {
        const std::uint32_t index = 1 + (last_slot_ + n - 1) % (FTCTL_MAX_SLOTS - 1);
        ftctl_slot &slot = maps_.slots()[index];
        if (slot.ifindex != 0)
            continue;
        if (auto cleared = clear_stats(index); !cleared)
            return tl::unexpected(cleared.error());
        slot.mac = kTakeNothing;
        slot.hook = hook;
        slot.rpf = 0;
        filter_.bind(index, device.name);
        std::atomic_thread_fence(std::memory_order_release);
        slot.ifindex = device.ifindex;
        last_slot_ = index;
        return index;
    }
    return fail(fmt::format("attach {}", device.name),
                fmt::format("{} devices are attached already", FTCTL_MAX_SLOTS - 1));
}

void DatapathImpl::release_slot(std::uint32_t index)
{
    ftctl_slot &slot = maps_.slots()[index];
    slot.mac = kTakeNothing;
    slot.upper = FTCTL_NO_MAC;
    slot.ifindex = 0;
    slot.rpf = 0;
    slot.hook = FTCTL_HOOK_NONE;
}

Result<Attachment> DatapathImpl::attach(std::uint32_t ifindex, const std::string &name, ftctl_hook hook)
{
    const Device device{ifindex, name};
    if (ifindex == 0 || ifindex > FTCTL_MAX_IFINDEX)
        return fail(fmt::format("attach {}", name), fmt::format("ifindex {} is out of range", ifindex));
    if (hook != FTCTL_HOOK_XDP && hook != FTCTL_HOOK_TC)
        return fail(fmt::format("attach {}", name), "no hook given", {}, Code::usage);
    const auto found = records_.find(ifindex);
    if (found == records_.end())
        return attach_new(device, hook);
    if (found->second.hook == hook)
        return replace_programs(found->second, device);
    return switch_hook(found->second, device, hook);
}

// A record with its slot, its programs and its ingress program attached; `egress` does the other half.
// All or nothing.
Result<Record> DatapathImpl::make_record(const Device &device, ftctl_hook hook, const EgressStep &egress)
{
    const auto tcx = ingress_by_tcx(device.ifindex, hook);
    if (!tcx)
        return tl::unexpected(tcx.error());
    const auto slot = take_slot(device, hook);
    if (!slot)
        return tl::unexpected(slot.error());
    Record record;
    record.slot = *slot;
    record.ifindex = device.ifindex;
    record.hook = hook;
    Status done;
    if (auto programs = load_instance(maps_, hook, {*slot, device.ifindex, false}); !programs)
        done = tl::unexpected(programs.error());
    else if (done = attach_ingress(record, device, *programs, *tcx); done)
        done = egress(record, *programs);
    if (!done) {
        abandon(record);
        return tl::unexpected(done.error());
    }
    return record;
}

Result<Attachment> DatapathImpl::attach_new(const Device &device, ftctl_hook hook)
{
    auto record = make_record(device, hook, [&](Record &fresh, const Instance &programs) {
        return attach_egress(fresh, device, programs);
    });
    if (!record)
        return tl::unexpected(record.error());
    const Attachment attachment = describe(*record);
    records_.insert_or_assign(device.ifindex, std::move(*record));
    count_failed_transmissions();
    return attachment;
}

// Each step is pinned at once: a daemon that is killed in between leaves what the next one finds.
Status DatapathImpl::attach_ingress(Record &record, const Device &device, const Instance &programs, bool tcx)
{
    const int fd = programs.ingress.get();
    if (record.hook == FTCTL_HOOK_TC && !tcx) {
        if (auto qdisc = need_qdisc(record, device, false, fd); !qdisc)
            return qdisc;
    }
    auto ingress = record.hook == FTCTL_HOOK_XDP ? attach_xdp(device, fd)
                   : tcx                         ? attach_tcx(device, false, fd)
                                                 : attach_clsact(device, false, fd);
    if (!ingress)
        return tl::unexpected(ingress.error());
    record.ingress = std::move(*ingress);
    return pins_.pin_link(record.ingress.pin().name(), record.ingress.fd.get());
}

Status DatapathImpl::attach_egress(Record &record, const Device &device, const Instance &programs)
{
    const int fd = programs.egress.get();
    const bool tcx = have_tcx();
    if (!tcx) {
        if (auto qdisc = need_qdisc(record, device, true, fd); !qdisc)
            return qdisc;
    }
    auto egress = tcx ? attach_tcx(device, true, fd) : attach_clsact(device, true, fd);
    if (!egress)
        return tl::unexpected(egress.error());
    record.egress = std::move(*egress);
    return pins_.pin_link(record.egress.pin().name(), record.egress.fd.get());
}

Status DatapathImpl::need_qdisc(Record &record, const Device &device, bool egress, int prog_fd)
{
    auto made = clsact_create(device.ifindex, device.name, egress);
    if (!made)
        return tl::unexpected(made.error());
    if (!*made)
        return {};
    record.made_qdisc = true;
    // bpffs holds no files; any program does as the note that the qdisc is ours to remove.
    return pins_.pin_link(LinkPin{device.ifindex, PinKind::clsact_qdisc}.name(), prog_fd);
}

Result<Attachment> DatapathImpl::replace_programs(Record &record, const Device &device)
{
    const ftctl_hook hook = record.hook;
    const auto tcx = ingress_by_tcx(device.ifindex, hook);
    if (!tcx)
        return tl::unexpected(tcx.error());
    // Made anew: a link whose device went away cannot be updated, and filters of others that came
    // since must come first. Otherwise the slot stays, and its counters go on.
    const bool out_of_order = hook == FTCTL_HOOK_TC && !*tcx && !record.ingress.is_clsact();
    if (out_of_order || attached_program(record.ingress) == 0 || attached_program(record.egress) == 0) {
        if (auto detached = detach(device.ifindex); !detached)
            return tl::unexpected(detached.error());
        return attach_new(device, hook);
    }
    auto programs = load_instance(maps_, record.hook, {record.slot, device.ifindex, false});
    if (!programs)
        return tl::unexpected(programs.error());
    const std::array<std::pair<Hooked *, int>, 2> parts = {
        {{&record.ingress, programs->ingress.get()}, {&record.egress, programs->egress.get()}}};
    for (const auto &[hooked, fd] : parts) {
        if (auto replaced = replace_program(*hooked, device, fd); !replaced)
            return tl::unexpected(replaced.error());
        if (!hooked->is_clsact())
            continue; // the pinned link is the same one
        if (auto pinned = pins_.pin_link(hooked->pin().name(), hooked->fd.get()); !pinned)
            return tl::unexpected(pinned.error());
    }
    count_failed_transmissions();
    return describe(record);
}

// Attach the new ingress program, hand the witness over, detach the old ingress program.
Result<Attachment> DatapathImpl::switch_hook(Record &record, const Device &device, ftctl_hook hook)
{
    auto made = make_record(device, hook, [&](Record &, const Instance &programs) {
        return replace_program(record.egress, device, programs.egress.get());
    });
    if (!made)
        return tl::unexpected(made.error());
    Record &fresh = *made;
    fresh.made_qdisc = fresh.made_qdisc || record.made_qdisc;
    fresh.egress = std::move(record.egress);
    if (fresh.egress.is_clsact()) {
        if (auto pinned = pins_.pin_link(fresh.egress.pin().name(), fresh.egress.fd.get()); !pinned)
            spdlog::warn("{}: {}", pinned.error().what, pinned.error().why);
    }
    record.made_qdisc = false;
    if (auto gone = abandon(record); !gone)
        spdlog::warn("{}: {}", gone.error().what, gone.error().why);
    record = std::move(fresh);
    count_failed_transmissions();
    return describe(record);
}

// Takes away whatever there is of an attachment, its pins and its slot. The first error is reported,
// after everything was tried.
Status DatapathImpl::abandon(Record &record)
{
    Status first;
    const auto keep = [&first](Status status) {
        if (!status && first)
            first = std::move(status);
    };
    maps_.slots()[record.slot].mac = kTakeNothing;
    for (Hooked *hooked : {&record.ingress, &record.egress}) {
        if (!*hooked)
            continue;
        const std::string name = hooked->pin().name();
        auto detached = detach_hooked(*hooked);
        // A filter that stayed keeps its pin, so that the next attempt finds it.
        if (detached || !hooked->is_clsact())
            pins_.unpin_link(name);
        keep(std::move(detached));
    }
    if (record.made_qdisc) {
        keep(clsact_destroy_if_empty(record.ifindex));
        pins_.unpin_link(LinkPin{record.ifindex, PinKind::clsact_qdisc}.name());
        record.made_qdisc = false;
    }
    release_slot(record.slot);
    return first;
}

Status DatapathImpl::detach(std::uint32_t ifindex)
{
    const auto found = records_.find(ifindex);
    if (found == records_.end())
        return fail(fmt::format("detach device {}", ifindex), "it is not attached", {}, Code::not_running);
    auto done = abandon(found->second);
    records_.erase(found);
    count_failed_transmissions();
    return done;
}

std::vector<Attachment> DatapathImpl::attachments() const
{
    std::vector<Attachment> all;
    for (const auto &[ifindex, record] : records_)
        all.push_back(describe(record));
    return all;
}

Status DatapathImpl::probe_load(ftctl_hook hook)
{
    auto programs = load_instance(maps_, hook, {FTCTL_SLOT_SCRATCH, 0, true});
    if (!programs)
        return tl::unexpected(programs.error());
    return {};
}

// The programs at tracepoints are one set for all XDP devices: there while there is at least one.
void DatapathImpl::count_failed_transmissions()
{
    bool wanted = false;
    for (const auto &[ifindex, record] : records_)
        wanted = wanted || record.hook == FTCTL_HOOK_XDP;
    if (!wanted) {
        tracepoints_.clear();
        for (const std::string &name : pins_.link_names()) {
            if (name.starts_with(kTracepointPin))
                pins_.unpin_link(name);
        }
        return;
    }
    if (!tracepoints_.empty())
        return;
    // Counting is not worth refusing the device; `doctor` tells why it does not work.
    auto programs = load_tracepoints(maps_);
    if (!programs) {
        spdlog::debug("tx_failed is not counted: {}: {}", programs.error().what, programs.error().why);
        return;
    }
    for (const Tracepoint &tracepoint : *programs) {
        Fd link(bpf_raw_tracepoint_open(nullptr, tracepoint.program.get()));
        if (!link) {
            spdlog::debug("tx_failed is not exact: attach {}: {}", tracepoint.name, std::strerror(errno));
            continue;
        }
        const std::string pin = std::string(kTracepointPin) + tracepoint.name;
        if (auto pinned = pins_.pin_link(pin, link.get()); !pinned)
            spdlog::warn("{}: {}", pinned.error().what, pinned.error().why);
        tracepoints_.push_back(std::move(link));
    }
}

} // namespace ftctl::bpf
