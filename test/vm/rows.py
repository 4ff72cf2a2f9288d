# SPDX-License-Identifier: GPL-2.0-only
"""The rows of the oracle (tests/oracle.py): what is between L, R and W, and how R is set up. A row is a Variant of the
differential test (test/net/same_variants.py); another encapsulation is one more row."""
import dataclasses
import functools

import sessions
from lab import Netns, wait_until
from same_ip import V4, V6
from same_lab import LINK_MTU, MACS
from same_variants import Variant
from wires import Session, Tagged

MACS_AT = {"ra": 10, "rb": 20}  # VLANs of the bridge


# ------------------------------------------------------------------ what is between L, R and W

def vlan_bridge(router):
    """Both of R's ports are plugged into one VLAN-aware bridge, L and W into other ports of it."""
    router.spaces["B"] = bridge = Netns(router, "B")
    bridge.ip("link add br0 type bridge vlan_filtering 1 vlan_default_pvid 0 mcast_snooping 0\n"
              f"link set br0 mtu {LINK_MTU} up")
    for side, end, peer in (("L", "la", "ra"), ("W", "wa", "rb")):
        vid, ports = MACS_AT[peer], (f"to-{end}", f"to-{peer}")
        router.veth(side, end, "B", ports[0], f"mtu {LINK_MTU} address {MACS[end].hex(':')}")
        router.veth("R", peer, "B", ports[1], f"address {MACS[peer].hex(':')}")
        router.prepare_end(side, end)
        bridge.ip("\n".join(f"link set {port} mtu {LINK_MTU} master br0" for port in ports))
        # L and W send with any source address: nothing is learnt from that.
        bridge.run("bridge", "-batch", "-", text="".join(
            f"vlan add dev {port} vid {vid} pvid untagged\nlink set dev {port} learning off\n"
            f"fdb replace {MACS[dev].hex(':')} dev {port} master static vlan {vid}\n"
            for port, dev in zip(ports, (end, peer))))


def bond(router):
    """R's way to W is a bond of one port."""
    router.wires()
    router["R"].ip("link add bond0 type bond mode active-backup miimon 20\nlink set rb down\n"
                   "link set rb master bond0\nlink set bond0 up")
    wait_until(lambda: router["R"].ip_json("link show dev bond0")[0]["operstate"] == "UP", 10, "bond0 has a carrier")


def vrf(router):
    """Both of R's devices are in a VRF."""
    router.wires()
    router["R"].ip("link add vrf1 type vrf table 10\nlink set vrf1 up\nlink set ra master vrf1\nlink set rb master vrf1")


def vlans(router, *, tags):
    """R's way to W is a VLAN device, or one on another: tags are (protocol, VID), outermost first. W's end sees what
    has these tags only, without them."""
    router.veth("L", "la", "R", "ra", f"mtu {LINK_MTU} address {MACS['la'].hex(':')}", f"address {MACS['ra'].hex(':')}")
    router.prepare_end("L", "la")
    router.veth("W", "wa0", "R", "rb", f"mtu {LINK_MTU} address {MACS['wa'].hex(':')}",
                f"mtu {LINK_MTU} address {MACS['rb'].hex(':')}")
    for side, below, top in (("W", "wa0", "wa"), ("R", "rb", "wan")):
        for number, (proto, vid) in enumerate(tags):
            name = top if number == len(tags) - 1 else f"v{vid}"
            router[side].ip(f"link add link {below} name {name} type vlan proto {proto} id {vid}\nlink set {name} up")
            below = name
    router.prepare_end("W", "wa")


def pppoe(router, *, vid=0):
    """R's way to W is a PPPoE session of pppd, with pppd at the other end (behind pppoe-server); the data are W's own.
    With a VID: over that VLAN."""
    router.wires()
    router["R"].ip(f"link set rb mtu {LINK_MTU}")
    below = {"R": "rb", "W": "wa"}
    if vid:
        for side, dev in list(below.items()):
            below[side] = f"{dev}.{vid}"
            router[side].ip(f"link add link {dev} name {dev}.{vid} type vlan id {vid}\nlink set {dev}.{vid} up")
    sessions.serve(router, "W", below["W"])
    sessions.dial(router, "R", below["R"], ipv6=router.variant.ip is V6)
    session = Session(next(iter(sessions.listed(router, "R"))))
    router.wire["W"] = Tagged(vid, session) if vid else session


