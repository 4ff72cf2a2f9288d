// SPDX-License-Identifier: GPL-2.0-only
#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>

#include "routes.h"

namespace ftctl::test {

void ip(const std::string &words)
{
    const std::string line = "ip " + words;
    INFO(line);
    REQUIRE(std::system(line.c_str()) == 0);
}

void sysctl(const std::string &name, int value)
{
    std::ofstream file("/proc/sys/net/" + name);
    file << value << std::flush;
    INFO(name);
    REQUIRE(file.good());
}

Routes::Routes()
{
    sysctl("ipv4/conf/all/forwarding", 1);
    sysctl("ipv6/conf/all/forwarding", 1);
    ip("link set lo up");
    for (const char *dev : {"bt0", "bt1", "bt2"})
        ip(std::string("link set ") + dev + " up");
    ip("addr add 192.0.2.1/24 dev bt0");
    ip("addr add 198.51.100.1/24 dev bt1");
    ip("-6 addr add 2001:db8:0:1::c000:201/120 dev bt0 nodad");
    ip("-6 addr add 2001:db8:0:1::c633:6401/120 dev bt1 nodad");
    ip("route add unreachable 10.1.0.0/16");
    ip("route add blackhole 10.2.0.0/16");
    ip("route add prohibit 10.3.0.0/16");
}

Routes::~Routes()
{
    for (const char *dev : {"bt0", "bt1"})
        static_cast<void>(std::system((std::string("ip addr flush dev ") + dev).c_str()));
    static_cast<void>(std::system("ip route flush proto boot; ip -6 route flush proto boot"));
}

void set_rpf(Device device, std::uint32_t mode)
{
    Rig &rig = Rig::get();
    ftctl_slot slot = rig.slot(device);
    slot.rpf = mode;
    rig.set_slot(device, slot);
    ftctl_config config = rig.config();
    config.rpf = 1;
    rig.set_config(config);
}

} // namespace ftctl::test
