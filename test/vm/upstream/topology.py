# SPDX-License-Identifier: GPL-2.0-only
"""The topology of the acceptance rows, and what some of them add to it.

    ns1 eth0 ---- veth0 nsr1 veth1 ---- veth0 nsr2 veth1 ---- eth0 ns2
    10.0.1.99     10.0.1.1   192.168.10.1     .2   10.0.2.1   10.0.2.99
         MTU "outer"              MTU "link"            MTU "remote"

ftctl runs on nsr1. A stage is a change of the topology for the length of a row.
"""
import contextlib
import dataclasses

from lab import Failure, Lab, Skip

NS1, NS2 = "10.0.1.99", "10.0.2.99"
NSR1, NSR2 = "192.168.10.1", "192.168.10.2"
TUN1, TUN2 = "192.168.100.1", "192.168.100.2"
PORT = 12345
DNAT_ADDR, DNAT_PORT = "10.6.6.6", 1666
# What iproute2 and the kernel say of devices and protocols they do not have.
NOT_HERE = ("unknown device type", "not supported", "function not implemented", "requested type not found")


@dataclasses.dataclass(frozen=True)
class Mtus:
    outer: int = 9000
    link: int = 1500
    remote: int = 2000

    def __str__(self):
        return f"{self.outer}/{self.link}/{self.remote}"


def build():
    """The four namespaces; nothing attached yet."""
    lab = Lab("ns1", "nsr1", "nsr2", "ns2", router="nsr1", tag="up")
    try:
        lab.veth("ns1", "eth0", "nsr1", "veth0")
        lab.veth("nsr1", "veth1", "nsr2", "veth0")
        lab.veth("nsr2", "veth1", "ns2", "eth0")
        lab["ns1"].ip(f"addr add {NS1}/24 dev eth0\nroute add default via 10.0.1.1")
        lab["nsr1"].ip(f"""addr add 10.0.1.1/24 dev veth0
            addr add {NSR1}/24 dev veth1
            route add default via {NSR2}""")
        lab["nsr2"].ip(f"""addr add {NSR2}/24 dev veth0
            addr add 10.0.2.1/24 dev veth1
            route add default via {NSR1}""")
        lab["ns2"].ip(f"addr add {NS2}/24 dev eth0\nroute add default via 10.0.2.1")
        for role in ("nsr1", "nsr2"):
            lab[role].sysctl(net_ipv4_ip_forward=1)
    except BaseException:
        lab.close()
        raise
    return lab


def make_ready_for_xdp(lab):
    """A veth delivers redirected frames only to a peer with NAPI, and nobody finishes a checksum on the way."""
    for role, dev, gro in (("ns1", "eth0", "on"), ("nsr2", "veth0", "on"), ("ns2", "eth0", "off")):
        lab[role].run("ethtool", "-K", dev, "gro", gro, "tx", "off")


def set_mtus(lab, mtus):
    lab["ns1"].ip(f"link set eth0 mtu {mtus.outer}")
    lab["nsr1"].ip(f"link set veth0 mtu {mtus.outer}\nlink set veth1 mtu {mtus.link}")
    lab["nsr2"].ip(f"link set veth0 mtu {mtus.link}\nlink set veth1 mtu {mtus.remote}")
    lab["ns2"].ip(f"link set eth0 mtu {mtus.remote}")


def path_mtu_discovery(lab, on):
    """Off: the ends send without DF, and routers have to fragment. What the ends have learnt is forgotten."""
    for role in ("ns1", "ns2"):
        lab[role].sysctl_set("net/ipv4/ip_no_pmtu_disc", 0 if on else 1)
    for role in ("ns1", "nsr1", "nsr2", "ns2"):
        lab[role].sysctl_set("net/ipv4/route/flush", 1)


