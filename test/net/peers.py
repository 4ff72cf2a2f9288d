# SPDX-License-Identifier: GPL-2.0-only
"""LAB-P: client -- router == tunnels of ftctl == a peer that speaks all of them by hand, in raw frames.

The peer has an address of its own for each tunnel, and behind each a server that answers UDP on port 9. Its kernel does
nothing but tell its MAC. What the frames look like is written from the RFCs, without a look at the datapath.
"""
import contextlib
import dataclasses
import socket
import struct
import threading

import frames
from lab import Lab, check, check_equal
from labs import V4, V6
from raw import ETH_P_ALL, PACKET_OUTGOING, SO_RCVBUFFORCE
from traffic import UdpFlow, warm_up

CLIENT = {V4: "192.0.2.2", V6: "2001:db8:1::2"}
LAN = {V4: "192.0.2.1", V6: "2001:db8:1::1"}
WAN = {V4: "203.0.113.1", V6: "2001:db8:a::1"}
LIMIT_4 = (frames.DEST_OPTIONS, bytes((0, 4, 1, 4, 1, 1, 0)))  # RFC 2473, 4.1.1, padded to eight bytes
INNER = {"ipip": V4, "4in6": V4, "6in4": V6, "ip6ip6": V6}
OUTER = {"ipip": V4, "6in4": V4, "4in6": V6, "ip6ip6": V6}


@dataclasses.dataclass(eq=False)
class Far:
    """One tunnel as its far end sees it. got: (outer packet, where the inner one begins) of what came."""
    number: int
    mode: str
    words: tuple
    got: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.inner, self.outer = INNER[self.mode], OUTER[self.mode]
        self.dev = f"tun{self.number}"
        self.near = WAN[self.outer]
        self.far = f"203.0.113.{10 + self.number}" if self.outer == V4 else f"2001:db8:a::{10 + self.number}"
        self.server = f"198.51.100.{10 + self.number}" if self.inner == V4 else f"2001:db8:2::{10 + self.number}"
        self.client = CLIENT[self.inner]
        self.port = 40000 + self.number
        self.proto = frames.IPIP if self.inner == V4 else frames.IPV6
        self.limit = self.outer == V6 and self.words[:2] != ("encaplimit", "none")

    def __str__(self):
        return " ".join((self.mode, *self.words))

    @property
    def room(self):
        return 20 if self.outer == V4 else 48 if self.limit else 40

    def udp(self, payload, up=False, **header):
        """A datagram of the flow, from the server or (up) from the client."""
        ends = ((self.client, self.port), (self.server, 9))
        (source, sport), (target, dport) = ends if up else ends[::-1]
        return packet(source, target, frames.UDP, frames.udp(source, target, sport, dport, payload), **header)

    def wrap(self, inner, source=None, target=None, proto=None, **header):
        """What the peer sends to the router: as it should be, unless told otherwise."""
        return packet(source or self.far, target or self.near, proto or self.proto, inner, **header)


def packet(source, target, proto, payload, tos=0, ttl=64, **header):
    if ":" in source:
        return frames.ipv6(source, target, proto, payload, tclass=tos, hop=ttl, **header)
    return frames.ipv4(source, target, proto, payload, tos=tos, ttl=ttl, **header)


def kind_of(data):
    return frames.ETH_IP if data[0] >> 4 == 4 else frames.ETH_IPV6


def tos_of(data):
    return data[1] if data[0] >> 4 == 4 else struct.unpack_from("!H", data)[0] >> 4 & 0xFF


def length_of(data):
    return struct.unpack_from("!H", data, 2)[0] if data[0] >> 4 == 4 else 40 + struct.unpack_from("!H", data, 4)[0]


def inside(data):
    """Where the packet in a tunnel packet begins, or None."""
    if data[0] >> 4 == 4:
        return 20 if data[9] in (frames.IPIP, frames.IPV6) else None
    at, kind = 40, data[6]
    if kind == frames.DEST_OPTIONS:
        at, kind = at + 8 + 8 * data[41], data[40]
    return at if kind in (frames.IPIP, frames.IPV6) else None


def answer(inner):
    """A datagram to port 9 turned round (its checksums stay right), or None."""
    four = inner[0] >> 4 == 4
    proto, at, source, size = (inner[9], 20, 12, 4) if four else (inner[6], 40, 8, 16)
    fragment = four and struct.unpack_from("!H", inner, 6)[0] & 0x3FFF
    if proto != frames.UDP or fragment or inner[at + 2:at + 4] != b"\0\x09":
        return None
    return inner[:source] + inner[source + size:source + 2 * size] + inner[source:source + size] \
        + inner[source + 2 * size:at] + inner[at + 2:at + 4] + inner[at:at + 2] + inner[at + 4:]


