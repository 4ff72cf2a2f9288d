// SPDX-License-Identifier: GPL-2.0-only
#include "daemon/loop.h"

#include <array>
#include <cerrno>

#include <sys/epoll.h>

namespace ftctl {

Result<std::unique_ptr<Loop>> Loop::create()
{
    auto loop = std::make_unique<Loop>();
    loop->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
    if (!loop->epoll_)
        return fail_errno("event loop", errno);
    return loop;
}

Status Loop::add(int fd, std::function<void()> ready)
{
    if (fd < 0)
        return {};
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        return fail_errno("event loop", errno);
    handlers_[fd] = std::move(ready);
    return {};
}

void Loop::remove(int fd)
{
    if (handlers_.erase(fd) > 0)
        (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Status Loop::turn(int timeout_ms)
{
    std::array<epoll_event, 64> events{};
    const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    if (n < 0)
        return errno == EINTR ? Status{} : Status{fail_errno("event loop", errno)};
    for (int i = 0; i < n; i++) {
        // A handler may remove others, itself included: look up and copy before the call.
        const auto it = handlers_.find(events.at(static_cast<std::size_t>(i)).data.fd);
        if (it == handlers_.end())
            continue;
        const auto ready = it->second;
        ready();
    }
    return {};
}

} // namespace ftctl
