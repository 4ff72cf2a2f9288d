# SPDX-License-Identifier: GPL-2.0-only
"""What a benchmark sends: addresses, headers, tunnels. Both test/bench and test/vm/bench choose from it."""
import dataclasses
import struct

from frames import ETH_IP, ETH_IPV6, IPIP, IPV6, UDP, ethernet, ipv4, ipv6, udp

PORT = 9
VLAN = 10
SESSION = 1  # of PPPoE
ETH_PPP_SESSION, PPP_IP = 0x8864, 0x0021


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

    @property
    def header(self):
        """Its length."""
        return 20 if self.version == 4 else 40

    def udp_packet(self, src, dst, length):
        """Of `length` bytes, or what the headers take; src and dst are (address, port)."""
        body = bytes(max(0, length - 8 - self.header))
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
    pppoe: bool = False
    rival: bool = True  # the flowtable takes it; else its slow path is measured, with the attempt

    @property
    def outer(self):
        """The family of what passes between router and remote."""
        return TUNNELS[self.tunnel].outer if self.tunnel else self.ip

    @property
    def wan(self):
        """Router's and remote's device for each other."""
        if self.pppoe:
            return "ppp0"
        return f"wan0.{VLAN}" if self.vlan else "wan0"

    @property
    def upper(self):
        """The router's device that its route to the server names."""
        return "tun0" if self.tunnel else self.wan

    def addresses(self, outside):
        """(Client's, server's), as packets carry them between router and remote (outside, in the tunnel), or at the
        client."""
        near = self.ip.client
        if self.masquerade and outside:
            near = self.ip.tun_near if self.tunnel else self.ip.wan_near
        return near, self.ip.server

    def ends(self, sport, outside):
        """((address, port) of the sender, of the receiver) in the measured direction; outside: as for addresses()."""
        near, far = self.addresses(outside)
        ends = (near, sport), (far, PORT)
        return ends if self.up else ends[::-1]

    def frame(self, dst, src, sport, outside, length):
        """A UDP packet of the measured direction (see ends()), from MAC to MAC; length: without headers of tunnels."""
        packet = self.ip.udp_packet(*self.ends(sport, outside), length)
        if not outside:
            return ethernet(dst, src, self.ip.ethertype, packet)
        if self.tunnel:
            hops = (self.outer.wan_near, self.outer.wan_far)
            packet = self.outer.wrap(*(hops if self.up else hops[::-1]), self.ip.number, packet)
        if self.pppoe:
            head = struct.pack("!BBHHH", 0x11, 0, SESSION, len(packet) + 2, PPP_IP)
            return ethernet(dst, src, ETH_PPP_SESSION, head + packet)
        return ethernet(dst, src, self.outer.ethertype, packet, VLAN if self.vlan else None)


TUNNELS = {
    "ipip": Tunnel("type ipip ttl 64", "ipip", V4),
    # Without the encapsulation limit: the flowtable takes no tunnel that has it.
    "ip6ip6": Tunnel("type ip6tnl mode ip6ip6 encaplimit none", "ip6_tunnel", V6),
    "4in6": Tunnel("type ip6tnl mode ipip6 encaplimit none", "ip6_tunnel", V6),
    "6in4": Tunnel("type sit mode ip6ip ttl 64", "sit", V4),
}
