// SPDX-License-Identifier: GPL-2.0-only
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <unistd.h>

#include <linux/bpf.h>

#include "bpf/flow_bloom.h"
#include "bpf_run_impl.h"
#include "ftctl/bloom.h"

namespace ftctl::test {
namespace {

const std::uint32_t kPlacedEntries = bpf::flow_table_entries(kTestFlows);
constexpr std::size_t kBloomBytes = (2U << FTCTL_BLOOM_FIRST) / 8;
constexpr std::size_t kBuffer = 16384;
constexpr std::array kInner = {bpf::MapId::outer_flow4t, bpf::MapId::outer_flow6, bpf::MapId::outer_flowx};

int print_warnings(enum libbpf_print_level level, const char *format, va_list args)
{
    return level == LIBBPF_WARN ? std::vfprintf(stderr, format, args) : 0;
}

} // namespace

Rig::Impl::~Impl()
{
    ring_buffer__free(ring);
    for (ftctl_xdp *skeleton : xdp)
        ftctl_xdp::destroy(skeleton);
    for (ftctl_tc *skeleton : tc)
        ftctl_tc::destroy(skeleton);
    ftctl_xdp::destroy(dry_xdp);
    ftctl_tc::destroy(dry_tc);
    ftctl_edit::destroy(edit);
}

void Rig::Impl::share_maps(bpf_object *object)
{
    bpf_map *map = nullptr;
    bpf_object__for_each_map(map, object)
    {
        const std::string name(bpf::shared_name(map));
        if (bpf_map__is_internal(map) && name == bpf_map__name(map))
            continue; // read-only data
        if (name == "flow_bloom")
            bpf_map__set_max_entries(map, bpf::FlowBloom::map_entries(kTestFlows));
        else if (name == "flow4")
            bpf_map__set_max_entries(map, kPlacedEntries);
        else if (name == "samples")
            bpf_map__set_max_entries(map, kTestFlows);
        const auto found = maps.find(name);
        if (found != maps.end())
            must(bpf_map__reuse_fd(map, found->second), "reuse " + name);
    }
}

void Rig::Impl::keep_maps(bpf_object *object)
{
    bpf_map *map = nullptr;
    bpf_object__for_each_map(map, object)
    {
        const std::string name(bpf::shared_name(map));
        if (!bpf_map__is_internal(map) || name != bpf_map__name(map))
            maps.emplace(name, bpf_map__fd(map));
    }
}

template <typename Skeleton>
Skeleton *Rig::Impl::load(std::uint32_t slot, std::uint32_t ifindex, bool dry)
{
    Skeleton *skeleton = bpf::open_object<Skeleton>();
    if (skeleton == nullptr)
        die("open the skeleton", errno);
    skeleton->rodata->cfg_slot = slot;
    skeleton->rodata->cfg_ifindex = ifindex;
    skeleton->rodata->cfg_dry = dry ? 1 : 0;
    skeleton->rodata->cfg_homes4 = skeleton->rodata->cfg_homes4t = bpf::flow_table_homes(kPlacedEntries);
    share_maps(skeleton->obj);
    must(Skeleton::load(skeleton), "load the programs");
    keep_maps(skeleton->obj);
    return skeleton;
}

Run Rig::Impl::run(bpf_program *program, const Bytes &frame, const void *ctx, std::size_t ctx_size, int *err)
{
    Run out;
    out.bytes.resize(kBuffer);
    LIBBPF_OPTS(bpf_test_run_opts, opts);
    opts.data_in = frame.data();
    opts.data_size_in = static_cast<__u32>(frame.size());
    opts.data_out = out.bytes.data();
    opts.data_size_out = kBuffer;
    opts.ctx_in = ctx;
    opts.ctx_size_in = static_cast<__u32>(ctx_size);
    opts.repeat = 1;
    const int rc = bpf_prog_test_run_opts(bpf_program__fd(program), &opts);
    if (rc < 0 && err == nullptr)
        die(fmt::format("test run of {} with {} bytes", bpf_program__name(program), frame.size()), rc);
    if (err != nullptr)
        *err = rc;
    out.verdict = opts.retval;
    out.bytes.resize(opts.data_size_out);
    return out;
}

std::string cannot_run()
{
    if (geteuid() != 0)
        return "needs root (CAP_BPF, CAP_NET_ADMIN, CAP_SYS_ADMIN)";
    LIBBPF_OPTS(bpf_map_create_opts, opts);
    const int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "ftctl_probe", 4, 4, 1, &opts);
    if (fd < 0)
        return fmt::format("the kernel makes no BPF map: {}", std::strerror(errno));
    close(fd);
    return {};
}

