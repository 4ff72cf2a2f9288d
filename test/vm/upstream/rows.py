# SPDX-License-Identifier: GPL-2.0-only
"""The table of acceptance rows. To add one: a line here, and a stage in topology.py where it needs other devices."""
import dataclasses
import random
import typing

from topology import IP6IP6, IP6IP6_LIMIT, IPIP, IPV4_IN_6, IPV6_IN_4, V4, V6, Family, Mtus, Tunnel

MIB = 1 << 20
IPV6_MIN_MTU = 1280
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
    tunnel: typing.Optional[Tunnel] = None  # between the routers
    inner: Family = V4  # where there is no tunnel that says it
    stages: tuple = ()
    pmtu: bool = True  # False: the ends send without DF, nsr1 sends no ICMP
    hook: str = "tc"
    mtus: Mtus = Mtus()
    size: int = 2 * MIB

    @property
    def ip(self):
        return self.tunnel.inner if self.tunnel else self.inner


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
    Row("ipip", tunnel=IPIP),
    Row("ipip-nopmtu", tunnel=IPIP, **FRAGMENTED),
    Row("ipip-masquerade", nat="masquerade", tunnel=IPIP),
    Row("ipip-nat", nat="both", tunnel=IPIP),
    Row("ipip-over-vlan", tunnel=IPIP, stages=("vlan",)),
    Row("ipv6", inner=V6),
    Row("direct-return-ipv6", "slow", inner=V6, stages=("direct-return",)),
    Row("ip6ip6", tunnel=IP6IP6),
    Row("ip6ip6-limit", tunnel=IP6IP6_LIMIT),
    Row("ip6ip6-over-vlan", tunnel=IP6IP6, stages=("vlan",)),
    Row("4in6", tunnel=IPV4_IN_6),
    Row("4in6-over-vlan", tunnel=IPV4_IN_6, stages=("vlan",)),
    Row("6in4", tunnel=IPV6_IN_4),
    Row("6in4-over-vlan", tunnel=IPV6_IN_4, stages=("vlan",)),
    Row("vlan-nat", nat="both", stages=("vlan",)),
    Row("qinq", stages=("vlan", "qinq")),
    Row("bridge-nat", nat="both", stages=("bridge",)),
    Row("bridge-ipip", tunnel=IPIP, stages=("bridge",)),
    Row("bridge-ip6ip6", tunnel=IP6IP6, stages=("bridge",)),
    Row("bridge-over-vlan", nat="both", stages=("bridge", "inside-vlan")),
    Row("ipsec", "refused:xfrm", stages=("ipsec",), size=MIB // 2),
    Row("ipsec-ipv6", inner=V6, stages=("ipsec",)),  # the policies are for IPv4
    Row("xdp", **XDP),
    Row("xdp-nopmtu", **FRAGMENTED, **XDP),
    Row("xdp-nat", nat="both", **XDP),
    Row("xdp-ipip-nat", nat="both", tunnel=IPIP, **XDP),
    Row("xdp-ip6ip6", tunnel=IP6IP6, **XDP),
    Row("xdp-4in6", tunnel=IPV4_IN_6, **XDP),
    Row("xdp-6in4", tunnel=IPV6_IN_4, **XDP),
)

def rerun(seed):
    """The transfers once more with three random MTUs and a random size of the files."""
    chance = random.Random(seed)
    mtus = Mtus(*(chance.randint(IPV6_MIN_MTU, 65535) for _ in range(3)))
    size = chance.randint(MIB, 2 * MIB)
    page = Mtus(*(chance.randint(IPV6_MIN_MTU, 3400) for _ in range(3)))  # at XDP a page takes a frame and headroom
    again = [row for row in ROWS if row.expect == "fast" or row.name in ("dscp-forward", "ipsec")]
    found = []
    for row in again:
        own = page if row.hook == "xdp" else mtus
        if row.tunnel:  # IPv6 inside of it has to fit; the kernel cuts outer packets where it does not
            own = dataclasses.replace(own, link=max(own.link, IPV6_MIN_MTU + row.tunnel.room))
        found.append(dataclasses.replace(row, name=f"random-{row.name}", mtus=own, size=min(size, row.size)))
    return found
