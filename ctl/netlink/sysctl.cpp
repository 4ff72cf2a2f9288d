// SPDX-License-Identifier: GPL-2.0-only
#include "netlink/policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fcntl.h>

#include "util/fd.h"

namespace ftctl {

std::optional<long> sysctl_number(const std::string &name)
{
    std::string path = name;
    // As sysctl(8) has it: with slashes, dots belong to device names; without, dots separate.
    if (path.find('/') == std::string::npos)
        std::replace(path.begin(), path.end(), '.', '/');
    if (path.rfind("net/", 0) != 0 || path.find("/..") != std::string::npos)
        return std::nullopt;
    const Fd fd(open(("/proc/sys/" + path).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd)
        return std::nullopt;
    std::array<char, 64> buf{};
    const ssize_t n = read(fd.get(), buf.data(), buf.size());
    if (n <= 0)
        return std::nullopt;
    long value = 0;
    const auto [end, ec] = std::from_chars(buf.data(), buf.data() + n, value);
    if (ec != std::errc{} || end == buf.data())
        return std::nullopt;
    return value;
}

} // namespace ftctl
