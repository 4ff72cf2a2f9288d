// SPDX-License-Identifier: GPL-2.0-only
// The reverse path filter of attached devices.
#include <algorithm>

#include <net/if.h>

#include "daemon/devices.h"
#include "daemon/rpf_mode.h"

namespace ftctl {

void Devices::apply_rpf(const Device &device)
{
    std::uint32_t flags = parse_rpf(device.options.rpf).value_or(0);
    // As a port of a bridge or a VRF it is not the device that packets are received by.
    const Link *link = kernel_.link(device.ifindex);
    if (flags != 0 && link && link->master != 0)
        flags |= FTCTL_RPF_UNSURE;
    datapath_.slot(device.slot).rpf = flags;
    count_rpf();
}

Status Devices::set_rpf(const std::string &name, const std::string &mode)
{
    const auto it = devices_.find(name);
    if (it == devices_.end())
        return fail("rpf " + name, "not attached", "ftctl attach " + name + " --rpf " + mode,
                    Code::not_running);
    it->second.options.rpf = mode;
    if (it->second.ifindex != 0)
        apply_rpf(it->second);
    return {};
}

bool Devices::wants_rpf() const
{
    return std::any_of(devices_.begin(), devices_.end(),
                       [](const auto &item) { return parse_rpf(item.second.options.rpf).value_or(0) != 0; });
}

/// Without any, no packet is asked whether its device has one.
void Devices::count_rpf()
{
    std::uint32_t filters = 0;
    for (std::uint32_t slot = 1; slot < FTCTL_MAX_SLOTS; slot++)
        filters += datapath_.slot(slot).rpf != 0 ? 1 : 0;
    datapath_.config().rpf = filters;
}

} // namespace ftctl
