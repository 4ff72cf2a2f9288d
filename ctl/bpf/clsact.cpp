// SPDX-License-Identifier: GPL-2.0-only
#include "bpf/clsact.h"

#include <array>
#include <cerrno>
#include <memory>
#include <string>

#include <libmnl/libmnl.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>

#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "bpf/kernel_log.h"

namespace ftctl::bpf {
namespace {

// The qdisc as a whole.
constexpr auto kBothHooks = static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS);

bpf_tc_hook hook_of(std::uint32_t ifindex, bpf_tc_attach_point point)
{
    bpf_tc_hook hook{};
    hook.sz = sizeof(hook);
    hook.ifindex = static_cast<int>(ifindex);
    hook.attach_point = point;
    return hook;
}

bpf_tc_hook hook_of(std::uint32_t ifindex, bool egress)
{
    return hook_of(ifindex, egress ? BPF_TC_EGRESS : BPF_TC_INGRESS);
}

bpf_tc_opts our_filter()
{
    bpf_tc_opts opts{};
    opts.sz = sizeof(opts);
    opts.handle = kFilterHandle;
    opts.priority = kFilterPriority;
    return opts;
}

// The qdisc or the device is not there.
bool is_gone(int err)
{
    return err == ENOENT || err == ENODEV || err == EINVAL;
}

tl::unexpected<Error> tc_failed(const std::string &what, int err, const LogCapture &log)
{
    auto error = fail_errno(what, err);
    if (const std::string text = log.extack(); !text.empty())
        error.value().why = fmt::format("{} ({})", text, std::strerror(err));
    return error;
}

struct Found {
    std::uint32_t ifindex = 0;
    bool ours = false;
    bool foreign = false;
    std::string qdisc; ///< kind of what stands at the ingress hook
};

int on_filter(const nlmsghdr *nlh, void *data)
{
    if (nlh->nlmsg_type != RTM_NEWTFILTER || mnl_nlmsg_get_payload_len(nlh) < sizeof(tcmsg))
        return MNL_CB_OK;
    const auto *tc = static_cast<const tcmsg *>(mnl_nlmsg_get_payload(nlh));
    const std::uint32_t priority = tc->tcm_info >> 16;
    auto &found = *static_cast<Found *>(data);
    // Handle 0 announces a priority; its filters follow.
    if (priority == kFilterPriority && (tc->tcm_handle == 0 || tc->tcm_handle == kFilterHandle))
        found.ours = found.ours || tc->tcm_handle == kFilterHandle;
    else
        found.foreign = true;
    return MNL_CB_OK;
}

int on_qdisc_attr(const nlattr *attr, void *data)
{
    if (mnl_attr_get_type(attr) == TCA_KIND && mnl_attr_validate(attr, MNL_TYPE_NUL_STRING) == 0)
        static_cast<Found *>(data)->qdisc = mnl_attr_get_str(attr);
    return MNL_CB_OK;
}

int on_qdisc(const nlmsghdr *nlh, void *data)
{
    if (nlh->nlmsg_type != RTM_NEWQDISC || mnl_nlmsg_get_payload_len(nlh) < sizeof(tcmsg))
        return MNL_CB_OK;
    const auto *tc = static_cast<const tcmsg *>(mnl_nlmsg_get_payload(nlh));
    auto &found = *static_cast<Found *>(data);
    if (static_cast<std::uint32_t>(tc->tcm_ifindex) != found.ifindex || tc->tcm_parent != TC_H_INGRESS)
        return MNL_CB_OK;
    mnl_attr_parse(nlh, sizeof(tcmsg), on_qdisc_attr, &found);
    return MNL_CB_OK;
}

Result<Found> dump(std::uint16_t type, std::uint32_t ifindex, std::uint32_t parent)
{
    const std::string what = fmt::format("list qdiscs and filters of device {}", ifindex);
    const std::unique_ptr<mnl_socket, int (*)(mnl_socket *)> sock(
        mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC), mnl_socket_close);
    if (!sock || mnl_socket_bind(sock.get(), 0, MNL_SOCKET_AUTOPID) != 0)
        return fail_errno(what, errno);
    // Dumps fill buffers of up to 32 KiB (netlink_dump).
    alignas(nlmsghdr) std::array<char, 32768> buffer{};
    nlmsghdr *nlh = mnl_nlmsg_put_header(buffer.data());
    nlh->nlmsg_type = type;
    nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
    nlh->nlmsg_seq = 1;
    auto *tc = static_cast<tcmsg *>(mnl_nlmsg_put_extra_header(nlh, sizeof(tcmsg)));
    tc->tcm_family = AF_UNSPEC;
    tc->tcm_ifindex = static_cast<int>(ifindex);
    tc->tcm_parent = parent;
    if (mnl_socket_sendto(sock.get(), nlh, nlh->nlmsg_len) < 0)
        return fail_errno(what, errno);
    Found found;
    found.ifindex = ifindex;
    const unsigned port = mnl_socket_get_portid(sock.get());
    mnl_cb_t handler = type == RTM_GETQDISC ? on_qdisc : on_filter;
    for (;;) {
        const ssize_t got = mnl_socket_recvfrom(sock.get(), buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR)
            continue;
        const int more =
            got < 0 ? MNL_CB_ERROR
                    : mnl_cb_run(buffer.data(), static_cast<std::size_t>(got), 1, port, handler, &found);
        if (more == MNL_CB_ERROR) {
            if (is_gone(errno))
                return Found{};
            return fail_errno(what, errno);
        }
        if (more == MNL_CB_STOP)
            return found;
    }
}

} // namespace

