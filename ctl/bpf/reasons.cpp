// SPDX-License-Identifier: GPL-2.0-only
// Names and texts of include/ftctl/reasons.def.
#include "bpf/datapath.h"

#include <algorithm>
#include <array>

namespace ftctl {
namespace {

struct Reason {
    unsigned id;
    const char *name;
    const char *help;
};

constexpr std::array kReasons = {
#define FTCTL_REASON(id, sym, name, help) Reason{id, name, help},
#include "ftctl/reasons.def"
#undef FTCTL_REASON
};

// A packet reason indexes ftctl_stats.reasons; ids are in order so that listings are, too.
static_assert(std::ranges::is_sorted(kReasons, {}, &Reason::id));
static_assert(std::ranges::adjacent_find(kReasons, {}, &Reason::id) == kReasons.end());
static_assert(std::ranges::none_of(kReasons, [](const Reason &r) {
    return r.id == 0 || (r.id >= FTCTL_PACKET_REASONS && r.id < 64) || r.id > 255;
}));

const Reason *find_reason(unsigned id)
{
    const auto *it = std::ranges::lower_bound(kReasons, id, {}, &Reason::id);
    return it != kReasons.end() && it->id == id ? &*it : nullptr;
}

} // namespace

const char *reason_name(unsigned reason)
{
    const Reason *found = find_reason(reason);
    return found == nullptr ? "?" : found->name;
}

const char *reason_help(unsigned reason)
{
    const Reason *found = find_reason(reason);
    return found == nullptr ? "" : found->help;
}

const char *detail_name(unsigned detail)
{
    switch (detail) {
#define FTCTL_DETAIL(id, sym, name)                                                                          \
    case id:                                                                                                 \
        return name;
#include "ftctl/details.def"
#undef FTCTL_DETAIL
    default:
        return "";
    }
}

std::string reason_text(unsigned reason, const std::string &detail)
{
    const std::string name = reason_name(reason);
    return detail.empty() ? name : name + ":" + detail;
}

std::vector<unsigned> packet_reasons()
{
    std::vector<unsigned> ids;
    for (const Reason &reason : kReasons) {
        if (reason.id < FTCTL_PACKET_REASONS)
            ids.push_back(reason.id);
    }
    return ids;
}

} // namespace ftctl
