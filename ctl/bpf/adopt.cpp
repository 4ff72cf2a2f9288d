// SPDX-License-Identifier: GPL-2.0-only
// What an earlier process left: found by its pins and slots, and put in order.
#include "bpf/datapath_impl.h"

#include <set>

#include <bpf/bpf.h>
#include <spdlog/spdlog.h>

#include "bpf/clsact.h"

namespace ftctl::bpf {
namespace {

// Pins of one device, whichever of the kinds are there.
Hooked first_pinned(const PinDir &pins, std::uint32_t ifindex, std::initializer_list<PinKind> kinds)
{
    for (const PinKind kind : kinds) {
        if (auto hooked = open_pinned(pins, {ifindex, kind}))
            return std::move(*hooked);
    }
    return {};
}

bool complete(const Record &record)
{
    return record.hook != FTCTL_HOOK_NONE && attached_program(record.ingress) != 0 &&
           attached_program(record.egress) != 0;
}

} // namespace

Record DatapathImpl::read_record(std::uint32_t slot_index) const
{
    const ftctl_slot &slot = maps_.slots()[slot_index];
    Record record;
    record.slot = slot_index;
    record.ifindex = slot.ifindex;
    if (slot.hook == FTCTL_HOOK_XDP) {
        record.hook = FTCTL_HOOK_XDP;
        record.ingress = first_pinned(pins_, slot.ifindex, {PinKind::xdp});
    } else if (slot.hook == FTCTL_HOOK_TC) {
        record.hook = FTCTL_HOOK_TC;
        record.ingress = first_pinned(pins_, slot.ifindex, {PinKind::ingress, PinKind::clsact_ingress});
    }
    record.egress = first_pinned(pins_, slot.ifindex, {PinKind::egress, PinKind::clsact_egress});
    record.made_qdisc = static_cast<bool>(open_pinned(pins_, {slot.ifindex, PinKind::clsact_qdisc}));
    return record;
}

void DatapathImpl::find_attachments(bool repair)
{
    const auto drop = [this](Record &record) {
        // A filter is attached before it is pinned. Killed in between, only its handle tells whose it is.
        if (record.made_qdisc || record.ingress.is_clsact() || record.egress.is_clsact()) {
            for (const bool egress : {false, true})
                static_cast<void>(clsact_detach(record.ifindex, egress));
        }
        if (auto gone = abandon(record); !gone)
            spdlog::warn("{}: {}", gone.error().what, gone.error().why);
    };
    for (std::uint32_t index = 1; index < FTCTL_MAX_SLOTS; ++index) {
        const std::uint32_t ifindex = maps_.slots()[index].ifindex;
        if (ifindex == 0)
            continue;
        Record record = read_record(index);
        if (!repair) {
            if (record.ingress || record.egress)
                records_.insert_or_assign(ifindex, std::move(record));
            continue;
        }
        const auto twin = records_.find(ifindex);
        if (twin == records_.end() && ifindex <= FTCTL_MAX_IFINDEX && complete(record)) {
            records_.insert_or_assign(ifindex, std::move(record));
            continue;
        }
        // Killed in the middle of attach, detach or a change of hooks (two slots), or the device is gone.
        spdlog::info("device {} was attached in part only; what is left of it is removed", ifindex);
        drop(record);
        if (twin != records_.end()) {
            drop(twin->second);
            records_.erase(twin);
        }
    }
    if (!repair) {
        for (const std::string &name : pins_.link_names()) {
            if (name.starts_with(kTracepointPin))
                tracepoints_.emplace_back(bpf_obj_get(pins_.link(name).c_str()));
        }
        return;
    }
    std::set<std::string> known;
    for (const auto &[ifindex, record] : records_) {
        known.insert(record.ingress.pin().name());
        known.insert(record.egress.pin().name());
        if (record.made_qdisc)
            known.insert(LinkPin{ifindex, PinKind::clsact_qdisc}.name());
    }
    for (const std::string &name : pins_.link_names()) {
        if (!known.contains(name))
            remove_link_pin(pins_, name);
    }
    // Links of tracepoints are among those: they cannot be updated, so they are made anew.
    count_failed_transmissions();
}

} // namespace ftctl::bpf
