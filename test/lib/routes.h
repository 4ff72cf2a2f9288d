// SPDX-License-Identifier: GPL-2.0-only
// What the reverse path filter looks up: routes in the tests' namespace, and the mode of a device.
#pragma once

#include <cstdint>
#include <string>

#include "bpf_run.h"

namespace ftctl::test {

/// ip(8), which must succeed.
void ip(const std::string &words);
void sysctl(const std::string &name, int value);

/// Routes for the addresses of the scenarios: clients behind bt0, servers behind bt1.
struct Routes {
    Routes();
    ~Routes();
    Routes(const Routes &) = delete;
    Routes &operator=(const Routes &) = delete;
};

void set_rpf(Device device, std::uint32_t mode);

} // namespace ftctl::test
