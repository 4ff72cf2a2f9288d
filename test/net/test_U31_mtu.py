# SPDX-License-Identifier: GPL-2.0-only
"""U31: packets larger than the egress MTU are never delivered; the sender is told, as by the kernel alone."""
import hashlib
import socket
import struct
import threading
import time

import frames
from lab import CONVERGE_S, check, check_equal, wait_until
from labs import L_ADDR, W_ADDR, lab_a
from raw import Injector, Packet, Sniffer, is_flow, is_icmp
from traffic import (IP_MTU_DISCOVER, IP_PMTUDISC_DONT, IP_PMTUDISC_PROBE, TcpServer, check_fast, connect, datagram,
                     fast_udp, paced, random_bytes)

HEADERS = 28
MATCH = {"proto": "udp", "sport": 40000, "dport": 9}


class Paced:
    """An upload of 4 MB in 4 s; the far end notes hash and the longest silence."""

    def __init__(self, lab):
        self.blob, self.gap, self.digest = random_bytes(4_000_000), 0.0, None
        TcpServer(lab["W"], W_ADDR, 8000, self._receive)
        self.connection = connect(lab["L"], (W_ADDR, 8000))
        self.thread = threading.Thread(target=self._send, daemon=True)
        self.thread.start()

    def _send(self):
        for number in paced(200, 50):
            self.connection.sendall(self.blob[number * 20000:(number + 1) * 20000])
        self.connection.shutdown(socket.SHUT_WR)

    def _receive(self, connection, _address):
        hasher, last = hashlib.sha256(), time.monotonic()
        while data := connection.recv(1 << 16):
            now = time.monotonic()
            self.gap, last = max(self.gap, now - last), now
            hasher.update(data)
        self.digest = hasher.hexdigest()


def run():
    with lab_a() as lab:
        router = lab["R"]
        router.ip("link set rb mtu 1400")
        lab.attach("ra", "rb")
        flow, peer = fast_udp(lab, pps=100)
        errors = Sniffer(lab["L"], "la", is_icmp(3, 4))
        at_w = Sniffer(lab["W"], "wa", is_flow(17, src="198.51.100.1"))

        def probe(limit, lengths):
            """DF packets of these IP lengths: delivered exactly up to the limit, told exactly above."""
            flow.stop()
            flow.lost()
            peer.echo = False
            errors.clear()
            at_w.clear()
            flow.socket.setsockopt(socket.SOL_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
            for length in lengths:
                flow.send_one(length - HEADERS)
                time.sleep(0.01)
            small = [length for length in lengths if length <= limit]
            large = [length for length in lengths if length > limit]
            check_equal([packet.length for packet in map(lambda f: Packet(f[14:]), at_w.settle())], small,
                        f"limit {limit}: lengths delivered")
            wait_until(lambda: len(errors.seen) >= len(large), 1, f"limit {limit}: {len(large)} ICMP messages")
            check_equal(len(errors.settle(0.1)), len(large), f"limit {limit}: ICMP messages")
            for message, length in zip(errors.packets(), large):
                quoted = Packet(message.body[8:])
                check_equal(struct.unpack_from("!H", message.body, 6)[0], limit, f"length {length}: MTU told")
                check_equal((quoted.src, quoted.sport, quoted.dst, quoted.dport, quoted.length),
                            (L_ADDR, 40000, W_ADDR, 9, length), "quoted packet, before NAT")
            flow.socket.setsockopt(socket.SOL_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)

        probe(1400, [1399, 1400, 1401, 1402, 1403, 1404, 1405, 1500, 1400])

        # Without DF: valid fragments, complete at W.
        large = lab.reason("ra", "mtu")
        injector = Injector(lab["L"], "la", router, "ra")
        for number in range(5):  # by hand: L itself knows the path MTU by now and would fragment
            body = frames.udp(L_ADDR, W_ADDR, 40000, 9, datagram(88, number, 1500 - HEADERS))
            injector.send(frames.ipv4(L_ADDR, W_ADDR, 17, body, flags=0, ident=number + 1))
        wait_until(lambda: peer.received(88) == 5, 1, "fragmented datagrams at W")
        check(all(Packet(frame[14:]).length <= 1400 for frame in at_w.settle()), "a frame larger than the MTU")
        check_equal(lab.reason("ra", "mtu") - large, 5, "packets counted as `mtu` on ra")
        peer.echo = True
        check_fast(lab, flow)

        # The MTU changes while the flow is live; a TCP upload goes on.
        upload = Paced(lab)
        time.sleep(0.7)
        router.ip("link set rb mtu 1300")
        time.sleep(CONVERGE_S)
        probe(1300, [1299, 1300, 1301, 1304, 1305, 1400])
        router.ip("route replace 198.51.100.0/24 dev rb proto kernel scope link src 198.51.100.1 mtu lock 1250")
        time.sleep(CONVERGE_S)
        probe(1250, [1250, 1251, 1254, 1300, 1301])
        upload.thread.join(20)
        wait_until(lambda: upload.digest, 5, "the upload ends")
        check_equal(upload.digest, hashlib.sha256(upload.blob).hexdigest(), "SHA-256 of the upload")
        check(upload.gap < 1.0, f"the upload stood still for {upload.gap:.2f} s")
        peer.echo = True
        flow.start(50)
        lab.wait_live(**MATCH)
        check_fast(lab, flow)
