// SPDX-License-Identifier: GPL-2.0-only
// What this kernel can do, found by doing it: distributions port features to old version numbers and
// configure them out of new ones.
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include <linux/magic.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>

#include "bpf/clsact.h"
#include "bpf/datapath.h"
#include "bpf/kernel_log.h"
#include "bpf/links.h"
#include "bpf/maps.h"
#include "bpf/programs.h"

namespace ftctl {
namespace {

using namespace bpf;

constexpr std::uint32_t kLoopback = 1; // in every network namespace

enum Need : bool { optional_feature = false, required_feature = true };

Probe made(const char *name, Need need, bool ok, std::string detail, const char *hint)
{
    return {name, ok, need == required_feature, std::move(detail), ok ? "" : hint};
}

Probe from_status(const char *name, Need need, const Status &status, const char *good, const char *hint)
{
    if (status)
        return made(name, need, true, good, hint);
    return made(name, need, false, status.error().why, status.error().err == EPERM ? kPrivilegeHint : hint);
}

template <typename T>
Status status_of(const Result<T> &result)
{
    return result ? Status{} : tl::unexpected(result.error());
}

std::optional<std::string> first_line(const char *path)
{
    std::ifstream file(path);
    std::string line;
    if (!file || !std::getline(file, line))
        return std::nullopt;
    return line;
}

Probe probe_syscall()
{
    const Fd fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, "ftctl_probe", 4, 4, 1, nullptr));
    const int err = fd ? 0 : errno;
    return made("bpf", required_feature, err == 0, err == 0 ? "bpf(2) works" : std::strerror(err),
                err == EPERM ? kPrivilegeHint : "build the kernel with CONFIG_BPF_SYSCALL");
}

Probe probe_map(const char *name, bpf_map_type type, const char *hint)
{
    const int rc = libbpf_probe_bpf_map_type(type, nullptr);
    return made(name, required_feature, rc == 1,
                rc == 1  ? "map can be made"
                : rc < 0 ? std::strerror(-rc)
                         : "not known",
                hint);
}

Probe probe_batch()
{
    constexpr std::uint32_t kSize = 4;
    const Fd fd(bpf_map_create(BPF_MAP_TYPE_HASH, "ftctl_probe", kSize, kSize, 1, nullptr));
    std::uint32_t one = 1;
    std::uint32_t next = 0;
    std::uint32_t key = 0;
    std::uint32_t value = 0;
    std::uint32_t count = 1;
    bool ok = fd && bpf_map_update_elem(fd.get(), &one, &one, BPF_ANY) == 0;
    ok = ok && (bpf_map_lookup_batch(fd.get(), nullptr, &next, &key, &value, &count, nullptr) == 0 ||
                errno == ENOENT);
    const int err = ok ? 0 : errno;
    return made("batch", optional_feature, err == 0,
                err == 0 ? "maps are read in batches" : std::strerror(err),
                "Linux 5.6; listing flows is slower without");
}

Probe probe_lookup_and_delete()
{
    constexpr std::uint32_t kSize = 4;
    const Fd fd(bpf_map_create(BPF_MAP_TYPE_HASH, "ftctl_probe", kSize, kSize, 1, nullptr));
    std::uint32_t one = 1;
    std::uint32_t value = 0;
    int err = 0;
    if (!fd || bpf_map_update_elem(fd.get(), &one, &one, BPF_ANY) != 0 ||
        bpf_map_lookup_and_delete_elem(fd.get(), &one, &value) != 0)
        err = errno;
    return made("lookup-and-delete", required_feature, err == 0,
                err == 0 ? "final counters are exact" : std::strerror(err), "needs Linux 5.14");
}

Probe probe_jiffies()
{
    const int rc = libbpf_probe_bpf_helper(BPF_PROG_TYPE_XDP, BPF_FUNC_jiffies64, nullptr);
    return made("jiffies", required_feature, rc == 1,
                rc == 1 ? "bpf_jiffies64" : "helper bpf_jiffies64 is missing", "needs Linux 5.6");
}

Probe probe_btf()
{
    const bool ok = access("/sys/kernel/btf/vmlinux", R_OK) == 0;
    return made("btf", required_feature, ok, ok ? "/sys/kernel/btf/vmlinux" : std::strerror(errno),
                "build the kernel with CONFIG_DEBUG_INFO_BTF");
}

// `return 0` at XDP, the smallest program; what the kernel reports of it tells whether it was compiled.
Probe probe_jit()
{
    const std::array<bpf_insn, 2> code = {
        {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0}, {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}}};
    const Fd fd(bpf_prog_load(BPF_PROG_TYPE_XDP, "ftctl_probe", "GPL", code.data(), code.size(), nullptr));
    bpf_prog_info info{};
    std::uint32_t len = sizeof(info);
    if (!fd || bpf_obj_get_info_by_fd(fd.get(), &info, &len) != 0)
        return made("jit", optional_feature, false, std::strerror(errno), kPrivilegeHint);
    return made("jit", optional_feature, info.jited_prog_len != 0,
                info.jited_prog_len != 0 ? "programs are compiled" : "programs are interpreted",
                "sysctl net.core.bpf_jit_enable=1; interpreted programs are several times slower");
}