def own_bridge(router, *, vid=0, tagged=False):
    """R's way to W is a bridge of its own, whose port is rb; with a VID it filters VLANs, and the port is of that one:
    untagged, the bridge's PVID, or tagged, below a VLAN device."""
    router.wires()
    flags = "" if tagged else "pvid untagged"
    router["R"].ip(f"link set rb address 02:00:00:00:0b:99 mtu {LINK_MTU}\n"
                   f"link add br0 address {MACS['rb'].hex(':')} type bridge forward_delay 0 mcast_snooping 0 "
                   f"vlan_filtering {int(bool(vid))} vlan_default_pvid 0\nlink set rb master br0\nlink set br0 up")
    lines = f"vlan add dev rb vid {vid} {flags}\nvlan add dev br0 vid {vid} self {flags}\n" if vid else ""
    # W sends with any source address: nothing is learnt from that.
    router["R"].run("bridge", "-batch", "-", text=f"{lines}link set dev rb learning off\n"
                    f"fdb replace {MACS['wa'].hex(':')} dev rb master static {f'vlan {vid}' if vid else ''}\n")
    if tagged:
        router["R"].ip(f"link add link br0 name wan type vlan id {vid}\nlink set wan up")
        router.wire["W"] = Tagged(vid)


DOT1Q = functools.partial(vlans, tags=(("802.1Q", 10),))
PPPOE_VLAN = functools.partial(pppoe, vid=7)
PRIORITIES = "link set wan type vlan egress-qos-map 0:3 2:1 4:5 6:7"
IN_VLAN = {"links": DOT1Q, "outside": "wan", "hear": "wa0"}
QINQ = functools.partial(vlans, tags=(("802.1ad", 100), ("802.1Q", 20)))


# ------------------------------------------------------------------ the table

@dataclasses.dataclass(frozen=True)
class Row(Variant):
    quick: bool = False  # in the default set
    from_lan: int = 1
    hook: str = "tc"


# The kernel's tunnel devices: what `ip link add` calls them, the families inside and outside.
KINDS = {"ipip": ("ipip", V4, V4), "ip6ip6": ("ip6tnl mode ip6ip6", V6, V6), "4in6": ("ip6tnl mode ipip6", V4, V6),
         "6in4": ("sit mode ip6ip", V6, V4), "any-4": ("ip6tnl mode any", V4, V6), "any-6": ("ip6tnl mode any", V6, V6)}


def tunnel(name, words, kind="ipip", ends="local {outer.r_wan} remote {outer.w_host}", **more):
    """A row with one of these; words follow addresses in `ip link add`."""
    device, inner, outer = KINDS[kind]
    limit = outer is V6 and "encaplimit none" not in words
    return Row(name, ip=inner, tunnel=True, outer=outer, encaplimit=limit,
               device=f"type {device} {ends.format(outer=outer)} {words}", **more)


def kinds(kind, *rows):
    """Rows of one kind: (rest of the name, words, settings)."""
    return tuple(tunnel(f"{kind}-{name}", words, kind, **more) for name, words, more in rows)


def ruled(name, rule, **more):
    """Main has another way to W; a rule leads to the right one."""
    return Row(name, extra=f"rule add {rule} lookup 100\nroute add 198.51.100.0/24 dev rb table 100\n"
                           "route add 192.0.2.0/24 dev ra table 100\nroute add 198.51.100.2/32 via 192.0.2.9 dev ra",
               **more)


# What has no meaning in a session: other EtherTypes, tags inside, other MAC addresses' frames, ARP.
PPP_WITHOUT = ("etype", "vlan", "arp")
NAT = {"none": {}, "masquerade": {"masquerade": True}, "dnat": {"dnat": True}, "both": {"dnat": True, "ports": True}}

