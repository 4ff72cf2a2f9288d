# SPDX-License-Identifier: GPL-2.0-only
"""U50: the TTL goes down by exactly one, TTL 1 is answered by the stack, the header checksum is right."""
import socket

import frames
from lab import check, check_equal, wait_until
from labs import L_ADDR, RA_ADDR, W_ADDR, lab_a
from raw import Injector, Packet, Sniffer, is_flow, is_icmp
from traffic import datagram, fast_udp


def run():
    for nat in (True, False):
        ttl(nat)


def ttl(nat):
    with lab_a(nat=nat) as lab:
        lab.attach("ra", "rb")
        flow, peer = fast_udp(lab, pps=100)
        flow.stop()
        flow.lost()
        peer.echo = False
        for value in (255, 64, 3, 2):
            before = lab.flow(proto="udp", sport=40000)["orig"]["packets"]
            peer.headers.clear()
            flow.socket.setsockopt(socket.SOL_IP, socket.IP_TTL, value)
            flow.send(20, 400)
            wait_until(lambda: sum(peer.headers.values()) == 20, 1, f"20 datagrams with TTL {value} at W")
            check_equal({key[1] for key in peer.headers}, {value - 1}, f"TTL at W, sent with {value}")
            check(lab.flow(proto="udp", sport=40000)["orig"]["packets"] - before >= 19, f"TTL {value} was not fast")

        # TTL 1 and 0: to the stack, which answers 1 with the packet as L sent it.
        exceeded = Sniffer(lab["L"], "la", is_icmp(11, 0))
        injector = Injector(lab["L"], "la", lab["R"], "ra")
        at_w = Sniffer(lab["W"], "wa", is_flow(17, dport=9))
        seen = lab.reason("ra", "ttl")

        def packet(ttl_value, ident, seq=0):
            return frames.ipv4(L_ADDR, W_ADDR, 17, frames.udp(L_ADDR, W_ADDR, 40000, 9, datagram(5, seq)),
                               ttl=ttl_value, ident=ident)

        injector.send(packet(1, 0x7777))
        injector.send(packet(0, 0x7778))
        wait_until(lambda: exceeded.seen, 1, "ICMP time exceeded at L")
        message = exceeded.packets()[0]
        quoted = Packet(message.body[8:])
        check_equal((message.src, quoted.src, quoted.sport, quoted.ident), (RA_ADDR, L_ADDR, 40000, 0x7777),
                    "time exceeded: source, quoted source, port and ID")
        check_equal(lab.reason("ra", "ttl") - seen, 2, "packets counted as `ttl`")
        check_equal(at_w.settle(), [], "packets with TTL 1 or 0 at W")

        # Header checksums around 0x0000 and 0xffff, before and after.
        wanted = {}
        for ident in range(65536):
            head = packet(64, ident)[:20]
            value = int.from_bytes(head[10:12], "big")
            if value in (0, 1, 0xff, 0x100, 0x101, 0xfeff, 0xff00, 0xfffe, 0xffff) or ident % 8192 == 0:
                wanted[ident] = value
        for after in (0, 1, 0xfeff, 0xff00, 0xfffe):  # the value that leaves without NAT
            wanted.update({ident: after for ident in range(0, 65536, 257)
                           if int.from_bytes(packet(63, ident)[10:12], "big") == after})
        at_w.clear()
        for seq, ident in enumerate(wanted):
            injector.send(packet(64, ident, seq))
        got = {one.ident: one for one in map(lambda f: Packet(f[14:]), at_w.settle())}
        check_equal(sorted(got), sorted(wanted), "IDs at W")
        for one in got.values():
            check(one.header_ok() and one.l4_ok(), f"checksums of {one}")
            check_equal(one.ttl, 63, "TTL")
            # RFC 1624: an incremental update must write what a full computation would.
            fresh = frames.ipv4(one.src, one.dst, 17, one.body, ttl=63, ident=one.ident)
            check_equal(one.data[:20], fresh[:20], "IPv4 header")
