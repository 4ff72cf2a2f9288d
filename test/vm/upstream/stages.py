# SPDX-License-Identifier: GPL-2.0-only
"""What rows add to the topology: a stage is a change of it for the length of a row."""
import contextlib
import functools

from lab import Failure, Skip
from topology import LINK, QINQ, ROUTED, ROUTERS, TUNNELS, VLAN, between, end_lines, gateway_lines, tunnel, underlay

# What iproute2 and the kernel say of devices and protocols they do not have.
NOT_HERE = ("unknown device type", "not supported", "function not implemented", "requested type not found")


def need(netns, lines, what):
    """ip(8); Skip when this kernel has no such thing, Failure when something else is wrong."""
    result = netns.run("ip", "-batch", "-", text="\n".join(lines) + "\n", ok=False)
    if result.returncode == 0:
        return
    if any(words in result.stderr.lower() for words in NOT_HERE):
        raise Skip(f"this kernel has no {what} ({result.stderr.strip().splitlines()[0]})")
    raise Failure(f"{what}: {result.stderr.strip()}")


@contextlib.contextmanager
def changed(lab, row):
    """The row's stages, and routes through what they put between the routers."""
    with contextlib.ExitStack() as stack:
        for stage in row.stages:
            stack.enter_context(STAGES[stage](lab, row))
        hop, family = between(row), row.family
        if hop != LINK:
            for end, role in enumerate(ROUTERS):
                lab[role].ip(f"route add {ROUTED[family][1 - end]} via {hop.addresses[family][1 - end]}")
        yield


@contextlib.contextmanager
def put_between(lab, hop, family, devices, what):
    """devices(end): (name, the rest of `ip link add`) from the lowest on, with which the others go."""
    try:
        for end, role in enumerate(ROUTERS):
            made = devices(end)
            need(lab[role], [f"link add name {name} {words}" for name, words in made] +
                 [f"link set {name} up" for name, _words in made] + [hop.address_line(end, family)], what)
        yield
    finally:
        for end, role in enumerate(ROUTERS):
            lab[role].ip(f"link del {devices(end)[0][0]}", ok=False)


def tunnel_between(lab, row):
    kind, below = tunnel(row), underlay(row)
    ends = below.addresses[kind.outer]

    def devices(end):
        return [("tun0", f"{kind.words} local {ends[end]} remote {ends[1 - end]}")]
    return put_between(lab, between(row), row.family, devices, kind.words)


def vlan(lab, row):
    def devices(end):
        return [(VLAN.devices[end], f"link {LINK.devices[end]} type vlan id 10")]
    return put_between(lab, VLAN, tunnel(row).outer if tunnel(row) else row.family, devices, "VLAN devices")


def qinq(lab, row):
    def devices(end):
        outer = f"{LINK.devices[end]}.5"
        return [(outer, f"link {LINK.devices[end]} type vlan proto 802.1ad id 5"),
                (QINQ.devices[end], f"link {outer} mtu {row.mtus.link - QINQ.shorter} type vlan id 10")]
    return put_between(lab, QINQ, tunnel(row).outer if tunnel(row) else row.family, devices, "802.1ad VLAN devices")


