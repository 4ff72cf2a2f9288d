// SPDX-License-Identifier: GPL-2.0-only
// The event loop: epoll, one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "util/fd.h"
#include "util/result.h"

namespace ftctl {

class Loop {
  public:
    static Result<std::unique_ptr<Loop>> create();

    /// Calls `ready` while `fd` is readable (level-triggered). fd < 0 is ignored.
    Status add(int fd, std::function<void()> ready);
    void remove(int fd);

    /// Waits for at most timeout_ms and serves what is ready.
    Status turn(int timeout_ms);

  private:
    Fd epoll_;
    std::map<int, std::function<void()>> handlers_;
};

} // namespace ftctl
