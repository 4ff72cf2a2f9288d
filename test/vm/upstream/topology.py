# SPDX-License-Identifier: GPL-2.0-only
"""The topology of the acceptance rows, and by what a row's packets go through it.

    ns1 eth0 ---- veth0 nsr1 veth1 ---- veth0 nsr2 veth1 ---- eth0 ns2
    10.0.1.99     10.0.1.1   192.168.10.1     .2   10.0.2.1   10.0.2.99
    dead:1::99    dead:1::1  dead:10::1      ::2  dead:2::1  dead:2::99
         MTU "outer"              MTU "link"            MTU "remote"

ftctl runs on nsr1. What some rows add is in stages.py.
"""
import dataclasses

from lab import Lab

PORT, DNAT_PORT = 12345, 1666
FAMILIES = (4, 6)
ROUTERS = ("nsr1", "nsr2")
# By family. Of the routers: of what is towards ns1 or ns2, and the network there.
NS1, NS2 = {4: "10.0.1.99", 6: "dead:1::99"}, {4: "10.0.2.99", 6: "dead:2::99"}
GATEWAYS = {4: ("10.0.1.1", "10.0.2.1"), 6: ("dead:1::1", "dead:2::1")}
ROUTED = {4: ("10.0.1.0/24", "10.0.2.0/24"), 6: ("dead:1::/64", "dead:2::/64")}
DNAT_ADDR = {4: "10.6.6.6", 6: "dead:6::6"}
PREFIX = {4: 24, 6: 64}


@dataclasses.dataclass(frozen=True)
class Hop:
    """What is between the routers, nsr1's end first: devices, and the addresses of each family."""
    devices: tuple
    addresses: dict
    shorter: int = 0  # than the MTU of the link
    tags: tuple = ()  # (protocol, VID), outermost first
    tunnel: str = None

    def address_line(self, end, family):
        return f"addr add {self.addresses[family][end]}/{PREFIX[family]} dev {self.devices[end]}"


TAG = ("802.1Q", 10)
LINK = Hop(("veth1", "veth0"), {4: ("192.168.10.1", "192.168.10.2"), 6: ("dead:10::1", "dead:10::2")})
VLAN = Hop(("veth1.10", "veth0.10"), {4: ("192.168.20.1", "192.168.20.2"), 6: ("dead:20::1", "dead:20::2")},
           tags=(TAG,))
# A veth has room for one tag beyond its MTU.
QINQ = Hop(("veth1.5.10", "veth0.5.10"), {4: ("192.168.30.1", "192.168.30.2"), 6: ("dead:30::1", "dead:30::2")},
           shorter=4, tags=(("802.1ad", 5), TAG))


@dataclasses.dataclass(frozen=True)
class Tunnel:
    mode: str
    words: str  # for ip(8), beside the ends
    outer: int  # the underlay's family
    header: int  # bytes

    def over(self, below):
        return Hop(("tun0", "tun0"), {4: ("192.168.100.1", "192.168.100.2"), 6: ("dead:100::1", "dead:100::2")},
                   below.shorter + self.header, below.tags, self.mode)


TUNNELS = {
    "ipip": Tunnel("ipip", "type ipip", 4, 20),
    "ip6ip6": Tunnel("ip6ip6", "type ip6tnl mode ip6ip6 encaplimit none", 6, 40),
    "ip6ip6-limit": Tunnel("ip6ip6", "type ip6tnl mode ip6ip6 encaplimit 4", 6, 48),
    "4in6": Tunnel("4in6", "type ip6tnl mode ipip6 encaplimit none", 6, 40),
    "6in4": Tunnel("6in4", "type sit ttl 255", 4, 20),
}


def tunnel(row):
    return next((TUNNELS[stage] for stage in row.stages if stage in TUNNELS), None)


def underlay(row):
    return VLAN if "vlan" in row.stages else QINQ if "qinq" in row.stages else LINK


