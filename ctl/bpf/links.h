// SPDX-License-Identifier: GPL-2.0-only
// One program at one hook of one device: XDP link, tcx link or clsact filter.
#pragma once

#include <cstdint>
#include <string>

#include "bpf/pins.h"
#include "util/fd.h"
#include "util/result.h"

namespace ftctl::bpf {

/// An attached program. `fd` is the link, or the program for clsact kinds. An unpinned link goes with
/// its last descriptor; a filter only by detach().
struct Hooked {
    PinKind kind = PinKind::xdp;
    std::uint32_t ifindex = 0;
    Fd fd;

    explicit operator bool() const { return static_cast<bool>(fd); }
    [[nodiscard]] bool is_clsact() const
    {
        return kind == PinKind::clsact_ingress || kind == PinKind::clsact_egress;
    }
    [[nodiscard]] LinkPin pin() const { return {ifindex, kind}; }
};

/// What a device is called in messages, and is.
struct Device {
    std::uint32_t ifindex = 0;
    std::string name;
};

/// Native XDP. EBUSY names the program that is there; otherwise the error has the driver's own text.
Result<Hooked> attach_xdp(const Device &device, int prog_fd);
/// A tcx link, last in line.
Result<Hooked> attach_tcx(const Device &device, bool egress, int prog_fd);
/// Our clsact filter; the qdisc must be there.
Result<Hooked> attach_clsact(const Device &device, bool egress, int prog_fd);
/// Puts another program in place, without a gap.
Status replace_program(Hooked &hooked, const Device &device, int prog_fd);
/// Detaches now, whoever else holds the link. Fine when the device is gone.
Status detach_hooked(Hooked &hooked);

/// Re-opens a pin. The error's err is ENOENT when it is not there.
Result<Hooked> open_pinned(const PinDir &pins, const LinkPin &pin);
/// The attached program's id; 0: not attached any more (the device is gone).
std::uint32_t attached_program(const Hooked &hooked);

/// Detaches what a pin under links/ holds, whatever it is, and unlinks it. Best effort.
void remove_link_pin(const PinDir &pins, const std::string &name);

/// Does this kernel have tcx? Asks about the loopback device, once.
bool have_tcx();
/// For tests of the clsact way on kernels that have tcx.
void forget_tcx(bool forgotten);

} // namespace ftctl::bpf