class PeerLab(Lab):
    """LAB-P with the tunnels that `rows` name: (mode, words of `tunnel add`). setup: commands for ip(8) in the router
    before there are tunnels."""

    def __init__(self, *rows, setup=""):
        super().__init__("client", "router", "peer", router="router", ipv6=True)
        self.tunnels = [Far(number, mode, words) for number, (mode, words) in enumerate(rows)]
        self.flows_of = {}
        self.echo = True
        try:
            self._build(setup)
        except BaseException:
            self.close()
            raise

    def _build(self, setup):
        self.veth("client", "eth0", "router", "lan0")
        self.veth("router", "wan0", "peer", "wan0")
        self["client"].ip(f"""addr add {CLIENT[V4]}/24 dev eth0\naddr add {CLIENT[V6]}/64 dev eth0 nodad
            route add 0.0.0.0/0 via {LAN[V4]}\nroute add ::/0 via {LAN[V6]}""")
        # Without, frames reach the peer with unfinished checksums, which a raw socket cannot tell.
        self["client"].run("ethtool", "-K", "eth0", "tx", "off")
        self["router"].ip(f"""addr add {LAN[V4]}/24 dev lan0\naddr add {LAN[V6]}/64 dev lan0 nodad
            addr add {WAN[V4]}/24 dev wan0\naddr add {WAN[V6]}/64 dev wan0 nodad\n{setup}""")
        self["router"].sysctl(net_ipv4_ip_forward=1, net_ipv4_icmp_ratelimit=0)
        self["router"].sysctl_set("net/ipv6/conf/all/forwarding", 1)
        self["router"].sysctl_set("net/ipv6/icmp/ratelimit", 0)
        self.watch(up="udp dport 9", down="udp sport 9")
        self["peer"].nft("""table inet mute { chain in { type filter hook input priority 0; policy drop
            icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept; } }""")
        self.start()
        for far in self.tunnels:
            bits = 24 if far.outer == V4 else 64
            self["peer"].ip(f"addr add {far.far}/{bits} dev wan0" + (" nodad" if far.outer == V6 else ""))
            made = self.ftctl_raw("tunnel", "add", far.dev, "mode", far.mode, "local", far.near, "remote", far.far,
                                  *far.words)
            check(made.returncode == 0, f"ftctl tunnel add {far}: {made.stderr}")
            self["router"].ip(f"link set {far.dev} up\nroute add {far.server} dev {far.dev}")
        self.wire = self["peer"].socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.wire.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        self.wire.bind(("wan0", ETH_P_ALL))
        self.wire.settimeout(0.2)
        self.macs = frames.mac(self["router"].mac("wan0")), frames.mac(self["peer"].mac("wan0"))
        self.others = []  # frames that are no tunnel's
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        by_address = {frames.addr(far.far): far for far in self.tunnels}
        while self.wire.fileno() >= 0:
            try:
                frame, address = self.wire.recvfrom(65535)
            except TimeoutError:
                continue
            except OSError:
                return
            if address[2] == PACKET_OUTGOING or frame[12:14] not in (b"\x08\x00", b"\x86\xdd"):
                continue
            data = frame[14:]
            data = data[:length_of(data)]
            far = by_address.get(data[16:20] if data[0] >> 4 == 4 else data[24:40])
            at = inside(data)
            if far is None or at is None:
                self.others.append(data)
                continue
            far.got.append((data, at))
            back = answer(data[at:]) if self.echo else None
            if back:
                with contextlib.suppress(OSError):
                    self.send(far.wrap(back))

    def send(self, data):
        """An IP packet from the peer to the router."""
        self.wire.send(frames.ethernet(*self.macs, kind_of(data), data))

    def warm(self):
        """Conntrack calls the flow of every tunnel ASSURED, all on the slow path."""
        for far in self.tunnels:
            wild = "0.0.0.0" if far.inner == V4 else "::"
            self.flows_of[far.number] = UdpFlow(self["client"], (wild, far.port), (far.server, 9), far.number)
        tasks = [self["client"].thread(warm_up, flow) for flow in self.flows_of.values()]
        for task in tasks:
            task.result()

    def go_fast(self):
        self.attach("lan0", "wan0")
        self.all_live()

    def all_live(self, tunnels=None):
        """Sends until the flows are live both ways; nothing is under way when this returns."""
        flows = {far: self.flows_of[far.number] for far in self.tunnels if tunnels is None or far in tunnels}
        for flow in flows.values():
            flow.start(50)
        for far in flows:
            self.wait_live(proto="udp", sport=far.port)
        for flow in flows.values():
            flow.stop()
        for flow in flows.values():
            check_equal(flow.lost(flow.sent - 1), 0, "the last datagram lost")

    def carried(self, far, side):
        """Packets of the tunnel's flow that the fast path took."""
        return self.flow(proto="udp", sport=far.port)[side]["packets"]
