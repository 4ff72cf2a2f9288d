// SPDX-License-Identifier: GPL-2.0-only
// The bpffs of our own. /sys/fs/bpf will not do: `ip netns exec` mounts another /sys over it.
#include "bpf/datapath.h"

#include <cerrno>

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "util/fd.h"

namespace ftctl {
namespace {

bool is_bpffs(const char *path)
{
    struct statfs info {};
    return statfs(path, &info) == 0 &&
           static_cast<std::uint32_t>(info.f_type) == static_cast<std::uint32_t>(BPF_FS_MAGIC);
}

// Returns 0 or an errno. Async-signal-safe: also called between fork and _exit.
int make_and_mount()
{
    if (mkdir(kRunDir, 0755) != 0 && errno != EEXIST)
        return errno;
    if (mkdir(kBpffs, 0700) != 0 && errno != EEXIST)
        return errno;
    if (is_bpffs(kBpffs))
        return 0;
    if (mount("bpf", kBpffs, "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700") != 0)
        return errno;
    return 0;
}

bool same_mount_namespace_as_init()
{
    struct stat init {};
    struct stat self {};
    return stat("/proc/1/ns/mnt", &init) == 0 && stat("/proc/self/ns/mnt", &self) == 0 &&
           init.st_dev == self.st_dev && init.st_ino == self.st_ino;
}

// A mount made inside `ip netns exec` dies with that command, the pins with it. pid 1's namespace
// lives on, and what is mounted there propagates to namespaces that `ip netns exec` makes. Best effort.
void mount_for_init()
{
    const pid_t child = fork();
    if (child < 0)
        return;
    if (child == 0) {
        const int ns = open("/proc/1/ns/mnt", O_RDONLY | O_CLOEXEC);
        if (ns < 0 || setns(ns, CLONE_NEWNS) != 0)
            _exit(1);
        _exit(make_and_mount() == 0 ? 0 : 1);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
}

} // namespace

Status ensure_bpffs()
{
    const std::string what = fmt::format("mount a bpffs at {}", kBpffs);
    if (is_bpffs(kBpffs))
        return {};
    if (mkdir(kRunDir, 0755) != 0 && errno != EEXIST)
        return fail_errno(fmt::format("make directory {}", kRunDir), errno, "run as root");
    // Two instances that start together must not mount one over the other.
    const Fd lock(open(kRunDir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock)
        return fail_errno(fmt::format("open {}", kRunDir), errno, "run as root");
    while (flock(lock.get(), LOCK_EX) != 0) {
        if (errno != EINTR)
            return fail_errno(fmt::format("lock {}", kRunDir), errno);
    }
    if (!same_mount_namespace_as_init())
        mount_for_init();
    if (const int err = make_and_mount(); err != 0)
        return fail_errno(what, err,
                          err == EPERM ? fmt::format("mounting needs CAP_SYS_ADMIN; or mount it beforehand: "
                                                     "mount -t bpf bpf {}",
                                                     kBpffs)
                          : err == ENODEV ? "this kernel has no BPF (CONFIG_BPF_SYSCALL)"
                                          : "");
    return {};
}

} // namespace ftctl
