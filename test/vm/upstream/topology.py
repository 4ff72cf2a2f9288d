# SPDX-License-Identifier: GPL-2.0-only
"""The topology of the acceptance rows, and what some of them add to it.

    ns1 eth0 ---- veth0 nsr1 veth1 ---- veth0 nsr2 veth1 ---- eth0 ns2
         MTU "outer"              MTU "link"            MTU "remote"

ftctl runs on nsr1. A stage is a change of the topology for the length of a row.
"""
import contextlib
import dataclasses

from lab import Failure, Lab, Skip

PORT = 12345
DNAT_ADDR, DNAT_PORT = "10.6.6.6", 1666
# What iproute2 and the kernel say of devices and protocols they do not have.
NOT_HERE = ("unknown device type", "not supported", "function not implemented", "requested type not found")


@dataclasses.dataclass(frozen=True)
class Family:
    """Addresses in the order of the picture."""
    version: int
    ns1: str
    near: str  # veth0 of nsr1
    nsr1: str
    nsr2: str
    far: str  # veth1 of nsr2
    ns2: str
    net1: str
    net2: str
    tunnel: tuple  # of nsr1 and nsr2 in tun0
    tagged: tuple  # on their VLAN devices
    back: tuple  # ns1's and ns2's on the link of their own

    def on(self, address):
        """As `ip addr add` has it."""
        return address + ("/24" if self.version == 4 else "/64 nodad")


V4 = Family(4, "10.0.1.99", "10.0.1.1", "192.168.10.1", "192.168.10.2", "10.0.2.1", "10.0.2.99", "10.0.1.0/24",
            "10.0.2.0/24", ("192.168.100.1", "192.168.100.2"), ("192.168.20.1", "192.168.20.2"),
            ("10.0.9.1", "10.0.9.2"))
V6 = Family(6, "dead:1::99", "dead:1::1", "fee1:2::1", "fee1:2::2", "dead:2::1", "dead:2::99", "dead:1::/64",
            "dead:2::/64", ("fee1:3::1", "fee1:3::2"), ("fee1:4::1", "fee1:4::2"), ("dead:9::1", "dead:9::2"))


@dataclasses.dataclass(frozen=True)
class Tunnel:
    """The kernel's device between the routers."""
    device: str
    inner: Family
    outer: Family
    room: int


IPIP = Tunnel("ipip", V4, V4, 20)
IP6IP6 = Tunnel("ip6tnl mode ip6ip6 encaplimit none", V6, V6, 40)
IP6IP6_LIMIT = Tunnel("ip6tnl mode ip6ip6 encaplimit 4", V6, V6, 48)
IPV4_IN_6 = Tunnel("ip6tnl mode ipip6 encaplimit none", V4, V6, 40)
IPV6_IN_4 = Tunnel("sit ttl 255", V6, V4, 20)


@dataclasses.dataclass(frozen=True)
class Mtus:
    outer: int = 9000
    link: int = 1500
    remote: int = 2000

    def __str__(self):
        return f"{self.outer}/{self.link}/{self.remote}"


def build():
    """The four namespaces; nothing attached yet."""
    lab = Lab("ns1", "nsr1", "nsr2", "ns2", router="nsr1", tag="up", ipv6=True)
    try:
        lab.veth("ns1", "eth0", "nsr1", "veth0")
        lab.veth("nsr1", "veth1", "nsr2", "veth0")
        lab.veth("nsr2", "veth1", "ns2", "eth0")
        for ip in (V4, V6):
            for role, device, address in (("ns1", "eth0", ip.ns1), ("nsr1", "veth0", ip.near),
                                          ("nsr1", "veth1", ip.nsr1), ("nsr2", "veth0", ip.nsr2),
                                          ("nsr2", "veth1", ip.far), ("ns2", "eth0", ip.ns2)):
                lab[role].ip(f"addr add {ip.on(address)} dev {device}")
            for role, gateway in (("ns1", ip.near), ("nsr1", ip.nsr2), ("nsr2", ip.nsr1), ("ns2", ip.far)):
                lab[role].ip(f"route add default via {gateway}")
        for role in ("nsr1", "nsr2"):
            lab[role].sysctl(net_ipv4_ip_forward=1)
            lab[role].sysctl_set("net/ipv6/conf/all/forwarding", 1)
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
        for family in ("ipv4", "ipv6"):
            lab[role].sysctl_set(f"net/{family}/route/flush", 1)


def need(netns, line, what):
    """ip(8); Skip when this kernel has no such thing, Failure when something else is wrong."""
    result = netns.run("ip", "-batch", "-", text="\n".join(part.strip() for part in line.splitlines()) + "\n", ok=False)
    if result.returncode == 0:
        return
    if any(words in result.stderr.lower() for words in NOT_HERE):
        raise Skip(f"this kernel has no {what} ({result.stderr.strip().splitlines()[0]})")
    raise Failure(f"{what}: {result.stderr.strip()}")


