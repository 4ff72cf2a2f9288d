# SPDX-License-Identifier: GPL-2.0-only
"""What test/bench/run.sh measures: scenarios, paths, and cells (flows, size, order)."""
import dataclasses
import struct

import shapes
from frames import ETH_IP, ETH_IPV6, ETH_VLAN, mac
from shapes import ETH_PPP_SESSION

MACS = {"lan": "02:00:00:00:01:01", "lan0": "02:00:00:00:01:02",
        "wan0": "02:00:00:00:02:01", "wan": "02:00:00:00:02:02"}
# Flow number n has port NEAR_PORT + n % 2**14 on the client's side and FAR_PORT - n % 2**14 on the server's. The
# client's address grows by n / 2**14 and the server's falls by as much. So checksums stay, unless NAT hides the client.
ADDRESSES = 64
NEAR_PORT, FAR_PORT = 16384, 49151
PAYLOAD = 4  # at least: the witness tells packets without an ID by it. So one of IPv6 has 70 bytes, not 64
FCS = 4  # bytes that the wire adds, and the sizes of frames contain

V4 = dataclasses.replace(shapes.V4, server="198.51.100.66")
V6 = dataclasses.replace(shapes.V6, server="2001:db8:4::42")


@dataclasses.dataclass(frozen=True)
class Path:
    name: str
    text: str
    hook: str = ""  # of ftctl
    bare: bool = False  # the router's stack has no part in it
    conntrack: bool = False
    masquerade: bool = False
    of: str = ""  # the path whose router it is, while ftctl is attached to nothing there


PATHS = {path.name: path for path in (
    Path("kernel", "forwarding, without connection tracking"),
    Path("kernel-ct", "forwarding, with a stateful forward chain", conntrack=True),
    Path("kernel-ct-masq", "the same, with masquerade", conntrack=True, masquerade=True),
    Path("drop", "frames end as they reach the router: what all other rows contain as well", bare=True),
    Path("redirect", "frames handed on as they are by bpf_redirect_map at XDP: the floor", bare=True),
    Path("xdp-forward", "xdp-forward of xdp-tools, fib mode", bare=True),
    Path("detached-xdp", "the router of ftctl-xdp while ftctl is detached: from there a miss is counted",
         conntrack=True, of="ftctl-xdp"),
    Path("detached-tc", "the same of ftctl-tc", conntrack=True, of="ftctl-tc"),
    Path("ftctl-xdp", "ftctl at XDP", hook="xdp", conntrack=True),
    Path("ftctl-tc", "ftctl at TC", hook="tc", conntrack=True),
)}


@dataclasses.dataclass(frozen=True)
class Case(shapes.Scenario):
    """One scenario. The measured packets go up, from client to server, or down."""
    ip: shapes.Family = V4
    inward: bool = False  # connections come from the server's side, and are masqueraded on lan0
    miss: bool = False  # no packet is ever answered: ftctl takes none
    prefixes: int = 0  # of the early filter, in kernel-ct of a set of nft's; none has the packets' source
    reverse: bool = False  # reverse path filter, strict; in kernel-ct nft's rule
    quick: bool = False

    @property
    def together(self):
        """Scenarios with the same name here are set up at once, so that their difference is of the same minutes."""
        return "miss" if self.miss else self.name

    @property
    def device(self):
        """What the kernel must have for it, as machine.no_device() knows it; ftctl makes no such thing itself."""
        return "vlan" if self.vlan else "pppoe" if self.pppoe else ""

    @property
    def family(self):
        """Of FAMILIES."""
        return "filters" if self.miss else "tunnels" if self.tunnel else f"ipv{self.ip.version}"

    @property
    def filtered(self):
        return self.prefixes > 0 or self.reverse

    @property
    def translating(self):
        """The router's device that masquerades."""
        return "lan0" if self.inward else self.upper

    def addresses(self, outside):
        if not (self.masquerade and self.inward):
            return super().addresses(outside)
        return self.ip.client, self.ip.server if outside else self.ip.lan_router

    def ends(self, sport, outside):
        near, far = self.addresses(outside)
        ends = (near, sport), (far, FAR_PORT)
        return ends if self.up else ends[::-1]

    def toward(self, up):
        """The same, in the other direction or not."""
        return dataclasses.replace(self, up=up)

    def paths(self):
        """Names of the paths that have a row, in the table's order."""
        names = ["kernel-ct"] if self.filtered else ["kernel", "kernel-ct"]
        if self.masquerade:
            names.append("kernel-ct-masq")
        if not self.miss:
            names += ["drop", "redirect"]
            if not (self.masquerade or self.tunnel or self.device):
                names.append("xdp-forward")
        if self.miss and not self.filtered:
            return names + ["detached-xdp", "ftctl-xdp", "detached-tc", "ftctl-tc"]
        return names + ["ftctl-xdp", "ftctl-tc"]

    def path_case(self, path):
        """As the path has it: only kernel-ct-masq and ftctl translate."""
        if path.masquerade or path.hook:
            return self
        return dataclasses.replace(self, masquerade=False)

    def build(self, arriving, size):
        """A frame, as it arrives at the router or leaves it; size: as on the wire, without tags and headers
        of tunnels; one of IPv6 is larger than 64 bytes."""
        outside = self.up != arriving
        router, other = ("wan0", "wan") if outside else ("lan0", "lan")
        dst, src = (router, other) if arriving else (other, router)
        length = max(size - 14 - FCS, self.ip.header + 8 + PAYLOAD)
        return self.frame(mac(MACS[dst]), mac(MACS[src]), NEAR_PORT, outside, length)

    @property
    def outside_len(self):
        """Bytes between Ethernet and the inner packet, between router and remote."""
        return (self.outer.header if self.tunnel else 0) + (4 if self.vlan else 0) + (8 if self.pppoe else 0)

    def fields(self, arriving):
        """Where flows differ in that frame, as `framegen send -v` has it."""
        outside = self.up != arriving
        at = 14 + (self.outside_len if outside else 0)
        near, far = (at + 12, at + 16) if self.ip.version == 4 else (at + 8, at + 24)
        size = 4 if self.ip.version == 4 else 16
        l4 = at + self.ip.header
        if not self.up:
            near, far = far, near
        near_port, far_port = (l4, l4 + 2) if self.up else (l4 + 2, l4)
        ports, client, server = [f"{near_port}+l", f"{far_port}-l"], f"{near + size - 2}+h", f"{far + size - 2}-h"
        if not self.masquerade or outside == self.inward:
            return ports + [client, server]
        # One of them is hidden, and the checksums make up for the other.
        shown, sign = (client, "-") if self.inward else (server, "+")
        return ports + [shown, f"{l4 + 6}{sign}h"] + ([f"{at + 10}{sign}h"] if self.ip.version == 4 else [])