Probe probe_tcx()
{
    const bool ok = have_tcx();
    return made("tcx", optional_feature, ok,
                ok ? "TC programs attach by link" : "clsact filters are used instead",
                "Linux 6.6 and newer have it; clsact does as well");
}

// In a network namespace of its own, so that no device of this one is touched. A thread can have one.
Probe probe_clsact()
{
    constexpr const char *kHint =
        "build the kernel with CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF (modules "
        "sch_ingress, cls_bpf)";
    std::string why;
    int err = 0;
    std::thread([&] {
        if (unshare(CLONE_NEWNET) != 0) {
            err = errno;
            return;
        }
        if (auto created = clsact_create(kLoopback, "lo", true); !created)
            why = created.error().why;
    }).join();
    if (err != 0)
        return made("clsact", optional_feature, false,
                    fmt::format("not tried: a network namespace is needed for it ({})", std::strerror(err)),
                    "run as root");
    return made("clsact", have_tcx() ? optional_feature : required_feature, why.empty(),
                why.empty() ? "TC filters can be attached" : why, kHint);
}

Probe probe_bpffs()
{
    struct statfs info {};
    const bool ok = statfs(kBpffs, &info) == 0 &&
                    static_cast<std::uint32_t>(info.f_type) == static_cast<std::uint32_t>(BPF_FS_MAGIC);
    return made("bpffs", optional_feature, ok, ok ? kBpffs : fmt::format("not mounted at {} yet", kBpffs),
                "ftctld mounts it when it starts, which needs CAP_SYS_ADMIN");
}

Probe probe_conntrack_loaded()
{
    const bool ok = access("/proc/net/stat/nf_conntrack", R_OK) == 0 ||
                    access("/proc/sys/net/netfilter/nf_conntrack_max", R_OK) == 0;
    return made("conntrack", required_feature, ok, ok ? "loaded" : "not loaded",
                "modprobe nf_conntrack nf_conntrack_netlink");
}

Probe probe_conntrack_events()
{
    const auto value = first_line("/proc/sys/net/netfilter/nf_conntrack_events");
    // 2 (the default since 5.19): on while somebody listens
    const bool ok = value && (*value == "1" || *value == "2");
    return made("conntrack-events", required_feature, ok,
                value ? fmt::format("nf_conntrack_events={}", *value) : "nf_conntrack_events is missing",
                "sysctl net.netfilter.nf_conntrack_events=1 before connections start; the kernel needs "
                "CONFIG_NF_CONNTRACK_EVENTS");
}

Probe probe_memlock()
{
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    const Fd fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, "ftctl_probe", 4, 4096, 8192, nullptr));
    const int err = fd ? 0 : errno;
    const std::string soft =
        limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit.rlim_cur);
    return made("memlock", required_feature, err == 0,
                err == 0 ? fmt::format("32 MiB map made (RLIMIT_MEMLOCK {})", soft) : std::strerror(err),
                "raise RLIMIT_MEMLOCK (systemd: LimitMEMLOCK=infinity) or the cgroup's memory.max");
}

void probe_programs(std::vector<Probe> &probes)
{
    constexpr const char *kLoadHint =
        "Linux 6.1 and newer load it; the verifier's whole log is in ftctld --debug";
    auto maps = Maps::create({1024});
    if (!maps) {
        probes.push_back(made("maps", required_feature, false, maps.error().why, maps.error().hint.c_str()));
        return;
    }
    const InstanceParams dry{FTCTL_SLOT_SCRATCH, kLoopback, true};
    const auto xdp = status_of(load_instance(*maps, FTCTL_HOOK_XDP, dry));
    const auto tc = status_of(load_instance(*maps, FTCTL_HOOK_TC, dry));
    probes.push_back(from_status("xdp-program", optional_feature, xdp, "loads", kLoadHint));
    probes.push_back(from_status("tc-program", required_feature, tc, "loads", kLoadHint));
    probes.push_back(from_status("syscall-program", required_feature, status_of(load_edit(*maps)), "loads",
                                 "needs Linux 5.14"));
    Status xmit = status_of(load_tracepoints(*maps));
    probes.push_back(from_status("xdp-tx-failed", optional_feature, xmit,
                                 "failed XDP transmissions are counted (tp_btf)",
                                 "needs CONFIG_DEBUG_INFO_BTF and CAP_PERFMON; XDP works without"));
}

} // namespace

std::vector<Probe> probe_kernel()
{
    route_libbpf_messages();
    const LogCapture quiet; // failures are the answer here
    std::vector<Probe> probes;
    probes.push_back(probe_syscall());
    probes.push_back(probe_btf());
    probes.push_back(probe_jit());
    probes.push_back(probe_memlock());
    probes.push_back(probe_map("ringbuf", BPF_MAP_TYPE_RINGBUF, "needs Linux 5.8"));
    probes.push_back(probe_map("devmap-hash", BPF_MAP_TYPE_DEVMAP_HASH, "needs Linux 5.4"));
    probes.push_back(probe_batch());
    probes.push_back(probe_lookup_and_delete());
    probes.push_back(probe_jiffies());
    probe_programs(probes);
    probes.push_back(probe_tcx());
    probes.push_back(probe_clsact());
    probes.push_back(probe_bpffs());
    return probes;
}

std::vector<Probe> probe_conntrack()
{
    return {probe_conntrack_loaded(), probe_conntrack_events()};
}

} // namespace ftctl
