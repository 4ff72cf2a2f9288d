# SPDX-License-Identifier: GPL-2.0-only
"""U58: of GRE only the plain header of version 0 is carried; every other arrives as without ftctl, by the stack."""
import socket
import struct

import frames
from lab import check, check_equal, wait_until
from labs import L_ADDR, RA_ADDR, RB_ADDR, W_ADDR, lab_a
from raw import Injector, Sniffer, difference, outcome

GRE = 47
CHECKSUM, ROUTING, KEY, SEQUENCE, STRICT = 0x8000, 0x4000, 0x2000, 0x1000, 0x0800  # RFC 2784, 2890, 1701
IP, IPV6, BRIDGING, KEEP_ALIVE, MPLS, PPP = 0x0800, 0x86DD, 0x6558, 0x0000, 0x8847, 0x880B
INNER = frames.ipv4("10.0.0.1", "10.0.0.2", 17, frames.udp("10.0.0.1", "10.0.0.2", 5, 6, b"inner"))


def gre(flags=0, kind=IP, payload=INNER, key=7):
    optional = b""
    if flags & (CHECKSUM | ROUTING):
        optional += bytes(4)
    if flags & KEY:
        optional += struct.pack("!I", key)
    if flags & SEQUENCE:
        optional += struct.pack("!I", 1)
    message = struct.pack("!HH", flags, kind) + optional + payload
    if flags & CHECKSUM:
        message = message[:4] + struct.pack("!H", frames.checksum(message)) + message[6:]
    return message


# A keep-alive holds the packet that the far end is to send back.
BACK = frames.ipv4(W_ADDR, L_ADDR, GRE, struct.pack("!HH", 0, KEEP_ALIVE))
PLAIN = [gre(), gre(kind=IPV6, payload=bytes(60)), gre(kind=BRIDGING, payload=bytes(60)), gre(kind=MPLS),
         gre(payload=b""), gre(payload=BACK), gre(kind=KEEP_ALIVE, payload=b"")]
OTHERS = [gre(flags) for flags in (CHECKSUM, KEY, SEQUENCE, CHECKSUM | KEY | SEQUENCE, KEY | SEQUENCE, ROUTING, STRICT,
                                   0x0700, 0x0008, 0x0080)]
OTHERS += [gre(KEY, key=8), gre(CHECKSUM)[:4] + b"\xde\xad" + gre(CHECKSUM)[6:]]
# Version 1 (RFC 2637) and others.
OTHERS += [gre(0x2001, PPP, b"pptp"), gre(0x3081, PPP, b"pptp"), gre(0x0001), gre(0x0007)]
SHORT = [gre()[:3], b""]  # less than a header


def run():
    with lab_a(nat=False, watch={"up": f"ip protocol {GRE} ip saddr {L_ADDR}", "down": f"ip saddr {W_ADDR}"}) as lab:
        ends = {}
        for side, peer in (("L", W_ADDR), ("W", L_ADDR)):  # also so that neither end answers with ICMP
            ends[side] = lab[side].socket(kind=socket.SOCK_RAW, proto=GRE)
            ends[side].connect((peer, 0))
            ends[side].settimeout(2)

        def live():
            for here, there in (("L", "W"), ("W", "L")):
                ends[here].send(gre(payload=b"ping"))
                while not ends[there].recv(2000).endswith(b"ping"):
                    pass
            return lab.live(proto="gre") if lab.alive() else lab.ct("gre", src=L_ADDR)["assured"]

        wait_until(live, 5, "conntrack has an assured GRE connection")
        injector = Injector(lab["L"], "la", lab["R"], "ra")
        packets = [frames.ipv4(L_ADDR, W_ADDR, GRE, body, ident=number)
                   for number, body in enumerate(PLAIN + OTHERS + SHORT)]
        sniffers = [Sniffer(lab["W"], "wa", lambda frame: frame[12:14] == b"\x08\x00"),
                    Sniffer(lab["L"], "la", lambda frame: frame[12:14] == b"\x08\x00")]
        plain = outcome(injector, packets, sniffers, (RA_ADDR, RB_ADDR))
        check(len(plain[0]) >= len(PLAIN + OTHERS), f"the slow path forwarded {len(plain[0])} packets only")
        lab.attach("ra", "rb")
        wait_until(live, 12, "the GRE flow is live")
        before, stats, chain = lab.flow(proto="gre"), lab.stats("ra"), lab.count("up")
        fast = outcome(injector, packets, sniffers, (RA_ADDR, RB_ADDR))
        check_equal(difference(plain, fast, ("W", "L")), None, "what arrived")
        after, now = lab.flow(proto="gre"), lab.stats("ra")
        taken, slow = after["orig"]["packets"] - before["orig"]["packets"], lab.count("up") - chain
        check(len(PLAIN) - 1 <= taken <= len(PLAIN), f"{taken} packets of the flow, {len(PLAIN)} are plain")
        check_equal(taken + slow, len(plain[0]), "fast and slow packets")
        check_equal(after["reply"]["packets"], before["reply"]["packets"], "packets of the other direction")
        others = now["reasons"]["protocol"] - stats["reasons"].get("protocol", 0)
        check_equal(others, len(OTHERS), "packets counted as another protocol")
        check_equal(now["reasons"]["bad-length"] - stats["reasons"].get("bad-length", 0), len(SHORT), "too short")
