# SPDX-License-Identifier: GPL-2.0-only
"""PPPoE sessions with pppd at both ends: pppoe-server in user space at the far end, the kernel's PPPoE here."""
import os
import socket

from lab import wait_until

SERVER_ADDR, CLIENT_ADDR = "10.64.0.1", "10.64.0.101"
_OPTIONS = "noauth\n+ipv6\nlcp-echo-interval 0\nnoccp\nnovj\nmtu 1492\nmru 1492\n"


def serve(lab, side, dev):
    """Each session has addresses of its own at both ends: 10.64.0.1 and .101, 10.64.0.2 and .102, ..."""
    lab[side].sysctl_set("net/ipv6/conf/default/disable_ipv6", 0)  # of its ppp devices, for IPv6CP
    options = os.path.join(lab.tmp, "pppoe-options")
    with open(options, "w", encoding="ascii") as file:
        file.write(_OPTIONS)
    return lab[side].spawn("pppoe-server", "-F", "-I", dev, "-l", "-L", SERVER_ADDR, "-R", CLIENT_ADDR, "-O", options)


def dial(lab, side, dev, unit=0, ipv6=False):
    """The process that holds the session of ppp<unit>, which is up."""
    process = lab[side].spawn("pppd", "plugin", "pppoe.so", f"nic-{dev}", "nodetach", "noauth", "noccp", "novj",
                              "noipdefault", "lcp-echo-interval", "0", "mtu", "1492", "mru", "1492", "unit", str(unit),
                              "+ipv6")
    wanted = {"inet", "inet6"} if ipv6 else {"inet"}
    wait_until(lambda: wanted <= addresses(lab, side, unit).keys(), 90, f"ppp{unit} is up", 0.2)
    return process


def join(lab, sides, number):
    """A session without discovery, of the kernel's PPPoE at both ends: sides are (side, device, address, ppp unit)."""
    for (side, dev, own, unit), (far, far_dev, peer, _unit) in (sides, sides[::-1]):
        lab[side].spawn("pppd", "plugin", "pppoe.so", f"nic-{dev}", "pppoe-sess", f"{number}:{lab[far].mac(far_dev)}",
                        "nodetach", "noauth", "noccp", "novj", "lcp-echo-interval", "0", "mtu", "1492", "mru", "1492",
                        "unit", str(unit), f"{own}:{peer}")
    for side, _dev, _own, unit in sides:
        wait_until(lambda side=side, unit=unit: "inet" in addresses(lab, side, unit), 90, f"ppp{unit} of {side} is up",
                   0.2)


def addresses(lab, side, unit=0):
    """family -> (own, peer's or none) of ppp<unit>"""
    return {addr["family"]: (addr["local"], addr.get("address"))
            for link in lab[side].ip_json("addr show") if link["ifname"] == f"ppp{unit}" for addr in link["addr_info"]}


def listed(lab, side):
    """What the kernel lists: session number -> device."""
    with lab[side].entered(), open("/proc/thread-self/net/pppoe", encoding="ascii") as file:
        lines = [line.split() for line in file][1:]
    return {socket.ntohs(int(number, 16)): dev for number, _, dev in lines}
