// SPDX-License-Identifier: GPL-2.0-only
#include "bpf/programs.h"

#include <array>
#include <memory>

#include <fcntl.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "bpf/kernel_log.h"
#include "bpf/objects.h"

namespace ftctl::bpf {
namespace {

struct Destroy {
    template <typename Skeleton>
    void operator()(Skeleton *skeleton) const
    {
        Skeleton::destroy(skeleton);
    }
};
template <typename Skeleton>
using Owned = std::unique_ptr<Skeleton, Destroy>;

tl::unexpected<Error> load_failed(const char *what, int err, const LogCapture &log)
{
    auto error = fail_errno(fmt::format("load {}", what), err);
    const std::string why = log.load_error();
    if (!why.empty() && err != EPERM)
        error.value().why = fmt::format("{} ({})", why, std::strerror(err));
    // Without CAP_PERFMON the verifier refuses pointer arithmetic, "prohibited for !root".
    if (err == EPERM || why.find("!root") != std::string::npos)
        error.value().hint = kPrivilegeHint;
    if (error.value().hint.empty())
        error.value().hint =
            "`ftctl doctor` tells what this kernel lacks; the whole log is printed with --debug";
    return error;
}

// The skeleton goes after loading; the duplicate keeps program and maps.
Result<Fd> program_fd(const bpf_program *program)
{
    Fd fd(fcntl(bpf_program__fd(program), F_DUPFD_CLOEXEC, 3));
    if (!fd)
        return fail_errno("load the datapath: duplicate a descriptor", errno);
    return fd;
}

template <typename Skeleton>
void set_params(Skeleton &skeleton, const Maps &maps, const InstanceParams &params)
{
    skeleton.rodata->cfg_homes4 = flow_table_homes(maps.flow4_entries());
    skeleton.rodata->cfg_homes4t = flow_table_homes(maps.flow4t_entries());
    skeleton.rodata->cfg_slot = params.slot;
    skeleton.rodata->cfg_ifindex = params.ifindex;
    skeleton.rodata->cfg_dry = params.dry ? 1 : 0;
}

void select_programs(bpf_object *object, bpf_prog_type type)
{
    bpf_program *program = nullptr;
    bpf_object__for_each_program(program, object)
    {
        bpf_program__set_autoload(program, bpf_program__type(program) == type);
    }
}

Result<Owned<ftctl_xdp>> open_xdp(const Maps &maps, const InstanceParams &params)
{
    Owned<ftctl_xdp> skeleton(open_object<ftctl_xdp>());
    if (!skeleton)
        return fail_errno("open the XDP object", errno);
    set_params(*skeleton, maps, params);
    if (auto reused = maps.reuse(skeleton->obj, params.dry); !reused)
        return tl::unexpected(reused.error());
    return skeleton;
}

Result<Fd> load_xdp_ingress(const Maps &maps, const InstanceParams &params)
{
    const LogCapture log;
    auto skeleton = open_xdp(maps, params);
    if (!skeleton)
        return tl::unexpected(skeleton.error());
    select_programs((*skeleton)->obj, BPF_PROG_TYPE_XDP);
    if (const int err = ftctl_xdp__load(skeleton->get()); err != 0)
        return load_failed("the XDP program", -err, log);
    return program_fd((*skeleton)->progs.xdp_ingress);
}

Result<Instance> load_tc(const Maps &maps, const InstanceParams &params, bool with_ingress)
{
    const LogCapture log;
    const Owned<ftctl_tc> skeleton(open_object<ftctl_tc>());
    if (!skeleton)
        return fail_errno("open the TC object", errno);
    set_params(*skeleton, maps, params);
    if (auto reused = maps.reuse(skeleton->obj, params.dry); !reused)
        return tl::unexpected(reused.error());
    bpf_program__set_autoload(skeleton->progs.tc_ingress, with_ingress);
    if (const int err = ftctl_tc__load(skeleton.get()); err != 0)
        return load_failed("the TC programs", -err, log);
    Instance instance;
    if (with_ingress) {
        auto ingress = program_fd(skeleton->progs.tc_ingress);
        if (!ingress)
            return tl::unexpected(ingress.error());
        instance.ingress = std::move(*ingress);
    }
    auto egress = program_fd(skeleton->progs.tc_egress);
    if (!egress)
        return tl::unexpected(egress.error());
    instance.egress = std::move(*egress);
    return instance;
}

} // namespace

Result<Instance> load_instance(const Maps &maps, ftctl_hook hook, const InstanceParams &params)
{
    if (hook == FTCTL_HOOK_TC)
        return load_tc(maps, params, true);
    if (hook != FTCTL_HOOK_XDP)
        return fail("load the datapath", "no hook given", {}, Code::usage);
    auto ingress = load_xdp_ingress(maps, params);
    if (!ingress)
        return tl::unexpected(ingress.error());
    auto instance = load_tc(maps, params, false);
    if (!instance)
        return instance;
    instance->ingress = std::move(*ingress);
    return instance;
}

Result<EditPrograms> load_edit(const Maps &maps)
{
    const LogCapture log;
    const Owned<ftctl_edit> skeleton(ftctl_edit__open());
    if (!skeleton)
        return fail_errno("open the object of flow_edit", errno);
    set_params(*skeleton, maps, {});
    if (auto reused = maps.reuse(skeleton->obj, false); !reused)
        return tl::unexpected(reused.error());
    if (const int err = ftctl_edit__load(skeleton.get()); err != 0)
        return load_failed("the flow_edit program", -err, log);
    auto flow_edit = program_fd(skeleton->progs.flow_edit);
    auto clock_set = program_fd(skeleton->progs.clock_set);
    if (!flow_edit || !clock_set)
        return tl::unexpected(flow_edit ? clock_set.error() : flow_edit.error());
    return EditPrograms{std::move(*flow_edit), std::move(*clock_set)};
}

int run_clock_set(int fd)
{
    constexpr std::array<std::uint8_t, 64> kAnyPacket{};
    bpf_test_run_opts opts{};
    opts.sz = sizeof(opts);
    opts.data_in = kAnyPacket.data();
    opts.data_size_in = kAnyPacket.size();
    return bpf_prog_test_run_opts(fd, &opts);
}

Result<std::vector<Tracepoint>> load_tracepoints(const Maps &maps)
{
    const LogCapture log;
    auto skeleton = open_xdp(maps, {});
    if (!skeleton)
        return tl::unexpected(skeleton.error());
    select_programs((*skeleton)->obj, BPF_PROG_TYPE_TRACING);
    if (const int err = ftctl_xdp__load(skeleton->get()); err != 0)
        return load_failed("the programs at XDP tracepoints", -err, log);
    std::vector<Tracepoint> tracepoints;
    bpf_program *program = nullptr;
    bpf_object__for_each_program(program, (*skeleton)->obj)
    {
        if (bpf_program__type(program) != BPF_PROG_TYPE_TRACING)
            continue;
        auto fd = program_fd(program);
        if (!fd)
            return tl::unexpected(fd.error());
        tracepoints.push_back({bpf_program__name(program), std::move(*fd)});
    }
    return tracepoints;
}

} // namespace ftctl::bpf
