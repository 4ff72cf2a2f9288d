# SPDX-License-Identifier: GPL-2.0-only
"""E03: plain GRE is carried; with checksum, key or sequence number it goes to the stack."""
import socket
import struct
import time

from lab import check, check_equal, wait_until
from labs import L_ADDR, W_ADDR, lab_a

GRE = 47
PLAIN, CHECKSUM, KEY, SEQUENCE = 0x0000, 0x8000, 0x2000, 0x1000


def packet(flags, number, size=100):
    optional = b"".join(struct.pack("!I", number) for flag in (CHECKSUM, KEY, SEQUENCE) if flags & flag)
    return struct.pack("!HH", flags, 0x0800) + optional + struct.pack("!I", number) + bytes(size)


def run():
    with lab_a(nat=False, watch={"up": f"ip protocol {GRE} ip saddr {L_ADDR}",
                                 "down": f"ip protocol {GRE} ip saddr {W_ADDR}"}) as lab:
        lab.attach("ra", "rb")
        ends = {}
        for side, peer in (("L", W_ADDR), ("W", L_ADDR)):
            ends[side] = lab[side].socket(kind=socket.SOCK_RAW, proto=GRE)
            ends[side].connect((peer, 0))
            ends[side].settimeout(2)

        def exchange(flags, number):
            """A packet there and one back, both as they were sent."""
            for here, there in (("L", "W"), ("W", "L")):
                sent = packet(flags, number)
                ends[here].send(sent)
                got = ends[there].recv(2000)
                check_equal(got[20:], sent, f"GRE from {here} to {there}, flags {flags:#06x}")
                check_equal(got[8], 63, "TTL")

        number = 0
        deadline = time.monotonic() + 12
        while not lab.live(proto="gre"):
            check(time.monotonic() < deadline, f"no live GRE flow: {lab.flows()}")
            exchange(PLAIN, number)
            number += 1
        for packet_ends in (L_ADDR, W_ADDR), (W_ADDR, L_ADDR):
            check_equal(lab.ftctl("explain", "gre", *packet_ends)["verdict"], "fast", f"explain gre {packet_ends}")
        before = lab.live(proto="gre"), lab.count("up"), lab.count("down")
        for _round in range(200):
            exchange(PLAIN, number)
            number += 1
        after = lab.live(proto="gre")
        for side in ("orig", "reply"):
            check(after[side]["packets"] - before[0][side]["packets"] >= 195,
                  f"{side}: {after[side]['packets']} packets carried")
        check(lab.count("up") - before[1] <= 5 and lab.count("down") - before[2] <= 5, "the stack saw the packets")

        slow = lab.reason("ra", "protocol")
        for flags in (CHECKSUM, KEY, SEQUENCE):
            for _round in range(10):
                exchange(flags, number)
                number += 1
        check(lab.reason("ra", "protocol") - slow >= 30, f"counters of ra: {lab.stats('ra')}")
        wait_until(lambda: lab.live(proto="gre"), 5, "the flow is still live")