def match_of(frame):
    """ETHERTYPE:PROTO of a frame, as `framegen send -S` has it."""
    ethertype = struct.unpack("!H", frame[12:14])[0]
    return f"{ethertype:x}:{frame[{ETH_IP: 23, ETH_IPV6: 20, ETH_VLAN: 27, ETH_PPP_SESSION: 31}[ethertype]]}"


CASES = {case.name: case for case in (
    Case("plain4", "IPv4 forwarded as it is", quick=True),
    Case("nat4", "IPv4 masqueraded", masquerade=True, quick=True),
    Case("miss", "packets that ftctl looks at and leaves to the kernel: no such flow", miss=True, quick=True),
    Case("filter-1", "packets as those of miss, past an early filter of 1 prefix", miss=True, prefixes=1),
    Case("filter-1000", "... of 1 000 prefixes", miss=True, prefixes=1000),
    Case("filter-100000", "... of 100 000 prefixes", miss=True, prefixes=100000),
    Case("rpf", "packets as those of miss, past a strict reverse path filter", miss=True, reverse=True),
    Case("ipip-encap", "masqueraded into an IPIP tunnel", masquerade=True, tunnel="ipip", quick=True),
    Case("ipip-decap", "out of an IPIP tunnel, and masqueraded", up=False, inward=True, masquerade=True, tunnel="ipip",
         quick=True),
    Case("ipip-answer", "the answers to what was masqueraded into the tunnel", up=False, masquerade=True,
         tunnel="ipip"),
    Case("plain6", "IPv6 forwarded as it is", ip=V6, quick=True),
    Case("nat66", "IPv6 masqueraded", ip=V6, masquerade=True),
    Case("ip6ip6-encap", "IPv6 into a tunnel over IPv6", ip=V6, tunnel="ip6ip6"),
    Case("ip6ip6-decap", "out of it", up=False, ip=V6, tunnel="ip6ip6"),
    Case("4in6-encap", "IPv4 into a tunnel over IPv6", tunnel="4in6"),
    Case("4in6-decap", "out of it", up=False, tunnel="4in6"),
    Case("6in4-encap", "IPv6 into a tunnel over IPv4", ip=V6, tunnel="6in4"),
    Case("6in4-decap", "out of it", up=False, ip=V6, tunnel="6in4"),
    Case("vlan", "IPv4 into a VLAN", vlan=True),
    Case("pppoe", "IPv4 into a PPPoE session", pppoe=True),
)}

FAMILIES = {"ipv4": "IPv4 forwarded and masqueraded", "ipv6": "IPv6 forwarded and masqueraded", "tunnels": "Tunnels",
            "filters": "Packets that go to the kernel, past the early filter and the reverse path filter too"}


@dataclasses.dataclass(frozen=True)
class Cell:
    flows: int
    size: int = 64
    order: str = "random"


SMOKE = (Cell(16),)
QUICK = (Cell(1), Cell(1024))
# Ascending: flows are added, never taken away.
FULL = (Cell(1), Cell(16), Cell(1024), Cell(1024, 128), Cell(1024, 1500), Cell(1024, 64, "train8"),
        Cell(131072), Cell(131072, 64, "train8"), Cell(1048576), Cell(1048576, 64, "train8"))
ALL = ("plain4", "nat4")  # the others have no million flows, and no 128 bytes


def full(name):
    """The cells of a scenario in a whole run, which is to end within an hour."""
    return [cell for cell in FULL if name in ALL or not (cell.flows > 131072 or cell.size == 128)
            and not (CASES[name].miss and cell.flows == 16)]
