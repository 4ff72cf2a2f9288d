# SPDX-License-Identifier: GPL-2.0-only
"""U33: fragments of a fast flow's datagrams go through the stack and arrive complete."""
import random
import struct
import time

import frames
from lab import check, check_equal, wait_until
from labs import L_ADDR, W_ADDR, lab_a
from raw import Injector
from traffic import UdpFlow, check_fast, datagram, fast_udp

SIZE = 3000


def run():
    with lab_a() as lab:
        lab.attach("ra", "rb")
        flow, peer = fast_udp(lab, pps=100)
        other = UdpFlow(lab["L"], ("0.0.0.0", 40001), (W_ADDR, 9), 2).start(50)
        lab.wait_live(proto="udp", sport=40001)
        for each in (flow, other):
            each.stop()
            each.lost()
        injector = Injector(lab["L"], "la", lab["R"], "ra")
        peer.echo = False
        number = [0]

        def pieces(cuts, payload=None):
            number[0] += 1
            body = frames.udp(L_ADDR, W_ADDR, 40000, 9, payload or datagram(77, number[0], SIZE))
            return frames.fragments(frames.ipv4(L_ADDR, W_ADDR, 17, body, flags=0, ident=number[0] + 0x4000), cuts)

        usual = [(0, 1480), (1480, 2960), (2960, None)]
        tiny = [(0, 8), (8, 1480), (1480, 2960), (2960, None)]
        shuffled = list(range(3))
        batches = []
        for _round in range(5):
            batches.append(pieces(usual))
            batches.append(pieces(usual)[::-1])
            batches.append(pieces(tiny))
            random.Random(_round).shuffle(shuffled)
            parts = pieces(usual)
            batches.append([parts[n] for n in shuffled])
            # A later fragment that begins with the ports of another fast flow.
            payload = bytearray(datagram(77, number[0] + 1, SIZE))
            payload[1472:1476] = struct.pack("!HH", 40001, 9)
            batches.append(pieces(usual, bytes(payload)))
        whole = len(batches)
        # The same fragment twice: the datagram still arrives once.
        parts = pieces(usual)
        batches.append([parts[0], parts[0], parts[1], parts[2]])
        whole += 1

        before = lab.reason("ra", "fragment")
        flows = {port: lab.flow(proto="udp", sport=port) for port in (40000, 40001)}
        sent = 0
        for batch in batches:
            for part in batch:
                injector.send(part)
                sent += 1
            time.sleep(0.005)
        wait_until(lambda: peer.received(77) == whole, 2, f"{whole} datagrams complete at W, got {peer.received(77)}")
        check_equal(peer.duplicates(77), 0, "duplicates")
        check_equal(peer.last_source[77], ("198.51.100.1", 40000), "source after NAT")
        check_equal(lab.reason("ra", "fragment") - before, sent, "fragments counted on ra")
        for port, was in flows.items():
            now = lab.flow(proto="udp", sport=port)
            check(now is not None, f"the flow of port {port} was torn down")
            check_equal(now["orig"]["packets"], was["orig"]["packets"], f"packets of the flow of port {port}")

        # Overlapping garbage never becomes a datagram.
        broken = pieces([(0, 1480), (1480, 2960), (2960, None)])
        overlap = pieces([(0, 1480), (1472, 2944)])[1]
        for part in (broken[0], overlap[:4] + broken[0][4:6] + overlap[6:], broken[1]):
            injector.send(part)
        time.sleep(0.3)
        check_equal(peer.received(77), whole, "datagrams at W after overlapping fragments")
        peer.echo = True
        check_fast(lab, flow)
        check_fast(lab, other, up="up", down="down")