def need(netns, line, what):
    """ip(8); Skip when this kernel has no such thing, Failure when something else is wrong."""
    result = netns.run("ip", "-batch", "-", text="\n".join(part.strip() for part in line.splitlines()) + "\n", ok=False)
    if result.returncode == 0:
        return
    if any(words in result.stderr.lower() for words in NOT_HERE):
        raise Skip(f"this kernel has no {what} ({result.stderr.strip().splitlines()[0]})")
    raise Failure(f"{what}: {result.stderr.strip()}")


@contextlib.contextmanager
def ipip(lab):
    """tun0 between the routers; what goes to the other side goes through it."""
    ends = (("nsr1", NSR1, NSR2, TUN1, TUN2, "10.0.2.0/24"), ("nsr2", NSR2, NSR1, TUN2, TUN1, "10.0.1.0/24"))
    try:
        for role, local, remote, address, peer, net in ends:
            need(lab[role], f"""link add tun0 type ipip local {local} remote {remote}
                addr add {address}/24 dev tun0
                link set tun0 up
                route add {net} via {peer}""", "ipip device")
        yield
    finally:
        for role, *_ in ends:
            lab[role].ip("link del tun0", ok=False)


@contextlib.contextmanager
def bridge(lab):
    """nsr1 has its address on a bridge with veth0 as port."""
    router = lab["nsr1"]
    mtu = router.ip_json("link show dev veth0")[0]["mtu"]
    try:
        need(router, f"""link add br0 type bridge
            addr del 10.0.1.1/24 dev veth0
            link set veth0 master br0
            link set br0 mtu {mtu}
            addr add 10.0.1.1/24 dev br0
            link set br0 up""", "bridge")
        # Else iptables and nft would change packets (DNAT) in the bridge already, before br0 has received them.
        with contextlib.suppress(FileNotFoundError):
            router.sysctl_set("net/bridge/bridge-nf-call-iptables", 0)
        yield
    finally:
        router.ip("link del br0", ok=False)
        router.ip("addr replace 10.0.1.1/24 dev veth0")


@contextlib.contextmanager
def ipsec(lab):
    """An ESP tunnel between the routers for what goes from 10.0.1.0/24 to 10.0.2.0/24 and back."""
    nets = {"nsr1": "10.0.1.0/24", "nsr2": "10.0.2.0/24"}
    near = {"nsr1": NSR1, "nsr2": NSR2}
    spis = {"nsr1": 0x1001, "nsr2": 0x1002}  # of what this router sends
    cipher = f"enc cbc(aes) 0x{'5a' * 16} auth-trunc hmac(sha1) 0x{'a5' * 20} 96"
    try:
        for role, other in (("nsr1", "nsr2"), ("nsr2", "nsr1")):
            lines = [f"xfrm state add src {near[sender]} dst {near[receiver]} proto esp spi {spis[sender]} "
                     f"mode tunnel {cipher}" for sender, receiver in ((role, other), (other, role))]
            lines += [f"xfrm policy add src {nets[sender]} dst {nets[receiver]} dir {way} "
                      f"tmpl src {near[sender]} dst {near[receiver]} proto esp mode tunnel"
                      for sender, receiver, ways in ((role, other, ("out",)), (other, role, ("in", "fwd")))
                      for way in ways]
            need(lab[role], "\n".join(lines), "ESP")
        yield
    finally:
        for role in near:
            lab[role].ip("xfrm policy flush\nxfrm state flush", ok=False)


@contextlib.contextmanager
def direct_return(lab):
    """ns2 answers ns1 by a link of their own: nsr1 sees one direction only."""
    lab.veth("ns1", "back0", "ns2", "back0")
    try:
        lab["ns1"].ip("addr add 10.0.9.1/24 dev back0")
        lab["ns2"].ip("addr add 10.0.9.2/24 dev back0\nroute add 10.0.1.0/24 via 10.0.9.1")
        yield
    finally:
        lab["ns2"].ip("link del back0", ok=False)


STAGES = {"ipip": ipip, "bridge": bridge, "ipsec": ipsec, "direct-return": direct_return}
