# SPDX-License-Identifier: GPL-2.0-only
"""U54: the tunnel encapsulation limit option (RFC 2473): sent as set, understood when it comes, never mis-read."""
import frames
from lab import check_equal, wait_until
from peers import LIMIT_4, PeerLab, kind_of
from raw import Injector, Sniffer

NONE = ("encaplimit", "none")
LIMIT_0 = (frames.DEST_OPTIONS, bytes((0, 4, 1, 0, 1, 1, 0)))
UNKNOWN_SKIPPED = (frames.DEST_OPTIONS, bytes((0, 0x1E, 1, 4, 1, 1, 0)))
UNKNOWN_REFUSED = (frames.DEST_OPTIONS, bytes((0, 0x9E, 1, 4, 1, 1, 0)))
LIMIT_LAST = (frames.DEST_OPTIONS, bytes((0, 1, 1, 0, 4, 1, 4)))  # PadN, then the limit
HOP_BY_HOP = (frames.HOP_BY_HOP, bytes((0, 1, 4, 0, 0, 0, 0)))


def run():
    with PeerLab(("4in6", ()), ("4in6", NONE), ("ip6ip6", ()), ("ip6ip6", NONE), ("4in6", ("encaplimit", "0"))) as lab:
        lab.warm()
        at_client = Sniffer(lab["client"], "eth0", lambda frame: b"<<" in frame)
        inject = Injector(lab["client"], "eth0", lab["router"], "lan0")
        for far in lab.tunnels:
            transmit(lab, far, inject, "slow")
        plain = [receive(lab, far, at_client) for far in lab.tunnels]
        for far, seen in zip(lab.tunnels, plain):
            check_equal(seen, {**dict.fromkeys(seen, ""), **DELIVERED, **ANSWERED}, f"{far}: what comes in, slow")
        lab.go_fast()
        for far in lab.tunnels:
            check_equal(lab.flow(proto="udp", sport=far.port)["orig"]["mtu"], 1500 - far.room, f"{far}: MTU")
            before = lab.carried(far, "orig")
            transmit(lab, far, inject, "fast")
            check_equal(lab.carried(far, "orig") - before, 1, f"{far}: packets that went fast")
        for far, slow in zip(lab.tunnels, plain):
            before, options = lab.carried(far, "reply"), lab.reason("wan0", "ip-options")
            check_equal(receive(lab, far, at_client), slow, f"{far}: what comes in, as without ftctl")
            check_equal((lab.carried(far, "reply") - before, lab.reason("wan0", "ip-options") - options),
                        (len(FAST), len(SLOW)), f"{far}: packets of the flow, packets with other options")


def transmit(lab, far, inject, how):
    """The whole outer packet, written by hand."""
    far.got.clear()
    text = b"to the peer"
    inject.send(far.udp(text, up=True), kind=kind_of(far.udp(text)))
    wait_until(lambda: far.got, 2, f"{far}, {how}: the packet at the peer")
    limit = int(far.words[1]) if far.words[:1] == ("encaplimit",) and far.limit else 4
    option = (LIMIT_4[0], LIMIT_4[1].replace(b"\x04\x01\x04", bytes((4, 1, limit))))
    want = frames.ipv6(far.near, far.far, far.proto, far.udp(text, up=True, ttl=63),
                       ext=(option,) if far.limit else ())
    check_equal(far.got[0][0].hex(), want.hex(), f"{far}, {how}: packet to the peer")


FAST = {"no option": (), "limit": (LIMIT_4,), "limit 0": (LIMIT_0,)}
SLOW = {"limit behind padding": (LIMIT_LAST,), "unknown option": (UNKNOWN_SKIPPED,),
        "hop-by-hop before": (HOP_BY_HOP,), "hop-by-hop and limit": (HOP_BY_HOP, LIMIT_4),
        "two headers": (LIMIT_4, LIMIT_4), "unknown option that forbids": (UNKNOWN_REFUSED,)}
DELIVERED = {name: "delivered" for name in [*FAST, *list(SLOW)[:-1]]}
# RFC 8200, 4.2: discard, and parameter problem, code 2, pointer to the option type. The other protocol is a tunnel's
# here, and not from its peer: silence.
ANSWERED = {"unknown option that forbids": "icmp 4 code 2 pointer 42"}


def receive(lab, far, at_client):
    """What becomes of a packet for each way that the outer header announces it."""
    at_client.clear()
    lab.others.clear()
    marks = {}
    for name, ext in {**FAST, **SLOW, "other protocol": ()}.items():
        marks[name] = b"<<%s>>" % name.encode()
        proto = far.proto ^ frames.IPIP ^ frames.IPV6 if name == "other protocol" else None
        lab.send(far.wrap(far.udp(marks[name], ttl=60), proto=proto, ext=ext))
    arrived, told = [frame[14:] for frame in at_client.settle()], list(lab.others)
    seen = {}
    for name, mark in marks.items():
        whole = [data.hex() for data in arrived if mark in data]
        check_equal(whole, [far.udp(mark, ttl=59).hex()][:len(whole)], f"{far}, {name}: at the client")
        seen[name] = "delivered" if whole else "".join(icmp_error(data, mark) for data in told)
    return seen


def icmp_error(data, mark):
    """A text about an ICMPv6 error that quotes the mark."""
    if data[0] >> 4 == 6 and data[6] == frames.ICMPV6 and data[40] < 128 and mark in data:
        return f"icmp {data[40]} code {data[41]} pointer {int.from_bytes(data[44:48], 'big')}"
    return ""