def between(row):
    """The hop that the packets of ns1 and ns2 are routed to."""
    return tunnel(row).over(underlay(row)) if tunnel(row) else underlay(row)


def inside(row):
    """nsr1's device towards ns1."""
    if "bridge-tagged" in row.stages:
        return "br0.10"
    return "br0" if any(stage.startswith("bridge") for stage in row.stages) else "veth0"


def inside_tags(row):
    """The tags of frames between ns1 and nsr1."""
    return (TAG,) if {"bridge-over-vlan", "bridge-tagged"} & set(row.stages) else ()


@dataclasses.dataclass(frozen=True)
class Mtus:
    outer: int = 9000
    link: int = 1500
    remote: int = 2000

    def __str__(self):
        return f"{self.outer}/{self.link}/{self.remote}"


def end_lines(role, device):
    """ns1 or ns2 has its addresses and routes at this device. What it has learnt of paths goes with a route."""
    end = {"ns1": 0, "ns2": 1}[role]
    addresses = (NS1, NS2)[end]
    return [line for family in FAMILIES for line in
            (f"addr replace {addresses[family]}/{PREFIX[family]} dev {device}",
             f"route replace default via {GATEWAYS[family][end]} dev {device}")]


def gateway_lines(end, device, word="replace"):
    return [f"addr {word} {GATEWAYS[family][end]}/{PREFIX[family]} dev {device}" for family in FAMILIES]


def build():
    """The four namespaces; nothing attached yet."""
    lab = Lab("ns1", "nsr1", "nsr2", "ns2", router="nsr1", tag="up", ipv6=True)
    try:
        lab.veth("ns1", "eth0", "nsr1", "veth0")
        lab.veth("nsr1", "veth1", "nsr2", "veth0")
        lab.veth("nsr2", "veth1", "ns2", "eth0")
        for role in ("ns1", "ns2"):
            lab[role].ip("\n".join(end_lines(role, "eth0")))
        for end, (role, device) in enumerate(zip(ROUTERS, ("veth0", "veth1"))):
            lab[role].ip("\n".join(gateway_lines(end, device) + [line for family in FAMILIES for line in (
                LINK.address_line(end, family),
                f"route add default via {LINK.addresses[family][1 - end]}")]))
            lab[role].sysctl_set("net/ipv4/ip_forward", 1)
            lab[role].sysctl_set("net/ipv6/conf/all/forwarding", 1)
    except BaseException:
        lab.close()
        raise
    return lab


def make_ready_for_xdp(lab):
    """A veth delivers redirected frames only to a peer with NAPI, and nobody finishes a checksum on the way. Tags have
    to be in the frame."""
    for role, dev, gro in (("ns1", "eth0", "on"), ("nsr2", "veth0", "on"), ("ns2", "eth0", "off")):
        lab[role].run("ethtool", "-K", dev, "gro", gro, "tx", "off", "txvlan", "off")


def set_mtus(lab, mtus):
    lab["ns1"].ip(f"link set eth0 mtu {mtus.outer}")
    lab["nsr1"].ip(f"link set veth0 mtu {mtus.outer}\nlink set veth1 mtu {mtus.link}")
    lab["nsr2"].ip(f"link set veth0 mtu {mtus.link}\nlink set veth1 mtu {mtus.remote}")
    lab["ns2"].ip(f"link set eth0 mtu {mtus.remote}")


def path_mtu_discovery(lab, row):
    """Off: the ends send without DF, and routers have to fragment. What the ends have learnt is forgotten."""
    for role in ("ns1", "ns2"):
        lab[role].sysctl_set("net/ipv4/ip_no_pmtu_disc", 0 if row.pmtu else 1)
        if row.family == 6:  # flush does not take away what was learnt
            lab[role].ip("\n".join(end_lines(role, "eth0")))
    for role in ("ns1", "nsr1", "nsr2", "ns2"):
        lab[role].sysctl_set("net/ipv4/route/flush", 1)
