# SPDX-License-Identifier: GPL-2.0-only
"""U32: MTU through tunnels: what fits is fast, senders of more are told what fits inside; underlay errors count."""
import struct
import time

import frames
from lab import CONVERGE_S, check, check_equal, wait_until
from labs import V4
from peers import CLIENT, PeerLab, kind_of, length_of
from raw import Injector, Sniffer

NONE = ("encaplimit", "none")
ROWS = ("ipip", ()), ("6in4", ()), ("4in6", ()), ("4in6", NONE), ("ip6ip6", ()), ("ip6ip6", NONE)


def run():
    with PeerLab(*ROWS) as lab:
        lab.warm()
        ends = Ends(lab)
        plain = [probe(lab, far, ends, 1500 - far.room) for far in lab.tunnels]
        lab.go_fast()
        for far, slow in zip(lab.tunnels, plain):
            before, chain = lab.carried(far, "orig"), lab.count("up")
            check_equal(probe(lab, far, ends, 1500 - far.room), slow, f"{far}: as without ftctl")
            fast, chain = lab.carried(far, "orig") - before, lab.count("up") - chain
            fits = sum(size <= 1500 - far.room for size, _df in sizes(far, 1500 - far.room))
            check(fits - 1 <= fast <= fits, f"{far}: {fast} fast packets, {fits} fit")
        for mtu in 1400, 1290:
            underlay(lab, ends, mtu)
    ds_lite(1452)
    ds_lite(1280)


class Ends:
    """What the client sends, and what it is told."""

    def __init__(self, lab):
        self.inject = Injector(lab["client"], "eth0", lab["router"], "lan0")
        self.told = Sniffer(lab["client"], "eth0", lambda frame: frame[23] == frames.ICMP and frame[34] == 3
                            if frame[12:14] == b"\x08\x00" else frame[20:21] == b"\x3a" and frame[54] == 2)

    def send(self, far, size, more_fragments=True, ident=1):
        head = 28 if far.inner == V4 else 48
        header = {"flags": 0 if more_fragments else 2, "ident": ident} if far.inner == V4 else {}
        data = far.udp(bytes(size - head), up=True, **header)
        self.inject.send(data, kind=kind_of(data))

    def messages(self):
        """(MTU told, length of the packet quoted, its source)"""
        found = []
        for frame in self.told.frames():
            four = frame[12:14] == b"\x08\x00"
            quoted = frame[42:] if four else frame[62:]
            mtu = struct.unpack_from("!H", frame, 40)[0] if four else struct.unpack_from("!I", frame, 58)[0]
            found.append((mtu, length_of(quoted), quoted[12:16] if four else quoted[8:24]))
        return found


def sizes(far, limit):
    """(length of the packet inside, it may be cut)"""
    yield from ((limit - 1, False), (limit, False), (limit + 1, False), (limit + 4, False), (1280, False))
    if far.inner == V4:
        yield from ((limit, True), (limit + 1, True), (1500, True))


def probe(lab, far, ends, limit):
    """Packets at the peer: (outer length, outer DF, inner length, inner fragment word). Checks what is told."""
    ends.told.clear()
    far.got.clear()
    wanted = list(sizes(far, limit))
    for number, (size, cut) in enumerate(wanted):
        ends.send(far, size, cut, 100 + number)
        time.sleep(0.003)
    large = [size for size, cut in wanted if size > limit and not cut]
    whole = [size for size, _cut in wanted if size <= limit]
    pieces = 2 * sum(1 for size, cut in wanted if size > limit and cut)
    wait_until(lambda: len(far.got) >= len(whole) + pieces, 2, f"{far}: {len(whole)} packets at the peer")
    wait_until(lambda: len(ends.messages()) >= len(large), 2, f"{far}: {len(large)} messages for the client")
    ends.told.settle(0.1)
    source = frames.addr(CLIENT[far.inner])
    check_equal(ends.messages(), [(limit, size, source) for size in large], f"{far}: MTU told, packet quoted")
    seen = []
    for data, at in list(far.got):
        inner = data[at:]
        outer_df = struct.unpack_from("!H", data, 6)[0] if far.outer == V4 else None
        fragment = struct.unpack_from("!H", inner, 6)[0] if far.inner == V4 else 0
        seen.append((len(data), outer_df, length_of(inner), fragment))
    check(max(size for size, *_rest in seen) <= 1500, f"{far}: an outer packet of more than 1500 bytes: {seen}")
    check_equal(sorted(inner for _size, _df, inner, fragment in seen if not fragment & 0x3FFF), sorted(whole),
                f"{far}: packets that arrived in one piece")
    return sorted(seen)


