# SPDX-License-Identifier: GPL-2.0-only
"""Reading, injecting and sniffing frames; frames.py builds them."""
import contextlib
import socket
import struct
import threading
import time

from frames import ethernet, mac, ones_sum, pseudo

ETH_P_ALL, ETH_P_IP = 0x0003, 0x0800
PACKET_OUTGOING = 4
SO_RCVBUFFORCE = 33


class Packet:
    """An IPv4 packet, read. Fields are None or empty where the packet has none."""

    def __init__(self, data):
        self.data = data
        first, self.tos, self.length, self.ident, self.frag, self.ttl, self.proto, self.csum = \
            struct.unpack_from("!BBHHHBBH", data)
        self.head_len = (first & 15) * 4
        self.src, self.dst = socket.inet_ntoa(data[12:16]), socket.inet_ntoa(data[16:20])
        self.head, self.body = data[:self.head_len], data[self.head_len:self.length]
        self.sport = self.dport = None
        if self.proto in (6, 17) and not self.frag & 0x1fff and len(self.body) >= 4:
            self.sport, self.dport = struct.unpack_from("!HH", self.body)
        self.l4_csum = {17: 6, 6: 16}.get(self.proto)
        if self.l4_csum is not None:
            at = self.l4_csum
            self.l4_csum = struct.unpack_from("!H", self.body, at)[0] if len(self.body) >= at + 2 else None

    def header_ok(self):
        return ones_sum(self.head) == 0xffff

    def l4_ok(self):
        if self.proto == 1:
            return ones_sum(self.body) == 0xffff
        return ones_sum(self.body, pseudo(self.src, self.dst, self.proto, len(self.body))) == 0xffff

    def payload(self):
        if self.proto == 17:
            return self.body[8:]
        return self.body[(self.body[12] >> 4) * 4:] if self.proto == 6 and len(self.body) > 12 else self.body

    def __repr__(self):
        return (f"<{self.src}:{self.sport} > {self.dst}:{self.dport} proto {self.proto} ttl {self.ttl} "
                f"tos {self.tos:#x} len {self.length} id {self.ident:#x} frag {self.frag:#x}>")


def parse(frame):
    """The Packet of an Ethernet frame, or None."""
    if len(frame) < 34 or frame[12:14] != b"\x08\x00":
        return None
    with contextlib.suppress(struct.error, IndexError):
        return Packet(frame[14:])
    return None


SOL_PACKET, PACKET_VNET_HDR = 263, 15
VNET_NEEDS_CSUM = 1


class Injector:
    """Sends whole frames out of a device."""

    def __init__(self, netns, dev, peer_netns=None, peer_dev=None):
        self.socket = netns.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.bind((dev, 0))
        self.source = netns.mac(dev)
        self.target = peer_netns.mac(peer_dev) if peer_netns else None

    def send(self, packet, dst=None, src=None, kind=ETH_P_IP):
        """An IP packet in a frame for the peer."""
        self.socket.send(ethernet(mac(dst or self.target), mac(src or self.source), kind, packet))

    def send_unfinished(self, packet, start, offset):
        """The same as a socket buffer whose checksum the device is to finish (CHECKSUM_PARTIAL): over what follows
        `start` in the packet, into the field at `offset` from there, which holds the sum of the pseudo header."""
        frame = ethernet(mac(self.target), mac(self.source), ETH_P_IP, packet)
        self.socket.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        self.socket.send(struct.pack("=BBHHHH", VNET_NEEDS_CSUM, 0, 0, 0, 14 + start, offset) + frame)
        self.socket.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 0)


class Sniffer:
    """Frames of a device as (time, frame), in the background. want(frame) chooses.

    kind=ETH_P_ALL sees them before a TC program does and those sent as well; kind=ETH_P_IP in the
    receiving namespace sees only what the TC ingress program passed to the stack.
    """

    def __init__(self, netns, dev, want=None, kind=ETH_P_ALL, outgoing=False):
        self.socket = netns.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        self.socket.bind((dev, kind))
        self.socket.settimeout(0.2)
        self.want = want
        self.outgoing = outgoing
        self.seen = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                frame, address = self.socket.recvfrom(65535)
            except TimeoutError:
                continue
            except OSError as error:
                if self.socket.fileno() < 0 or error.errno == 9:
                    return
                continue
            if (address[2] == PACKET_OUTGOING) != self.outgoing:
                continue
            if self.want is None or self.want(frame):
                self.seen.append((time.monotonic(), frame))

    def clear(self):
        self.seen = []

    def frames(self):
        return [frame for _time, frame in list(self.seen)]

    def packets(self):
        return [packet for packet in map(parse, self.frames()) if packet]

    def since(self, moment):
        return [frame for when, frame in list(self.seen) if when >= moment]

    def settle(self, quiet=0.3, deadline=5):
        """Waits until nothing new has come for `quiet` seconds; returns the frames."""
        end = time.monotonic() + deadline
        count, still = len(self.seen), time.monotonic()
        while time.monotonic() < end and time.monotonic() - still < quiet:
            time.sleep(0.02)
            if len(self.seen) != count:
                count, still = len(self.seen), time.monotonic()
        return self.frames()


def is_flow(proto, sport=None, dport=None, src=None, dst=None):
    """A choice for Sniffer."""
    def want(frame):
        packet = parse(frame)
        return bool(packet and packet.proto == proto
                    and (sport is None or packet.sport == sport) and (dport is None or packet.dport == dport)
                    and (src is None or packet.src == src) and (dst is None or packet.dst == dst))
    return want


def is_icmp(kind, code=None):
    def want(frame):
        packet = parse(frame)
        return bool(packet and packet.proto == 1 and len(packet.body) >= 8 and packet.body[0] == kind
                    and (code is None or packet.body[1] == code))
    return want


def normal(frame, router_addresses=()):
    """A frame from the EtherType on; the ID and checksum of what the router itself wrote are zero."""
    data = frame[12:]
    packet = parse(frame)
    if packet and packet.src in router_addresses:
        data = data[:6] + b"\0\0" + data[8:12] + b"\0\0" + data[14:]
    return data


def outcome(injector, packets, sniffers, router_addresses=(), spacing=0.003):
    """Sends packets one after the other; what each sniffer saw of them, comparable between runs."""
    for sniffer in sniffers:
        sniffer.clear()
    for packet in packets:
        injector.send(packet)
        time.sleep(spacing)
    return [[normal(frame, router_addresses) for frame in sniffer.settle()] for sniffer in sniffers]


def difference(plain, fast, names):
    """A text about the first difference of two outcomes, or None."""
    for name, want, got in zip(names, plain, fast):
        for number, (one, other) in enumerate(zip(want, got)):
            if one != other:
                return f"{name}, frame {number}: without ftctl {one.hex()}, with ftctl {other.hex()}"
        if len(want) != len(got):
            return f"{name}: {len(want)} frames without ftctl, {len(got)} with ftctl"
    return None