Rig::Rig() : impl_(std::make_unique<Impl>())
{
    libbpf_set_print(print_warnings);
    make_devices();
    for (unsigned i = 0; i < kDevices; ++i) {
        const auto device = static_cast<Device>(i);
        impl_->xdp.at(i) = impl_->load<ftctl_xdp>(i + 1, ifindex(device), false);
        impl_->tc.at(i) = impl_->load<ftctl_tc>(i + 1, ifindex(device), false);
    }
    impl_->dry_xdp = impl_->load<ftctl_xdp>(FTCTL_SLOT_SCRATCH, ifindex(kDevA), true);
    impl_->dry_tc = impl_->load<ftctl_tc>(FTCTL_SLOT_SCRATCH, ifindex(kDevA), true);
    impl_->edit = ftctl_edit::open();
    if (impl_->edit == nullptr)
        die("open the edit skeleton", errno);
    impl_->edit->rodata->cfg_homes4 = impl_->edit->rodata->cfg_homes4t =
        bpf::flow_table_homes(kPlacedEntries);
    impl_->share_maps(impl_->edit->obj);
    must(ftctl_edit::load(impl_->edit), "load flow_edit");

    for (std::size_t i = 0; i < kInner.size(); ++i) {
        const bpf::MapSpec &spec = *bpf::map_spec(kInner.at(i)).inner;
        auto made = bpf::make_map(spec, spec.type == BPF_MAP_TYPE_ARRAY ? kPlacedEntries : kTestFlows);
        if (!made)
            die(spec.name, made.error().err);
        impl_->inner.at(i) = std::move(*made);
        impl_->maps.emplace(spec.name, impl_->inner.at(i).get());
    }
    set_flow_maps(true);

    auto bloom = bpf::Mapping::map(impl_->map("flow_bloom"), kBloomBytes, "flow_bloom");
    if (!bloom)
        die("flow_bloom", bloom.error().err);
    impl_->bloom = std::move(*bloom);
    auto flow4 = bpf::Mapping::map(impl_->map("flow4"), kPlacedEntries * sizeof(ftctl_flow4), "flow4");
    auto flow4t = bpf::Mapping::map(impl_->map("flow4t"), kPlacedEntries * sizeof(ftctl_flow4t), "flow4t");
    if (!flow4 || !flow4t)
        die("flow4", flow4 ? flow4t.error().err : flow4.error().err);
    impl_->placed = {std::move(*flow4), std::move(*flow4t)};
    clear_placed();

    const auto collect = [](void *context, void *data, std::size_t size) {
        ftctl_event event{};
        if (size < sizeof event)
            return -EINVAL;
        std::memcpy(&event, data, sizeof event);
        static_cast<Impl *>(context)->events.push_back(event);
        return 0;
    };
    impl_->ring = ring_buffer__new(impl_->map("events"), collect, impl_.get(), nullptr);
    if (impl_->ring == nullptr)
        die("events", errno);
}

Rig::~Rig() = default;

void Rig::clear_placed()
{
    auto *flow4 = static_cast<ftctl_flow4 *>(impl_->placed[0].data());
    auto *flow4t = static_cast<ftctl_flow4t *>(impl_->placed[1].data());
    std::fill_n(flow4, kPlacedEntries, ftctl_flow4{});
    std::fill_n(flow4t, kPlacedEntries, ftctl_flow4t{});
    impl_->tables = {std::make_unique<bpf::FlowTableOf<ftctl_flow4>>(flow4, kPlacedEntries),
                     std::make_unique<bpf::FlowTableOf<ftctl_flow4t>>(flow4t, kPlacedEntries)};
}

void Rig::set_flow_maps(bool present)
{
    for (std::size_t i = 0; i < kInner.size(); ++i) {
        const int outer = impl_->map(bpf::map_spec(kInner.at(i)).name);
        const std::uint32_t first = 0;
        const int inner = impl_->inner.at(i).get();
        must(present ? bpf_map_update_elem(outer, &first, &inner, BPF_ANY)
                     : bpf_map_delete_elem(outer, &first),
             "the flow maps");
    }
}

Rig &Rig::get()
{
    static Rig rig;
    return rig;
}

namespace {

__sk_buff skb_context(std::uint32_t ifindex, const Bytes &frame, Gso gso)
{
    __sk_buff skb{};
    skb.ifindex = ifindex; // also makes the kernel compare the destination MAC with this device's
    skb.ingress_ifindex = ifindex;
    skb.gso_size = gso.size;
    skb.gso_segs = gso.segs;
    skb.wire_len = static_cast<__u32>(frame.size());
    return skb;
}

} // namespace

