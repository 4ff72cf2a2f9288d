# SPDX-License-Identifier: GPL-2.0-only
"""The table of acceptance rows. To add one: a line here, and a stage in topology.py where it needs other devices."""
import dataclasses
import random

from topology import Mtus, between, tunnel

MIB = 1 << 20
IPV6_LEAST = 1280
FRAGMENTED = {"pmtu": False, "size": MIB // 4}  # fragments are slow everywhere
# What a row expects of ftctl:
#   plain       not attached: the counters of the forward chain see both files whole (the proof that they can)
#   fast        both directions live, the files bypass the forward chain
#   refused:R   the connection stays on the stack with reason R
#   slow        the connection stays on the stack, whatever the reason
# Packets too large for the path are the stack's to fragment, so with path MTU discovery off `fast` means a live flow
# whose small packets are taken (judge.py has the figures).


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    expect: str = "fast"
    family: int = 4
    nat: str = ""  # masquerade, dnat, both
    dscp: str = ""  # the hook of nsr1 where a rule sets cs3: ingress, egress, forward
    stages: tuple = ()
    attach: tuple = ()  # beside veth0 and veth1, which always are: what they are below
    pmtu: bool = True  # False: the ends send without DF, nsr1 sends no ICMP
    hook: str = "tc"
    mtus: Mtus = Mtus()
    size: int = 2 * MIB


V6 = {"family": 6}
XDP = {"hook": "xdp", "mtus": Mtus(2000, 1500, 2000)}  # a frame has to fit into a page

ROWS = (
    Row("plain", "plain"),
    Row("plain-ipv6", "plain", **V6),
    Row("routed-nopmtu", **FRAGMENTED),
    Row("routed"),
    Row("direct-return", "slow", stages=("direct-return",)),
    Row("dscp-ingress", "refused:mangled:dscp", dscp="ingress"),
    Row("dscp-egress", "refused:mangled:dscp", dscp="egress"),
    Row("dscp-forward", "refused:mangled:dscp", dscp="forward"),
    Row("nat-dscp-ingress-nopmtu", "refused:mangled:dscp", nat="both", dscp="ingress", **FRAGMENTED),
    Row("nat-dscp-egress-nopmtu", "refused:mangled:dscp", nat="both", dscp="egress", **FRAGMENTED),
    Row("nat-dscp-forward-nopmtu", "refused:mangled:dscp", nat="both", dscp="forward", **FRAGMENTED),
    Row("masquerade-nopmtu", nat="masquerade", **FRAGMENTED),
    Row("dnat-nopmtu", nat="dnat", **FRAGMENTED),
    Row("masquerade", nat="masquerade"),
    Row("dnat", nat="dnat"),
    Row("nat", nat="both"),
    Row("ipip", stages=("ipip",)),
    Row("ipip-nopmtu", stages=("ipip",), **FRAGMENTED),
    Row("ipip-masquerade", nat="masquerade", stages=("ipip",)),
    Row("ipip-nat", nat="both", stages=("ipip",)),
    Row("bridge-port-nat", nat="both", stages=("bridge",)),
    Row("bridge-port-ipip", stages=("bridge", "ipip")),
    Row("bridge-nat", nat="both", stages=("bridge",), attach=("br0",)),
    Row("bridge-ipip", stages=("bridge", "ipip"), attach=("br0",)),
    Row("ipsec", "refused:xfrm", stages=("ipsec",), size=MIB // 2),

    Row("ipv6", **V6),
    Row("ipv6-direct-return", "slow", stages=("direct-return",), **V6),
    Row("ipv6-dscp-forward", "refused:mangled:dscp", dscp="forward", **V6),
    Row("ipv6-nat", nat="both", **V6),
    Row("ip6ip6", stages=("ip6ip6",), **V6),
    Row("ip6ip6-nat", nat="both", stages=("ip6ip6-limit",), **V6),
    Row("4in6", stages=("4in6",)),
    Row("4in6-nopmtu", stages=("4in6",), **FRAGMENTED),
    Row("4in6-nat", nat="both", stages=("4in6",)),
    Row("6in4", stages=("6in4",), **V6),
    Row("6in4-nat", nat="both", stages=("6in4",), **V6),
    Row("ipsec-ipv6", "refused:xfrm", stages=("ipsec-ipv6",), size=MIB // 2, **V6),
    Row("ipsec-of-ipv4", stages=("ipsec",), **V6),  # no policy is for this

    Row("vlan-nat", nat="both", stages=("vlan",), attach=("veth1.10",)),
    Row("vlan-nopmtu", stages=("vlan",), **FRAGMENTED),
    Row("vlan-ipip-nat", nat="both", stages=("vlan", "ipip")),
    Row("vlan-ip6ip6", stages=("vlan", "ip6ip6"), attach=("tun0",), **V6),
    Row("vlan-4in6", stages=("vlan", "4in6")),
    Row("vlan-6in4", stages=("vlan", "6in4"), **V6),
    Row("qinq-nat", nat="both", stages=("qinq",)),
    Row("qinq-ip6ip6", stages=("qinq", "ip6ip6"), attach=("veth1.5.10",), **V6),
    Row("bridge-ip6ip6", stages=("bridge", "ip6ip6"), **V6),
    Row("bridge-over-vlan-nat", nat="both", stages=("bridge-over-vlan",)),
    Row("bridge-aware-nat", nat="both", stages=("bridge-aware",)),
    Row("bridge-tagged-ipip", stages=("bridge-tagged", "ipip"), attach=("br0.10",)),

    Row("xdp", **XDP),
    Row("xdp-nopmtu", **FRAGMENTED, **XDP),
    Row("xdp-nat", nat="both", **XDP),
    Row("xdp-ipip-nat", nat="both", stages=("ipip",), **XDP),
    Row("xdp-ipv6-nat", nat="both", **V6, **XDP),
    Row("xdp-vlan-ip6ip6", stages=("vlan", "ip6ip6"), **V6, **XDP),
    Row("xdp-4in6-nat", nat="both", stages=("4in6",), **XDP),
    Row("xdp-vlan-6in4", stages=("vlan", "6in4"), **V6, **XDP),
    Row("xdp-bridge-over-vlan-nat", nat="both", stages=("bridge-over-vlan",), **XDP),
)


def again(row, mtus, size):
    # No device of a row's may get below the least MTU of IPv6, or it has no IPv6.
    six = row.family == 6 or (tunnel(row) and tunnel(row).outer == 6)
    link = max(mtus.link, IPV6_LEAST + between(row).shorter) if six else mtus.link
    return dataclasses.replace(row, name=f"random-{row.name}", mtus=dataclasses.replace(mtus, link=link),
                               size=min(size, row.size))


def rerun(seed):
    """The transfers once more with three random MTUs and a random size of the files."""
    chance = random.Random(seed)
    mtus = Mtus(*(chance.randint(IPV6_LEAST, 65535) for _ in range(3)))
    size = chance.randint(MIB, 2 * MIB)
    page = Mtus(*(chance.randint(IPV6_LEAST, 3400) for _ in range(3)))  # XDP on veth: a frame in a page, with headroom
    return [again(row, page if row.hook == "xdp" else mtus, size) for row in ROWS
            if row.expect == "fast" or row.name in ("dscp-forward", "ipsec")]