@contextlib.contextmanager
def tunnel(lab, row):
    """tun0 between the routers; what goes to the other side goes through it."""
    kind = row.tunnel
    inner, outer = kind.inner, kind.outer
    below = outer.tagged if "vlan" in row.stages else (outer.nsr1, outer.nsr2)
    try:
        for role, local, remote, address, peer, net in (
                ("nsr1", *below, *inner.tunnel, inner.net2), ("nsr2", *below[::-1], *inner.tunnel[::-1], inner.net1)):
            need(lab[role], f"""link add tun0 type {kind.device} local {local} remote {remote}
                addr add {inner.on(address)} dev tun0
                link set tun0 up
                route add {net} via {peer} dev tun0""", f"{kind.device.split()[0]} device")
        yield
    finally:
        for role in ("nsr1", "nsr2"):
            lab[role].ip("link del tun0", ok=False)


@contextlib.contextmanager
def vlan(lab, row):
    """The routers see each other in a VLAN (or one inside of another) only."""
    tags = (("802.1ad", 100), ("802.1Q", 10)) if "qinq" in row.stages else (("802.1Q", 10),)
    try:
        for role, device, own, other in (("nsr1", "veth1", 0, 1), ("nsr2", "veth0", 1, 0)):
            below = device
            for number, (protocol, vid) in enumerate(tags, 1):
                name = "tagged" if number == len(tags) else "outer-tag"
                need(lab[role], f"""link add link {below} name {name} type vlan proto {protocol} id {vid}
                    link set {name} up""", "VLAN device")
                below = name
            for ip in (V4, V6):
                net = (ip.net2, ip.net1)[own]
                lab[role].ip(f"addr add {ip.on(ip.tagged[own])} dev tagged")
                if not row.tunnel:
                    lab[role].ip(f"route add {net} via {ip.tagged[other]}")
        yield
    finally:
        for role in ("nsr1", "nsr2"):
            lab[role].ip("link del tagged", ok=False)
            lab[role].ip("link del outer-tag", ok=False)


@contextlib.contextmanager
def bridge(lab, row):
    """nsr1 has its addresses on a bridge with veth0 as port, or a VLAN device on it (and ns1 the like)."""
    router, port = lab["nsr1"], "veth0"
    mtu = router.ip_json("link show dev veth0")[0]["mtu"]
    with contextlib.ExitStack() as stack:
        if "inside-vlan" in row.stages:
            port = "veth0.10"
            for role, below, name in (("nsr1", "veth0", port), ("ns1", "eth0", "eth0.10")):
                stack.callback(lab[role].ip, f"link del {name}", ok=False)
                need(lab[role], f"link add link {below} name {name} type vlan id 10\nlink set {name} up", "VLAN device")
            stack.enter_context(moved(lab["ns1"], "eth0", "eth0.10", "ns1", lambda ip: ip.near))
        stack.callback(router.ip, "link del br0", ok=False)
        need(router, f"link add br0 type bridge\nlink set {port} master br0\nlink set br0 mtu {mtu}\nlink set br0 up",
             "bridge")
        stack.enter_context(moved(router, "veth0", "br0", "near"))
        # Else iptables and nft would change packets (DNAT) in the bridge already, before br0 has received them.
        with contextlib.suppress(FileNotFoundError):
            for name in ("iptables", "ip6tables"):
                router.sysctl_set(f"net/bridge/bridge-nf-call-{name}", 0)
        yield


@contextlib.contextmanager
def moved(netns, old, new, which, gateway=None):
    """The addresses of a device are on another one."""
    def move(before, after):
        for ip in (V4, V6):
            address = ip.on(getattr(ip, which))
            netns.ip(f"addr del {address.split()[0]} dev {before}", ok=False)
            netns.ip(f"addr replace {address} dev {after}")
            if gateway:
                netns.ip(f"route replace default via {gateway(ip)}")

    move(old, new)
    try:
        yield
    finally:
        move(new, old)


@contextlib.contextmanager
def ipsec(lab, _row):
    """An ESP tunnel between the routers for what goes from 10.0.1.0/24 to 10.0.2.0/24 and back."""
    nets = {"nsr1": V4.net1, "nsr2": V4.net2}
    near = {"nsr1": V4.nsr1, "nsr2": V4.nsr2}
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
def direct_return(lab, _row):
    """ns2 answers ns1 by a link of their own: nsr1 sees one direction only."""
    lab.veth("ns1", "back0", "ns2", "back0")
    try:
        for ip in (V4, V6):
            for role, address in zip(("ns1", "ns2"), ip.back):
                lab[role].ip(f"addr add {ip.on(address)} dev back0")
            lab["ns2"].ip(f"route add {ip.net1} via {ip.back[0]}")
        yield
    finally:
        lab["ns2"].ip("link del back0", ok=False)


STAGES = {"vlan": vlan, "tunnel": tunnel, "bridge": bridge, "ipsec": ipsec, "direct-return": direct_return}


def stages(row):
    """In the order in which they stand on one another."""
    names = [name for name in STAGES if name in row.stages or (name == "tunnel" and row.tunnel)]
    return [STAGES[name] for name in names]
