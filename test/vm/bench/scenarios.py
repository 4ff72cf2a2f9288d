# SPDX-License-Identifier: GPL-2.0-only
"""What test/vm/bench.sh measures: one line of SCENARIOS each.

client eth0 -- lan0 router wan0 == wan0 remote lan0 -- eth0 server; the router is what is measured, in the direction
from client to server (`up`) or back. A tunnel, or a VLAN, runs between router and remote.

A new encapsulation is an entry of TUNNELS and its lines in SCENARIOS.
"""
import dataclasses

from frames import ETH_IP, ETH_IPV6, IPIP, IPV6, UDP, ethernet, ipv4, ipv6, udp

PORT = 9
# The IP packet that client and server exchange; headers of tunnels come on top.
L3_LENGTH = 100
VLAN = 10


@dataclasses.dataclass(frozen=True)
class Family:
    """Addresses, and what the headers are."""
    version: int
    bits: int
    client: str
    lan_router: str
    client_net: str
    wan_near: str
    wan_far: str
    tun_near: str
    tun_far: str
    lan_remote: str
    server: str
    server_net: str

    @property
    def ethertype(self):
        return ETH_IP if self.version == 4 else ETH_IPV6

    @property
    def number(self):
        """As a payload of IP."""
        return IPIP if self.version == 4 else IPV6

    def wrap(self, src, dst, proto, payload):
        return (ipv4 if self.version == 4 else ipv6)(src, dst, proto, payload)

    def udp_packet(self, src, dst):
        """Of L3_LENGTH; src and dst are (address, port)."""
        body = bytes(L3_LENGTH - 8 - (20 if self.version == 4 else 40))
        return self.wrap(src[0], dst[0], UDP, udp(src[0], dst[0], src[1], dst[1], body))


V4 = Family(4, 24, "192.0.2.2", "192.0.2.1", "192.0.2.0/24", "203.0.113.1", "203.0.113.2", "10.255.0.1", "10.255.0.2",
            "198.51.100.1", "198.51.100.2", "198.51.100.0/24")
V6 = Family(6, 64, "2001:db8:1::2", "2001:db8:1::1", "2001:db8:1::/64", "2001:db8:2::1", "2001:db8:2::2",
            "2001:db8:3::1", "2001:db8:3::2", "2001:db8:4::1", "2001:db8:4::2", "2001:db8:4::/64")


@dataclasses.dataclass(frozen=True)
class Tunnel:
    """The kernel's device for it."""
    link: str  # of `ip link add tun0`, but for the addresses
    module: str
    outer: Family


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    text: str
    up: bool = True
    ip: Family = V4
    masquerade: bool = False
    tunnel: str = ""
    vlan: bool = False
    rival: bool = True  # the flowtable takes it; else its slow path is measured, with the attempt

    @property
    def outer(self):
        """The family of what passes between router and remote."""
        return TUNNELS[self.tunnel].outer if self.tunnel else self.ip

    @property
    def wan(self):
        """Router's and remote's device for each other."""
        return f"wan0.{VLAN}" if self.vlan else "wan0"

    @property
    def upper(self):
        """The router's device that its route to the server names."""
        return "tun0" if self.tunnel else self.wan

    def ends(self, sport, outside):
        """((address, port) of the sender, of the receiver) in the measured direction: as packets carry them between
        router and remote (outside, in the tunnel), or at the client."""
        near = self.ip.client
        if self.masquerade and outside:
            near = self.ip.tun_near if self.tunnel else self.ip.wan_near
        ends = (near, sport), (self.ip.server, PORT)
        return ends if self.up else ends[::-1]

    def frame(self, dst, src, sport, outside):
        """A UDP packet of the measured direction (see ends()), from MAC to MAC."""
        packet = self.ip.udp_packet(*self.ends(sport, outside))
        if not outside:
            return ethernet(dst, src, self.ip.ethertype, packet)
        if self.tunnel:
            hops = (self.outer.wan_near, self.outer.wan_far)
            packet = self.outer.wrap(*(hops if self.up else hops[::-1]), self.ip.number, packet)
        return ethernet(dst, src, self.outer.ethertype, packet, VLAN if self.vlan else None)


TUNNELS = {
    "ipip": Tunnel("type ipip ttl 64", "ipip", V4),
    # Without the encapsulation limit: the flowtable takes no tunnel that has it.
    "ip6ip6": Tunnel("type ip6tnl mode ip6ip6 encaplimit none", "ip6_tunnel", V6),
    "4in6": Tunnel("type ip6tnl mode ipip6 encaplimit none", "ip6_tunnel", V6),
    "6in4": Tunnel("type sit mode ip6ip ttl 64", "sit", V4),
}

SCENARIOS = {each.name: each for each in (
    Scenario("plain", "IPv4 forwarded as it is"),
    Scenario("nat", "masqueraded: source address and port rewritten", masquerade=True),
    Scenario("nat-reply", "the answers to it: destination rewritten", up=False, masquerade=True),
    Scenario("ipip-encap", "into an IPIP tunnel of the kernel's", tunnel="ipip"),
    Scenario("ipip-decap", "out of it", up=False, tunnel="ipip"),
    Scenario("plain6", "IPv6 forwarded as it is", ip=V6),
    Scenario("ip6ip6-encap", "IPv6 into a tunnel over IPv6", ip=V6, tunnel="ip6ip6"),
    Scenario("ip6ip6-decap", "out of it", up=False, ip=V6, tunnel="ip6ip6"),
    Scenario("4in6-encap", "IPv4 into a tunnel over IPv6", tunnel="4in6", rival=False),
    Scenario("4in6-decap", "out of it", up=False, tunnel="4in6", rival=False),
    Scenario("6in4-encap", "IPv6 into a tunnel over IPv4", ip=V6, tunnel="6in4", rival=False),
    Scenario("6in4-decap", "out of it", up=False, ip=V6, tunnel="6in4", rival=False),
    Scenario("vlan-push", "IPv4 into a VLAN", vlan=True),
    Scenario("vlan-pop", "out of it", up=False, vlan=True),
)}