ROWS = {row.name: row for row in (
    # Plain forwarding, all forms of NAT, by this kernel.
    *(Row(f"nat-{name}", **nat, l4_checks=name == "dnat") for name, nat in NAT.items()),
    Row("route-mtu", extra="route add 198.51.100.2/32 dev rb mtu 1300", limit=1300, masquerade=True),
    Row("route-mtu-lock", extra="route add 198.51.100.2/32 dev rb mtu lock 1300", limit=1300),

    # The kernel's own ipip device.
    tunnel("ipip-inherit", "tos inherit ttl inherit", quick=True, **NAT["both"]),
    tunnel("ipip-fixed", "tos 0x48 ttl 33", quick=True, **NAT["masquerade"], lan_mtu=1400),
    tunnel("ipip-tos-inherit", "tos inherit ttl 65", **NAT["dnat"]),
    tunnel("ipip-ttl-inherit", "tos 0xb8 ttl inherit", **NAT["none"], wan_mtu=1400),
    tunnel("ipip-nopmtudisc", "tos inherit ttl inherit nopmtudisc", quick=True),
    tunnel("ipip-nopmtudisc-nat", "ttl inherit nopmtudisc", **NAT["both"]),
    # The tunnel takes more than fits: without DF the outer packet leaves in fragments.
    tunnel("ipip-outer-fragments", "nopmtudisc", extra="link set tun0 mtu 1500", limit=1480),
    tunnel("ipip-small", "tos inherit", extra="link set tun0 mtu 1300", limit=1300, **NAT["masquerade"]),
    tunnel("ipip-route-mtu", "", extra="route add 198.51.100.2/32 dev rb mtu 1400", limit=1380, **NAT["dnat"]),
    tunnel("ipip-learnt", "tos inherit", learnt=1400, limit=1380, quick=True, **NAT["both"]),
    tunnel("ipip-device", "dev rb", **NAT["none"]),
    tunnel("ipip-any-local", "", ends="remote {outer.w_host}", **NAT["masquerade"]),
    tunnel("ipip-fwmark", "fwmark 5", refused="tunnel"),

    # ip6tnl with IPv6 inside. Without a label of its own it takes what R's settings say: none, or one that R draws.
    *kinds("ip6ip6",
           ("inherit", "encaplimit none tclass inherit flowlabel inherit hoplimit 0", NAT["none"]),
           ("fixed", "encaplimit 4 tclass 0xb8 flowlabel 0x12345 hoplimit 33", {"quick": True, **NAT["both"]}),
           ("limit", "encaplimit 7 tclass inherit hoplimit 0", {"lan_mtu": 1400, **NAT["masquerade"]}),
           ("label", "encaplimit none tclass 0x48 flowlabel inherit hoplimit 64", {"wan_mtu": 1400, **NAT["dnat"]}),
           ("drawn", "encaplimit 4 tclass inherit", {"labels": 1, **NAT["masquerade"]}),
           ("small", "encaplimit none", {"extra": "link set tun0 mtu 1300", "limit": 1300, **NAT["masquerade"]}),
           ("route-mtu", "encaplimit 4",
            {"extra": f"route add {V6.w_host}/128 dev rb mtu 1400", "limit": 1352, **NAT["both"]}),
           ("learnt", "encaplimit none tclass inherit", {"learnt": 1400, "limit": 1360, **NAT["both"]}),
           ("device", "encaplimit none dev rb", NAT["none"]),
           ("fwmark", "fwmark 5", {"refused": "tunnel"}),
           ("dscp-copy", "dscp inherit", {"refused": "tunnel"}),
           ("xdp", "encaplimit 4 tclass inherit hoplimit 0", {"hook": "xdp", "without": ("frags",), **NAT["both"]})),

    # ip6tnl with IPv4 inside. Larger packets are answered with ICMP, with DF or without.
    *kinds("4in6",
           ("inherit", "encaplimit 4 tclass inherit flowlabel inherit hoplimit 0", NAT["masquerade"]),
           ("fixed", "encaplimit none tclass 0x48 flowlabel 0x54321 hoplimit 33", {"quick": True, **NAT["both"]}),
           ("limit", "encaplimit 4 tclass 0xb8 hoplimit 64", {"wan_mtu": 1400, **NAT["none"]}),
           ("drawn", "encaplimit none tclass inherit hoplimit 0", {"labels": 1, "lan_mtu": 1400, **NAT["dnat"]}),
           ("small", "encaplimit 4", {"extra": "link set tun0 mtu 1300", "limit": 1300, **NAT["masquerade"]}),
           ("learnt", "encaplimit 4", {"learnt": 1400, "limit": 1352, **NAT["both"]}),
           ("xdp", "encaplimit none tclass inherit hoplimit 0",
            {"hook": "xdp", "without": ("frags",), **NAT["masquerade"]})),

    # A device that takes both.
    tunnel("any-4", "encaplimit 4 tclass inherit hoplimit 0", "any-4", **NAT["masquerade"]),
    tunnel("any-6", "encaplimit none hoplimit 40", "any-6", **NAT["both"]),

    # sit.
    *kinds("6in4",
           ("inherit", "tos inherit ttl inherit", NAT["masquerade"]),
           ("fixed", "tos 0x48 ttl 33", {"quick": True, **NAT["both"]}),
           ("tos-inherit", "tos inherit ttl 65", {"lan_mtu": 1400, **NAT["none"]}),
           ("ttl-inherit", "tos 0xb8 ttl inherit", {"wan_mtu": 1400, **NAT["dnat"]}),
           ("small", "tos inherit", {"extra": "link set tun0 mtu 1300", "limit": 1300, **NAT["masquerade"]}),
           ("route-mtu", "", {"extra": f"route add {V4.w_host} dev rb mtu 1400", "limit": 1380, **NAT["dnat"]}),
           ("learnt", "tos inherit", {"learnt": 1400, "limit": 1380, **NAT["both"]}),
           ("device", "dev rb", NAT["none"]),
           ("nopmtudisc", "ttl inherit nopmtudisc", {"refused": "tunnel"}),
           ("fwmark", "fwmark 5", {"refused": "tunnel"}),
           ("xdp", "tos inherit ttl inherit", {"hook": "xdp", "without": ("frags",), **NAT["masquerade"]})),

    # At XDP, where the programs reach the frame before the kernel does.
    Row("xdp", hook="xdp", **NAT["both"]),
    # A veth with an XDP program copies packets to where there is more headroom, and by that ip_do_fragment() decides
    # whether fragments that conntrack has put together leave as they came or are cut anew.
    tunnel("ipip-xdp", "tos inherit ttl inherit", hook="xdp", quick=True, without=("frags",), **NAT["masquerade"]),

    # A bridge with VLAN filtering below the router. Tags of the port's own VLAN end there.
    Row("bridge", links=vlan_bridge, quick=True, doubt=("vlan",), **NAT["masquerade"]),
    tunnel("bridge-ipip", "tos inherit", links=vlan_bridge, doubt=("vlan",), **NAT["both"]),
    tunnel("bridge-6in4", "tos inherit", "6in4", links=vlan_bridge, doubt=("vlan",), **NAT["both"]),

    # A bridge of the router's own: the path ends at its port.
    Row("own-bridge", links=own_bridge, outside="br0", attach=("ra", "br0"), quick=True, **NAT["both"]),
    Row("own-bridge-pvid", links=functools.partial(own_bridge, vid=10), outside="br0", **NAT["masquerade"]),
    Row("own-bridge-trunk", links=functools.partial(own_bridge, vid=10, tagged=True), outside="wan",
        extra="link set wan type vlan egress-qos-map 0:2 6:7", **NAT["dnat"]),
    tunnel("own-bridge-ipip", "tos inherit", links=functools.partial(own_bridge, vid=10), outside="br0", **NAT["both"]),
    Row("own-bridge-xdp", hook="xdp", links=own_bridge, outside="br0", **NAT["masquerade"]),

    # VLAN devices of R; ftctl is attached to what is below them, or to the VLAN device itself.
    Row("vlan", **IN_VLAN, quick=True, **NAT["both"]),
    Row("qinq", links=QINQ, outside="wan", **NAT["masquerade"]),
    Row("vlan-itself", **IN_VLAN, attach=("ra", "wan"), **NAT["masquerade"]),
    tunnel("vlan-ipip", "tos inherit", **IN_VLAN, **NAT["both"]),
    tunnel("qinq-ipip", "ttl 40", links=QINQ, outside="wan", **NAT["dnat"]),
    tunnel("vlan-ip6ip6", "encaplimit 4", "ip6ip6", **IN_VLAN, **NAT["masquerade"]),
    tunnel("qinq-4in6", "encaplimit none", "4in6", links=QINQ, outside="wan", **NAT["both"]),
    Row("vlan-priorities", **IN_VLAN, extra=PRIORITIES, **NAT["masquerade"]),
    Row("vlan-priorities6", V6, **IN_VLAN, extra=PRIORITIES),
    tunnel("vlan-priorities-ipip", "tos inherit", **IN_VLAN, extra=PRIORITIES),

    # PPPoE, with pppd at both ends.
    Row("pppoe", links=pppoe, outside="ppp0", wan_mtu=1492, without=PPP_WITHOUT, **NAT["both"]),
    Row("pppoe-vlan", links=PPPOE_VLAN, outside="ppp0", wan_mtu=1492, without=PPP_WITHOUT, **NAT["masquerade"]),
    tunnel("pppoe-ipip", "tos inherit", links=pppoe, outside="ppp0", wan_mtu=1492, without=PPP_WITHOUT, **NAT["dnat"]),
    Row("pppoe-6", ip=V6, links=pppoe, outside="ppp0", wan_mtu=1492, without=PPP_WITHOUT),
    Row("pppoe-xdp", hook="xdp", links=pppoe, outside="ppp0", wan_mtu=1492, without=(*PPP_WITHOUT, "frags"),
        **NAT["masquerade"]),

    # Policy routing: right where the rule asks what the daemon knows, else refused.
    ruled("rule-from", "from 192.0.2.2", **NAT["masquerade"]),
    ruled("rule-to", "to 198.51.100.0/24", **NAT["dnat"]),
    ruled("rule-iif", "iif ra", **NAT["both"]),
    Row("rule-ports", extra="rule add ipproto udp dport 4000-4003 lookup 100\n"
                            "route add 198.51.100.0/24 dev rb table 100"),
    Row("rule-fwmark", extra="rule add fwmark 7 lookup 100", refused="policy-routed", quick=True),
    Row("rule-tos", extra="rule add tos 0x10 lookup 100", refused="policy-routed"),
    Row("route-tos", extra="route add 198.51.100.2/32 tos 0x10 dev rb", refused="policy-routed"),

    # Devices with a master.
    Row("vrf", links=vrf, unattachable="port of vrf1"),
    Row("bond-port", links=bond, outside="bond0", unattachable="port of bond0"),
    Row("bond", links=bond, outside="bond0", attach=("ra", "bond0"), **NAT["masquerade"]),
)}
