// SPDX-License-Identifier: GPL-2.0-only
#include "bpf/links.h"

#include <array>
#include <cstddef>

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "bpf/clsact.h"
#include "bpf/kernel_log.h"
#include "bpf/programs.h"

namespace ftctl::bpf {
namespace {

// Linux 6.6; the headers of the oldest supported distribution do not have them. Variables rather than
// constants of the enum's type, whose range they exceed there.
constexpr int kTcxIngress = 46;
constexpr int kTcxEgress = 47;

bpf_attach_type tcx_type(bool egress)
{
    return static_cast<bpf_attach_type>(egress ? kTcxEgress : kTcxIngress);
}

bool tcx_forgotten = false;

std::string describe_program(std::uint32_t id)
{
    bpf_prog_info info{};
    std::uint32_t len = sizeof(info);
    const Fd fd(bpf_prog_get_fd_by_id(id)); // CAP_SYS_ADMIN; without it the id must do
    if (!fd || bpf_obj_get_info_by_fd(fd.get(), &info, &len) != 0)
        return fmt::format("id {}", id);
    return fmt::format("id {}, name {}", id, static_cast<const char *>(info.name));
}

// Empty when no XDP program is attached in any mode.
std::string foreign_xdp(std::uint32_t ifindex)
{
    const LogCapture quiet;
    bpf_xdp_query_opts query{};
    query.sz = sizeof(query);
    if (bpf_xdp_query(static_cast<int>(ifindex), 0, &query) != 0 || query.attach_mode == XDP_ATTACHED_NONE)
        return {};
    const std::array<std::pair<std::uint32_t, const char *>, 3> modes = {
        {{query.drv_prog_id, "native"}, {query.skb_prog_id, "generic"}, {query.hw_prog_id, "hardware"}}};
    for (const auto &[id, mode] : modes) {
        if (id != 0)
            return fmt::format("another XDP program is attached ({}, {})", describe_program(id), mode);
    }
    return fmt::format("another XDP program is attached ({})", describe_program(query.prog_id));
}

tl::unexpected<Error> xdp_busy(const std::string &what, std::string why, const std::string &device)
{
    auto error = fail(what, std::move(why),
                      fmt::format("it is never replaced: remove it (ip link set dev {0} xdp off), or attach "
                                  "with --mode tc",
                                  device));
    error.value().err = EBUSY;
    return error;
}

// bpf(BPF_LINK_CREATE) has no room for the driver's words; the same request by netlink has. Should the
// request work now, it is undone at once.
std::string xdp_extack(std::uint32_t ifindex, int prog_fd)
{
    const LogCapture log;
    const auto index = static_cast<int>(ifindex);
    constexpr std::uint32_t kFlags = XDP_FLAGS_DRV_MODE | XDP_FLAGS_UPDATE_IF_NOEXIST;
    if (bpf_xdp_attach(index, prog_fd, kFlags, nullptr) == 0) {
        bpf_xdp_attach_opts opts{};
        opts.sz = sizeof(opts);
        opts.old_prog_fd = prog_fd;
        bpf_xdp_detach(index, XDP_FLAGS_DRV_MODE | XDP_FLAGS_REPLACE, &opts);
        return {};
    }
    return log.extack();
}

bool exists(std::uint32_t ifindex)
{
    std::array<char, IF_NAMESIZE> name{};
    return if_indextoname(ifindex, name.data()) != nullptr;
}

const char *xdp_hint(int err)
{
    switch (err) {
    case ERANGE:
        return "lower the MTU (on veth: the peer's, to 3500), or attach with --mode tc";
    case EOPNOTSUPP:
        return "the driver has no native XDP, or not in this configuration; attach with --mode tc";
    case EPERM:
        return kPrivilegeHint;
    case ENODEV:
        return "no such device in this network namespace";
    default:
        return "attach with --mode tc";
    }
}

struct LinkInfo {
    std::uint32_t prog_id = 0;
    std::uint32_t ifindex = 0;
};

LinkInfo link_info(int fd)
{
    bpf_link_info info{};
    std::uint32_t len = sizeof(info);
    if (bpf_obj_get_info_by_fd(fd, &info, &len) != 0)
        return {};
    // tcx's part of the union (since 6.6) begins with the ifindex as well.
    return {info.prog_id, info.xdp.ifindex};
}

std::uint32_t program_id(int fd)
{
    bpf_prog_info info{};
    std::uint32_t len = sizeof(info);
    return bpf_obj_get_info_by_fd(fd, &info, &len) == 0 ? info.id : 0;
}

Result<Fd> duplicate(int fd)
{
    Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!copy)
        return fail_errno("duplicate a descriptor", errno);
    return copy;
}

} // namespace