@contextlib.contextmanager
def bridge(lab, row, port="veth0", upper="br0", options="", vlans=""):
    """nsr1 has its addresses on a bridge, or on a VLAN device above it. Where port or upper are VLAN devices, ns1 has
    one as well. `vlans`: for bridge(8)."""
    router = lab["nsr1"]
    below = [] if port == "veth0" else [f"link add name {port} link veth0 type vlan id 10", f"link set {port} up"]
    tagged = below or upper != "br0"
    try:
        need(router, [*below, f"link add br0 type bridge {options}", *gateway_lines(0, "veth0", "del"),
                      f"link set {port} master br0", f"link set br0 mtu {row.mtus.outer}", "link set br0 up"], "bridge")
        # Else iptables and nft would change packets (DNAT) in the bridge already, before br0 has received them.
        with contextlib.suppress(FileNotFoundError):
            router.sysctl_set("net/bridge/bridge-nf-call-iptables", 0)
            router.sysctl_set("net/bridge/bridge-nf-call-ip6tables", 0)
        if vlans:
            router.run("bridge", "-batch", "-", text=vlans)
        if upper != "br0":
            need(router, [f"link add name {upper} link br0 type vlan id 10", f"link set {upper} up"], "VLAN devices")
        router.ip("\n".join(gateway_lines(0, upper)))
        if tagged:
            need(lab["ns1"], ["addr flush dev eth0 scope global", "link add name eth0.10 link eth0 type vlan id 10",
                              "link set eth0.10 up", *end_lines("ns1", "eth0.10")], "VLAN devices")
        yield
    finally:
        router.ip("link del br0", ok=False)
        if below:
            router.ip(f"link del {port}", ok=False)
        router.ip("\n".join(gateway_lines(0, "veth0")))
        if tagged:
            lab["ns1"].ip("link del eth0.10", ok=False)
            lab["ns1"].ip("\n".join(end_lines("ns1", "eth0")))


@contextlib.contextmanager
def ipsec(lab, _row, family=4):
    """An ESP tunnel between the routers for what goes from ns1's network to that of ns2 and back, in one family."""
    nets = dict(zip(ROUTERS, ROUTED[family]))
    near = dict(zip(ROUTERS, LINK.addresses[family]))
    spis = {"nsr1": 0x1001, "nsr2": 0x1002}  # of what this router sends
    cipher = f"enc cbc(aes) 0x{'5a' * 16} auth-trunc hmac(sha1) 0x{'a5' * 20} 96"
    try:
        for role, other in (ROUTERS, ROUTERS[::-1]):
            lines = [f"xfrm state add src {near[sender]} dst {near[receiver]} proto esp spi {spis[sender]} "
                     f"mode tunnel {cipher}" for sender, receiver in ((role, other), (other, role))]
            lines += [f"xfrm policy add src {nets[sender]} dst {nets[receiver]} dir {way} "
                      f"tmpl src {near[sender]} dst {near[receiver]} proto esp mode tunnel"
                      for sender, receiver, ways in ((role, other, ("out",)), (other, role, ("in", "fwd")))
                      for way in ways]
            need(lab[role], lines, "ESP")
        yield
    finally:
        for role in ROUTERS:
            lab[role].ip("xfrm policy flush\nxfrm state flush", ok=False)


@contextlib.contextmanager
def direct_return(lab, row):
    """ns2 answers ns1 by a link of their own: nsr1 sees one direction only."""
    near, far, prefix = {4: ("10.0.9.1", "10.0.9.2", 24), 6: ("dead:9::1", "dead:9::2", 64)}[row.family]
    lab.veth("ns1", "back0", "ns2", "back0")
    try:
        lab["ns1"].ip(f"addr add {near}/{prefix} dev back0")
        lab["ns2"].ip(f"addr add {far}/{prefix} dev back0\n"
                      f"route add {ROUTED[row.family][0]} via {near}")
        yield
    finally:
        lab["ns2"].ip("link del back0", ok=False)


STAGES = {
    **dict.fromkeys(TUNNELS, tunnel_between), "vlan": vlan, "qinq": qinq,
    "bridge": bridge,
    "bridge-over-vlan": functools.partial(bridge, port="veth0.10"),
    "bridge-aware": functools.partial(bridge, options="vlan_filtering 1"),
    "bridge-tagged": functools.partial(bridge, upper="br0.10", options="vlan_filtering 1", vlans="""
        vlan add dev br0 vid 10 self
        vlan add dev veth0 vid 10
        """),
    "ipsec": ipsec, "ipsec-ipv6": functools.partial(ipsec, family=6), "direct-return": direct_return,
}
