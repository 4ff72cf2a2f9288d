# SPDX-License-Identifier: GPL-2.0-only
"""What test/vm/bench.sh measures: one line of SCENARIOS each.

client eth0 -- lan0 router wan0 == wan0 remote lan0 -- eth0 server; the router is what is measured, in the direction
from client to server (`up`) or back. A tunnel runs between router and remote.

A new encapsulation is an entry of TUNNELS and its lines in SCENARIOS.
"""
import dataclasses
from typing import Callable

from frames import IPIP, UDP, ipv4, udp

CLIENT, LAN_ROUTER = "192.0.2.2", "192.0.2.1"
WAN_NEAR, WAN_FAR = "203.0.113.1", "203.0.113.2"
TUN_NEAR, TUN_FAR = "10.255.0.1", "10.255.0.2"
LAN_REMOTE, SERVER = "198.51.100.1", "198.51.100.2"
PORT = 9
# The IP packet that client and server exchange; headers of tunnels come on top.
L3_LENGTH = 100


@dataclasses.dataclass(frozen=True)
class Tunnel:
    link: str  # of `ip link add tun0`; {local} and {remote} are filled in
    push: Callable  # (source, destination, packet) -> packet, as it is on the wire
    modules: tuple = ()


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    text: str
    up: bool = True
    masquerade: bool = False
    tunnel: str = ""

    @property
    def upper(self):
        """The router's device that its route to the server names."""
        return "tun0" if self.tunnel else "wan0"

    def ends(self, sport, outside):
        """((address, port) of the sender, of the receiver) in the measured direction: as packets carry them between
        router and remote (outside, in the tunnel), or at the client."""
        near = CLIENT
        if self.masquerade and outside:
            near = TUN_NEAR if self.tunnel else WAN_NEAR
        ends = (near, sport), (SERVER, PORT)
        return ends if self.up else ends[::-1]

    def packet(self, sport, outside):
        """A UDP packet of the measured direction (see ends())."""
        (src, sport), (dst, dport) = self.ends(sport, outside)
        packet = ipv4(src, dst, UDP, udp(src, dst, sport, dport, bytes(L3_LENGTH - 28)))
        hops = (WAN_NEAR, WAN_FAR) if self.up else (WAN_FAR, WAN_NEAR)
        return TUNNELS[self.tunnel].push(*hops, packet) if self.tunnel and outside else packet

    def arriving(self, sport):
        return self.packet(sport, not self.up)

    def leaving(self, sport):
        """But for the TTL."""
        return self.packet(sport, self.up)


TUNNELS = {
    "ipip": Tunnel("type ipip local {local} remote {remote} ttl 64",
                   lambda src, dst, packet: ipv4(src, dst, IPIP, packet), ("ipip",)),
}

SCENARIOS = {each.name: each for each in (
    Scenario("plain", "IPv4 forwarded as it is"),
    Scenario("nat", "masqueraded: source address and port rewritten", masquerade=True),
    Scenario("nat-reply", "the answers to it: destination rewritten", up=False, masquerade=True),
    Scenario("ipip-encap", "into an IPIP tunnel of the kernel's", tunnel="ipip"),
    Scenario("ipip-decap", "out of it", up=False, tunnel="ipip"),
)}