std::optional<Run> Rig::ingress(Hook hook, Device device, const Bytes &frame, Gso gso)
{
    int err = 0;
    Run run;
    if (hook == Hook::xdp) {
        run = impl_->run(impl_->xdp.at(device)->progs.xdp_ingress, frame, nullptr, 0, &err);
    } else {
        const __sk_buff skb = skb_context(ifindex(device), frame, gso);
        run = impl_->run(impl_->tc.at(device)->progs.tc_ingress, frame, &skb, sizeof skb, &err);
        run.marked = impl_->marked();
        // A redirected packet would now pass the egress hook, which takes note of it; a test run ends here.
        impl_->fill_cpus("scratch", 0, 0);
    }
    const bool v6 = frame.size() >= 14 && get16(frame, 12) == 0x86dd;
    if (err == -EINVAL && frame.size() < (v6 ? 54U : 34U))
        return std::nullopt;
    if (err < 0)
        die(fmt::format("test run ({}, {} bytes)", hook_name(hook), frame.size()), err);
    return run;
}

std::optional<Run> Rig::ingress_with_metadata(Device device, const Bytes &frame, std::uint32_t metadata)
{
    Bytes both(metadata, 0x77);
    both.insert(both.end(), frame.begin(), frame.end());
    xdp_md context{};
    context.data = metadata;
    context.data_end = static_cast<__u32>(both.size());
    int err = 0;
    Run run = impl_->run(impl_->xdp.at(device)->progs.xdp_ingress, both, &context, sizeof context, &err);
    if (err == -EINVAL && metadata > 32)
        return std::nullopt;
    if (err < 0)
        die(fmt::format("test run with {} bytes of metadata", metadata), err);
    run.bytes.erase(run.bytes.begin(), run.bytes.begin() + metadata);
    return run;
}

Run Rig::egress(Device device, const Bytes &frame, Gso gso)
{
    const __sk_buff skb = skb_context(ifindex(device), frame, gso);
    return impl_->run(impl_->tc.at(device)->progs.tc_egress, frame, &skb, sizeof skb, nullptr);
}

Run Rig::dry(Hook hook, const Bytes &frame)
{
    if (hook == Hook::xdp)
        return impl_->run(impl_->dry_xdp->progs.xdp_ingress, frame, nullptr, 0, nullptr);
    const __sk_buff skb = skb_context(ifindex(kDevA), frame, {});
    return impl_->run(impl_->dry_tc->progs.tc_ingress, frame, &skb, sizeof skb, nullptr);
}

Timing Rig::time(Hook hook, Device device, const Bytes &frame, unsigned runs, int program)
{
    const __sk_buff skb = skb_context(ifindex(device), frame, {});
    LIBBPF_OPTS(bpf_test_run_opts, opts);
    opts.data_in = frame.data();
    opts.data_size_in = static_cast<__u32>(frame.size());
    opts.repeat = static_cast<int>(runs);
    if (hook == Hook::tc) {
        opts.ctx_in = &skb;
        opts.ctx_size_in = sizeof skb;
    }
    if (program < 0)
        program = bpf_program__fd(hook == Hook::xdp ? impl_->xdp.at(device)->progs.xdp_ingress
                                                    : impl_->tc.at(device)->progs.tc_ingress);
    const int rc = bpf_prog_test_run_opts(program, &opts);
    if (rc < 0)
        die("a timed test run", rc);
    return {opts.retval, opts.duration};
}

int Rig::edit(const ftctl_flow_edit &edit)
{
    ftctl_flow_edit context = edit;
    LIBBPF_OPTS(bpf_test_run_opts, opts);
    opts.ctx_in = &context;
    opts.ctx_size_in = sizeof context;
    const int rc = bpf_prog_test_run_opts(bpf_program__fd(impl_->edit->progs.flow_edit), &opts);
    if (rc < 0)
        die("test run of flow_edit", rc);
    return static_cast<int>(opts.retval);
}

const char *hook_name(Hook hook)
{
    return hook == Hook::xdp ? "xdp" : "tc";
}

std::uint64_t now_ns()
{
    timespec ts{};
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return static_cast<std::uint64_t>(ts.tv_sec) * FTCTL_NSEC_PER_SEC +
           static_cast<std::uint64_t>(ts.tv_nsec);
}

std::uint32_t now_ticks()
{
    return static_cast<std::uint32_t>(now_ns() >> FTCTL_TICK_SHIFT);
}

} // namespace ftctl::test