Result<ClsactState> clsact_state(std::uint32_t ifindex)
{
    auto ingress = dump(RTM_GETTFILTER, ifindex, TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS));
    if (!ingress)
        return tl::unexpected(ingress.error());
    auto egress = dump(RTM_GETTFILTER, ifindex, TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS));
    if (!egress)
        return tl::unexpected(egress.error());
    return ClsactState{ingress->ours || egress->ours, ingress->foreign, egress->foreign};
}

Result<bool> clsact_create(std::uint32_t ifindex, const std::string &device, bool for_egress)
{
    const std::string what = fmt::format("add a clsact qdisc to {}", device);
    const LogCapture log;
    bpf_tc_hook hook = hook_of(ifindex, kBothHooks);
    const int err = bpf_tc_hook_create(&hook);
    if (err == 0)
        return true;
    if (err != -EEXIST)
        return tc_failed(what, -err, log);
    const auto there = dump(RTM_GETQDISC, ifindex, 0);
    if (!there)
        return tl::unexpected(there.error());
    // An ingress qdisc takes filters for egress without complaint and runs them at ingress
    // (ingress_tcf_block has one block for every parent).
    if (for_egress && there->qdisc != "clsact")
        return fail(
            what, fmt::format("there is a qdisc of kind {}, which has no egress hook", there->qdisc),
            fmt::format("replace it: tc qdisc del dev {0} ingress; tc qdisc add dev {0} clsact", device));
    return false;
}

Status clsact_destroy_if_empty(std::uint32_t ifindex)
{
    const auto state = clsact_state(ifindex);
    if (!state)
        return tl::unexpected(state.error());
    if (state->ours || state->foreign_ingress || state->foreign_egress)
        return {};
    const LogCapture log;
    bpf_tc_hook hook = hook_of(ifindex, kBothHooks);
    const int err = bpf_tc_hook_destroy(&hook);
    if (err != 0 && !is_gone(-err))
        return tc_failed(fmt::format("remove the clsact qdisc of device {}", ifindex), -err, log);
    return {};
}

Status clsact_attach(std::uint32_t ifindex, const std::string &device, bool egress, int prog_fd)
{
    const LogCapture log;
    bpf_tc_hook hook = hook_of(ifindex, egress);
    bpf_tc_opts opts = our_filter();
    opts.prog_fd = prog_fd;
    opts.flags = BPF_TC_F_REPLACE;
    const int err = bpf_tc_attach(&hook, &opts);
    if (err == 0)
        return {};
    return tc_failed(fmt::format("add a TC {} filter to {}", egress ? "egress" : "ingress", device), -err,
                     log);
}

Status clsact_detach(std::uint32_t ifindex, bool egress)
{
    const LogCapture log;
    bpf_tc_hook hook = hook_of(ifindex, egress);
    const bpf_tc_opts opts = our_filter();
    const int err = bpf_tc_detach(&hook, &opts);
    if (err != 0 && !is_gone(-err))
        return tc_failed(fmt::format("remove the TC filter of device {}", ifindex), -err, log);
    return {};
}

std::uint32_t clsact_program(std::uint32_t ifindex, bool egress)
{
    bpf_tc_hook hook = hook_of(ifindex, egress);
    bpf_tc_opts opts = our_filter();
    return bpf_tc_query(&hook, &opts) == 0 ? opts.prog_id : 0;
}

} // namespace ftctl::bpf
