# SPDX-License-Identifier: GPL-2.0-only
"""The table of acceptance rows. To add one: a line here, and a stage in topology.py where it needs other devices."""
import dataclasses
import random

from topology import Mtus

MIB = 1 << 20
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
    nat: str = ""  # masquerade, dnat, both
    dscp: str = ""  # the hook of nsr1 where a rule sets cs3: ingress, egress, forward
    stages: tuple = ()
    attach: tuple = ()  # beside veth0 and veth1, which always are
    pmtu: bool = True  # False: the ends send without DF, nsr1 sends no ICMP
    hook: str = "tc"
    mtus: Mtus = Mtus()
    size: int = 2 * MIB


@dataclasses.dataclass(frozen=True)
class Later:
    """A scenario of upstream's that waits for something ftctl cannot do yet."""
    name: str
    needs: str


XDP = {"hook": "xdp", "mtus": Mtus(2000, 1500, 2000)}  # a frame has to fit into a page

ROWS = (
    Row("plain", "plain"),
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
    Row("bridge-port-nat", "refused:device:br0", nat="both", stages=("bridge",)),
    Row("bridge-port-ipip", "refused:device:br0", stages=("bridge", "ipip")),
    Row("bridge-nat", nat="both", stages=("bridge",), attach=("br0",)),
    Row("bridge-ipip", stages=("bridge", "ipip"), attach=("br0",)),
    Row("ipsec", "refused:xfrm", stages=("ipsec",), size=MIB // 2),
    Row("xdp", **XDP),
    Row("xdp-nopmtu", **FRAGMENTED, **XDP),
    Row("xdp-nat", nat="both", **XDP),
    Row("xdp-ipip-nat", nat="both", stages=("ipip",), **XDP),
)

LATER = (
    Later("ipv6", "IPv6"),
    Later("direct-return-ipv6", "IPv6"),
    Later("ip6ip6", "IPv6, IP6IP6"),
    Later("ipip-over-vlan", "VLAN"),
    Later("ip6ip6-over-vlan", "IPv6, IP6IP6, VLAN"),
    Later("4in6", "4in6"),
    Later("4in6-over-vlan", "4in6, VLAN"),
    Later("6in4", "IPv6, 6in4"),
    Later("6in4-over-vlan", "IPv6, 6in4, VLAN"),
    Later("bridge-port-fast", "bridge ports as devices (today: attach the bridge itself, as row bridge-nat does)"),
    Later("bridge-ip6ip6", "bridge, IPv6, IP6IP6"),
    Later("bridge-over-vlan", "bridge, VLAN"),
    Later("qinq", "VLAN in VLAN"),
    Later("ipsec-ipv6", "IPv6"),
    Later("upper-device-counters", "nothing: fast packets do not count on tunnels and bridges, by design (README)"),
)


def rerun(seed):
    """The transfers once more with three random MTUs and a random size of the files."""
    chance = random.Random(seed)
    mtus = Mtus(*(chance.randint(1280, 65535) for _ in range(3)))
    size = chance.randint(MIB, 2 * MIB)
    page = Mtus(*(chance.randint(1280, 3400) for _ in range(3)))  # XDP on veth: a frame and its headroom in a page
    again = [row for row in ROWS if row.expect == "fast" or row.name in ("dscp-forward", "ipsec")]
    return [dataclasses.replace(row, name=f"random-{row.name}", mtus=page if row.hook == "xdp" else mtus,
                                size=min(size, row.size)) for row in again]
