// SPDX-License-Identifier: GPL-2.0-only
// What the [live] tests of ctl/bpf stand on: a network namespace of their own with veth pairs.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <bpf/bpf.h>
#include <catch2/catch.hpp>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include "bpf/datapath.h"
#include "util/fd.h"

namespace ftctl::test {

/// Puts the calling thread (and the commands it runs) into a new network namespace until it goes.
class ScratchNamespace {
  public:
    ScratchNamespace() : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC))
    {
        INFO("[live] tests need root; leave them out with ~[live]");
        REQUIRE(geteuid() == 0);
        REQUIRE(before_);
        REQUIRE(unshare(CLONE_NEWNET) == 0);
    }
    ScratchNamespace(const ScratchNamespace &) = delete;
    ScratchNamespace &operator=(const ScratchNamespace &) = delete;
    ~ScratchNamespace() { static_cast<void>(setns(before_.get(), CLONE_NEWNET)); }

  private:
    Fd before_;
};

inline int try_run(const std::string &command)
{
    return std::system((command + " >/dev/null 2>&1").c_str());
}

inline void run(const std::string &command)
{
    INFO(command);
    REQUIRE(std::system(command.c_str()) == 0);
}

inline std::string output(const std::string &command)
{
    std::string text;
    FILE *pipe = popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    char buffer[4096];
    while (const std::size_t got = fread(buffer, 1, sizeof(buffer), pipe))
        text.append(buffer, got);
    pclose(pipe);
    return text;
}

/// A veth pair, up; returns the ifindex of `name`. The peer is `name`p.
inline std::uint32_t veth(const std::string &name, unsigned mtu = 1500)
{
    run("ip link add " + name + " mtu " + std::to_string(mtu) + " type veth peer name " + name + "p mtu " +
        std::to_string(mtu));
    run("ip link set " + name + " up");
    run("ip link set " + name + "p up");
    return if_nametoindex(name.c_str());
}

/// Ids of the tcx programs of a device, which tools of that age do not list; "none" also without tcx.
inline std::string tcx_programs(const std::string &name)
{
    std::string text;
    for (const int type : {46, 47}) { // BPF_TCX_INGRESS, BPF_TCX_EGRESS
        std::uint32_t ids[64];
        std::uint32_t count = 64;
        if (bpf_prog_query(static_cast<int>(if_nametoindex(name.c_str())), static_cast<bpf_attach_type>(type),
                           0, nullptr, ids, &count) != 0)
            continue;
        for (std::uint32_t i = 0; i < count; ++i)
            text += (type == 46 ? "tcx ingress " : "tcx egress ") + std::to_string(ids[i]) + "\n";
    }
    return text.empty() ? "none" : text;
}

/// Everything that attaching may leave at a device, as the usual tools see it.
inline std::string device_state(const std::string &name)
{
    return output("ip -d link show dev " + name + "; tc qdisc show dev " + name + "; tc filter show dev " +
                  name + " ingress; tc filter show dev " + name + " egress; bpftool net show dev " + name) +
           tcx_programs(name);
}

/// An instance's name that no other test run has, its pins removed at the end whatever happened.
class Instance {
  public:
    Instance() : name_("unit-" + std::to_string(getpid())) {}
    Instance(const Instance &) = delete;
    Instance &operator=(const Instance &) = delete;
    ~Instance()
    {
        if (auto left = Datapath::open_existing(name_))
            static_cast<void>((*left)->remove_pins());
    }
    [[nodiscard]] const std::string &name() const { return name_; }
    [[nodiscard]] std::string dir() const { return std::string(kBpffs) + "/ftctl/" + name_; }
    [[nodiscard]] std::unique_ptr<Datapath> open(std::uint32_t flows = 1024) const
    {
        auto datapath = Datapath::open_or_create(name_, {flows});
        INFO((datapath ? std::string() : datapath.error().what + ": " + datapath.error().why));
        REQUIRE(datapath);
        return std::move(*datapath);
    }
    [[nodiscard]] std::vector<std::string> links() const
    {
        std::vector<std::string> names;
        for (const auto &entry : std::filesystem::directory_iterator(dir() + "/links"))
            names.push_back(entry.path().filename().string());
        std::sort(names.begin(), names.end());
        return names;
    }

  private:
    std::string name_;
};

/// Waits for a condition, two seconds at most.
template <typename Condition>
bool eventually(Condition &&condition)
{
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline)
            return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

} // namespace ftctl::test
