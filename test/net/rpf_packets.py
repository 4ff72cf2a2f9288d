# SPDX-License-Identifier: GPL-2.0-only
"""Packets for the reverse path filter, and what nft says to each: two passes, one with nft looking on, one with ftctl
in front of it."""
import json

import frames
from lab import check
from raw import Injector

ETH_P_IPV6 = 0x86dd

# Each packet has its number in its ports. `seen` are those that reach prerouting, `without` (a route) those that the
# rule is about.
TABLE = """table inet rpf {
    set seen { type inet_service . inet_service; flags dynamic; size 65535; }
    set without { type inet_service . inet_service; flags dynamic; size 65535; }
    chain pre { type filter hook prerouting priority raw; policy accept;
        meta l4proto { tcp, udp } add @seen { th sport . th dport }
        meta l4proto { tcp, udp } fib saddr . iif oif missing add @without { th sport . th dport }
    }
}"""


def make(src, dst, number, proto=frames.UDP, **fields):
    """(EtherType, packet)"""
    sport, dport = 1 + number // 250, 1000 + number % 250
    body = (frames.udp if proto == frames.UDP else frames.tcp)(src, dst, sport, dport, b"rpf")
    if ":" in src:
        return ETH_P_IPV6, frames.ipv6(src, dst, proto, body, **fields)
    return 0x0800, frames.ipv4(src, dst, proto, body, **fields)


def _sets(router, name):
    text = router.run("nft", "-j", "list", "set", "inet", "rpf", name).stdout
    return [item["set"] for item in json.loads(text)["nftables"] if "set" in item]


def _members(router, name):
    found = set()
    for item in _sets(router, name):
        for sport, dport in (element["concat"] for element in item.get("elem", [])):
            found.add((int(sport) - 1) * 250 + int(dport) - 1000)
    return found


class Ways:
    """Devices of the router, each with an injector at its far end."""

    def __init__(self, lab, ends):
        """ends: {device of R: (role, its device)}"""
        self.router = lab["R"]
        self.injectors = {dev: Injector(lab[role], far, lab["R"], dev) for dev, (role, far) in ends.items()}

    def send(self, packets):
        """packets: (device, EtherType, packet, broadcast MAC or None), by number. Returns the numbers that reached
        prerouting, and those for which nft says `missing`."""
        self.router.run("nft", "flush", "set", "inet", "rpf", "seen")
        self.router.run("nft", "flush", "set", "inet", "rpf", "without")
        for dev, kind, packet, mac in packets:
            self.injectors[dev].send(packet, dst=mac, kind=kind)
        sent = set(range(len(packets)))  # what is answered to them has other numbers
        return _members(self.router, "seen") & sent, _members(self.router, "without") & sent


def verdicts(ways, packets, set_filter):
    """(what nft would have dropped, what ftctl dropped); both of what reaches prerouting without ftctl."""
    set_filter("off")
    seen, missing = ways.send(packets)
    check(missing <= seen, "nft's sets disagree")
    set_filter("strict")
    left, _missing = ways.send(packets)
    check(left <= seen, f"packets appeared that were not there before: {sorted(left - seen)[:5]}")
    return missing, seen - left, seen
