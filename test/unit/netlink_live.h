// SPDX-License-Identifier: GPL-2.0-only
// For the netlink tests against the running kernel: a namespace of their own, and patience with an
// end. Such tests need root and iproute2 and are hidden from a plain run: unit_tests "[live]".
#pragma once

#include <catch2/catch.hpp>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <poll.h>
#include <sched.h>

#include "util/addr.h"
#include "util/fd.h"
#include "util/result.h"

namespace netlink_live {

using namespace ftctl;

inline void sh(const std::string &command)
{
    INFO(command);
    REQUIRE(std::system(command.c_str()) == 0); // NOLINT: tests set up with the tools of the trade
}

inline void set_sysctl(const std::string &name, const std::string &value)
{
    std::ofstream f("/proc/sys/" + name);
    f << value << std::flush;
    INFO(name);
    REQUIRE(f.good());
}

/// This thread in a new namespace, and back.
class Scratch {
  public:
    Scratch() : home_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC))
    {
        if (!home_ || unshare(CLONE_NEWNET) != 0)
            FAIL("needs root: cannot make a network namespace: " << strerror(errno));
        sh("ip link set lo up");
    }
    ~Scratch()
    {
        if (home_)
            (void)setns(home_.get(), CLONE_NEWNET);
    }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

  private:
    Fd home_;
};

template <typename T>
T must(Result<T> r)
{
    if (!r)
        FAIL(r.error().what << ": " << r.error().why);
    return std::move(*r);
}
inline void must(const Status &s)
{
    if (!s)
        FAIL(s.error().what << ": " << s.error().why);
}

/// Reads whenever fd is readable until done() or five seconds are over.
inline bool wait_for(int fd, const std::function<void()> &read, const std::function<bool()> &done)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!done()) {
        pollfd p{fd, POLLIN, 0};
        if (std::chrono::steady_clock::now() > end)
            return false;
        if (poll(&p, 1, 100) > 0)
            read();
    }
    return true;
}

inline IpAddr ip(const char *text)
{
    return IpAddr::parse(text).value();
}

} // namespace netlink_live