def underlay(lab, ends, mtu):
    """A router between the ends says that its MTU is smaller: what fits inside is told to the senders."""
    for far in lab.tunnels:
        far.got.clear()
        ends.send(far, 1200 if far.inner == V4 else 1280, False)
        wait_until(lambda far=far: far.got, 2, f"{far}: a packet to quote")
        data = far.got[0][0]
        if far.outer == V4:
            error = frames.icmp(3, 4, struct.pack("!HH", 0, mtu), data[:28])
            lab.send(frames.ipv4("203.0.113.9", far.near, frames.ICMP, error))
        else:
            source = "2001:db8:a::9"
            error = frames.icmp6(source, far.near, 2, 0, struct.pack("!I", mtu), data[:1232])
            lab.send(frames.ipv6(source, far.near, frames.ICMPV6, error))
    for far in lab.tunnels:
        wait_until(lambda far=far: f"mtu {mtu}" in lab["router"].ip(f"route get {far.far} from {far.near}"), 1,
                   f"{far}: the kernel knows of the MTU {mtu}")
    for far in lab.tunnels:
        limit = mtu - far.room
        if far.mode == "6in4" and limit < 1280:
            # There the slow path goes on without DF outside, and the outer packets may be cut.
            lab.wait_refused("path:" + far.dev, proto="udp", sport=far.port)
        else:
            wait_until(lambda far=far, limit=limit: flow_mtu(lab, far) == limit, 2 * CONVERGE_S,
                       f"{far}: the flow's MTU is {limit}")
    lab.all_live([far for far in lab.tunnels if flow_mtu(lab, far)])
    for far in lab.tunnels:
        limit = max(mtu - far.room, 0 if far.inner == V4 else 1280)  # RFC 8200, 5: nobody is told less than 1280
        fits = limit + far.room <= mtu
        far.got.clear()
        ends.told.clear()
        before = lab.carried(far, "orig") if fits else 0
        for number in range(3):
            ends.send(far, limit + 1, False, number)
            ends.send(far, limit, False, number)
        wait_until(lambda: len(ends.messages()) >= 3, 2, f"{far}: messages for the client")
        check_equal({message[:2] for message in ends.messages()}, {(limit, limit + 1)}, f"{far}: MTU told at {mtu}")
        if fits:
            wait_until(lambda far=far: len(far.got) >= 3, 2, f"{far}: packets of {limit} bytes at the peer")
            check_equal({len(data) for data, _at in far.got}, {mtu}, f"{far}: outer lengths")
            check(lab.carried(far, "orig") - before >= 2, f"{far}: packets of {limit} bytes were slow")


def ds_lite(mtu):
    """4in6 over 1492 bytes (RFC 6333, 5.3): what fits stays in one piece with its ID; the rest as without ftctl."""
    with PeerLab(("4in6", NONE), setup="link set wan0 mtu 1492") as lab:
        far = lab.tunnels[0]
        lab["router"].ip(f"link set {far.dev} mtu {mtu}")
        lab.warm()
        at_client = Sniffer(lab["client"], "eth0",
                            lambda frame: frame[12:14] == b"\x08\x00" and frame[23] == frames.UDP)
        inject = Injector(lab["client"], "eth0", lab["router"], "lan0")
        plain = both_ways(lab, far, inject, at_client)
        for size in 1328, 1452:
            if size <= mtu:
                whole = far.udp(bytes(size - 28), up=True, flags=0, ident=size, ttl=63)
                check(whole in plain[0], f"{size} bytes were cut")
        lab.go_fast()
        before = lab.carried(far, "orig"), lab.carried(far, "reply")
        seen = both_ways(lab, far, inject, at_client)
        for want, got, where in zip(plain, seen, ("the peer", "the client")):
            check_equal([data.hex() for data in got], [data.hex() for data in want], f"tunnel MTU {mtu}: at {where}")
        fast = lab.carried(far, "orig") - before[0], lab.carried(far, "reply") - before[1]
        fits = [size for size in SIZES if size <= mtu]
        # The peer's tunnel packets that come in two pieces are the stack's.
        check(len(fits) - 1 <= fast[0] <= len(fits) and 3 <= fast[1] <= 4, f"fast packets: {fast}, {fits} fit")


SIZES = 1000, 1280, 1328, 1452, 1453, 1500


def both_ways(lab, far, inject, at_client):
    """Inner packets that arrive at the peer, and packets at the client."""
    lab.echo = False
    far.got.clear()
    at_client.clear()
    for size in SIZES:
        inject.send(far.udp(bytes(size - 28), up=True, flags=0, ident=size))
        time.sleep(0.003)
        inner = far.udp(bytes(size - 28), flags=0, ident=size, ttl=60)
        whole = far.wrap(inner)
        if len(whole) <= 1492:
            lab.send(whole)
        else:
            for piece in frames.fragments6(whole, ((0, 1200), (1200, None)), size):
                lab.send(piece)
        time.sleep(0.003)
    wait_until(lambda: len(at_client.seen) >= len(SIZES), 2, "all datagrams at the client")
    at_client.settle(0.2)
    lab.echo = True
    return [data[at:] for data, at in list(far.got)], [frame[14:] for frame in at_client.frames()]


def flow_mtu(lab, far):
    flow = lab.flow(proto="udp", sport=far.port)
    return flow and flow["orig"]["mtu"]