Result<Hooked> attach_xdp(const Device &device, int prog_fd)
{
    const std::string what = fmt::format("attach {}", device.name);
    if (std::string why = foreign_xdp(device.ifindex); !why.empty())
        return xdp_busy(what, std::move(why), device.name);
    bpf_link_create_opts opts{};
    opts.sz = sizeof(opts);
    opts.flags = XDP_FLAGS_DRV_MODE;
    const int fd = bpf_link_create(prog_fd, static_cast<int>(device.ifindex), BPF_XDP, &opts);
    if (fd >= 0)
        return Hooked{PinKind::xdp, device.ifindex, Fd(fd)};
    // The kernel says EINVAL of a device that is not there (bpf_xdp_link_attach).
    const int err = errno == EINVAL && !exists(device.ifindex) ? ENODEV : errno;
    if (err == EBUSY) {
        if (std::string why = foreign_xdp(device.ifindex); !why.empty())
            return xdp_busy(what, std::move(why), device.name);
    }
    auto error = fail_errno(what, err, xdp_hint(err));
    if (const std::string text = xdp_extack(device.ifindex, prog_fd); !text.empty())
        error.value().why = fmt::format("{} ({})", text, std::strerror(err));
    return error;
}

Result<Hooked> attach_tcx(const Device &device, bool egress, int prog_fd)
{
    const int fd = bpf_link_create(prog_fd, static_cast<int>(device.ifindex), tcx_type(egress), nullptr);
    if (fd < 0) {
        const int err = errno;
        return fail_errno(fmt::format("attach {} at TC {}", device.name, egress ? "egress" : "ingress"), err,
                          err == EPERM    ? kPrivilegeHint
                          : err == ENODEV ? "no such device in this network namespace"
                          : err == ERANGE ? "too many programs at this hook (bpftool net lists them)"
                                          : "");
    }
    return Hooked{egress ? PinKind::egress : PinKind::ingress, device.ifindex, Fd(fd)};
}

Result<Hooked> attach_clsact(const Device &device, bool egress, int prog_fd)
{
    // The descriptor first: past the attach nothing may fail.
    auto copy = duplicate(prog_fd);
    if (!copy)
        return tl::unexpected(copy.error());
    if (auto attached = clsact_attach(device.ifindex, device.name, egress, prog_fd); !attached)
        return tl::unexpected(attached.error());
    return Hooked{egress ? PinKind::clsact_egress : PinKind::clsact_ingress, device.ifindex,
                  std::move(*copy)};
}

Status replace_program(Hooked &hooked, const Device &device, int prog_fd)
{
    if (hooked.is_clsact()) {
        auto fresh = attach_clsact(device, hooked.kind == PinKind::clsact_egress, prog_fd);
        if (!fresh)
            return tl::unexpected(fresh.error());
        hooked.fd = std::move(fresh->fd);
        return {};
    }
    if (bpf_link_update(hooked.fd.get(), prog_fd, nullptr) != 0)
        return fail_errno(fmt::format("replace the program at {}", device.name), errno);
    return {};
}

Status detach_hooked(Hooked &hooked)
{
    if (!hooked)
        return {};
    if (hooked.is_clsact()) {
        auto detached = clsact_detach(hooked.ifindex, hooked.kind == PinKind::clsact_egress);
        if (detached)
            hooked.fd.reset();
        return detached;
    }
    // Not by closing: a process that holds another descriptor would keep the program attached.
    // ENOLINK, EINVAL: the device took the link with it.
    const int err = bpf_link_detach(hooked.fd.get()) == 0 ? 0 : errno;
    hooked.fd.reset();
    if (err == EPERM)
        return fail_errno(fmt::format("detach device {}", hooked.ifindex), err, kPrivilegeHint);
    return {};
}

Result<Hooked> open_pinned(const PinDir &pins, const LinkPin &pin)
{
    const std::string path = pins.link(pin.name());
    Fd fd(bpf_obj_get(path.c_str()));
    if (!fd)
        return fail_errno(fmt::format("open {}", path), errno);
    return Hooked{pin.kind, pin.ifindex, std::move(fd)};
}

std::uint32_t attached_program(const Hooked &hooked)
{
    if (!hooked)
        return 0;
    if (hooked.is_clsact()) {
        const std::uint32_t ours = program_id(hooked.fd.get());
        const bool there =
            ours != 0 && clsact_program(hooked.ifindex, hooked.kind == PinKind::clsact_egress) == ours;
        return there ? ours : 0;
    }
    const LinkInfo info = link_info(hooked.fd.get());
    return info.ifindex == hooked.ifindex ? info.prog_id : 0;
}

void remove_link_pin(const PinDir &pins, const std::string &name)
{
    const auto pin = LinkPin::parse(name);
    if (pin && pin->kind == PinKind::clsact_qdisc) {
        if (auto gone = clsact_destroy_if_empty(pin->ifindex); !gone)
            spdlog::warn("{}: {}", gone.error().what, gone.error().why);
    } else if (pin) {
        auto hooked = open_pinned(pins, *pin);
        // A filter that has another program by now belongs to another instance or namespace.
        if (hooked && (!hooked->is_clsact() || attached_program(*hooked) != 0))
            detach_hooked(*hooked);
    }
    pins.unpin_link(name);
}

bool have_tcx()
{
    if (tcx_forgotten)
        return false;
    // Every namespace has its loopback device at 1. EINVAL: the kernel does not know the attach type.
    static const bool found = [] {
        std::uint32_t count = 0;
        return bpf_prog_query(1, tcx_type(false), 0, nullptr, nullptr, &count) == 0;
    }();
    return found;
}

void forget_tcx(bool forgotten)
{
    tcx_forgotten = forgotten;
}

} // namespace ftctl::bpf
