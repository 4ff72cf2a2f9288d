# SPDX-License-Identifier: GPL-2.0-only
"""U29: packets with a flow's tuple that come in by another device get no lift."""
import time

import frames
from lab import check, check_equal
from labs import L_ADDR, RB_ADDR, W_ADDR, lab_a
from raw import Injector, Sniffer, parse
from traffic import TcpStream, check_fast, fast_udp

MARK = b"injected"
COUNT = 50


def run():
    with lab_a(roles=("L", "R", "W", "M")) as lab:
        router = lab["R"]
        lab.veth("M", "mm", "R", "rm")
        lab["M"].ip("addr add 203.0.113.2/24 dev mm")
        router.ip("addr add 203.0.113.1/24 dev rm")
        for dev in ("all", "ra", "rb", "rm"):
            router.sysctl_set(f"net/ipv4/conf/{dev}/rp_filter", 1)
        lab.attach("ra", "rb", "rm")
        flow, _peer = fast_udp(lab)
        stream = TcpStream(lab["L"], (W_ADDR, 8000), lab["W"], rate=100_000)
        lab.wait_live(proto="tcp", sport=stream.sport)

        def injected(frame):
            packet = parse(frame)
            return bool(packet and packet.payload().startswith(MARK))

        at_w, at_l = Sniffer(lab["W"], "wa", injected), Sniffer(lab["L"], "la", injected)
        from_m, from_w = Injector(lab["M"], "mm", router, "rm"), Injector(lab["W"], "wa", router, "rb")
        up = [frames.ipv4(L_ADDR, W_ADDR, 17, frames.udp(L_ADDR, W_ADDR, 40000, 9, MARK)),
              frames.ipv4(L_ADDR, W_ADDR, 6, frames.tcp(L_ADDR, W_ADDR, stream.sport, 8000, MARK, flags=0x18))]
        down = [frames.ipv4(W_ADDR, RB_ADDR, 17, frames.udp(W_ADDR, RB_ADDR, 9, 40000, MARK)),
                frames.ipv4(W_ADDR, RB_ADDR, 6, frames.tcp(W_ADDR, RB_ADDR, 8000, stream.sport, MARK, flags=0x18))]
        before = {proto: lab.flow(proto=proto, dport=port) for proto, port in (("udp", 9), ("tcp", 8000))}
        flow.stop()
        flow.lost()
        quiet = lab.flow(proto="udp", dport=9)
        for _number in range(COUNT):
            for packet in up + down:
                from_m.send(packet)
            for packet in up:
                from_w.send(packet)
        time.sleep(0.5)
        check_equal((len(at_w.frames()), len(at_l.frames())), (0, 0), "injected packets at W and L")
        check(before["udp"] and before["tcp"], "the flows were not in the dump")
        after = lab.flow(proto="udp", dport=9)
        for side in ("orig", "reply"):
            check_equal(after[side]["packets"], quiet[side]["packets"], f"{side}: packets of the flow")
        check(lab.reason("rm", "no-flow") >= COUNT * 4, f"counters of rm: {lab.stats('rm')}")
        stream.check_progress()
        check_fast(lab, flow)

        # Loose mode: the kernel lets L's packets in by rm, and so they arrive.
        for dev in ("all", "ra", "rb", "rm"):
            router.sysctl_set(f"net/ipv4/conf/{dev}/rp_filter", 2)
        for _number in range(COUNT):
            from_m.send(up[0])
        at_w.settle()
        check_equal(len(at_w.frames()), COUNT, "packets by the asymmetric way, rp_filter=2")
        stream.stop()
