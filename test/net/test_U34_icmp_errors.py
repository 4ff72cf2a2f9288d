# SPDX-License-Identifier: GPL-2.0-only
"""U34: ICMP errors about a translated fast flow reach the sender, translated back, and do not end the flow."""
import struct

import frames
from lab import check, check_equal, wait_until
from labs import L_ADDR, RB_ADDR, W_ADDR, lab_a
from raw import Injector, Packet, Sniffer, difference, is_icmp, outcome, parse
from traffic import TcpStream, UdpFlow, UdpPeer, check_fast, warm_up


def errors(tcp_port):
    """What W sends, about what it got from R."""
    def quote(proto, port, extra, options=b"", offset=0, target=None):
        if proto == 17:
            inner = frames.udp(RB_ADDR, W_ADDR, port, target or 9, bytes(200))
        else:
            inner = frames.tcp(RB_ADDR, W_ADDR, port, target or 8000, bytes(200), seq=5)
        packet = frames.ipv4(RB_ADDR, W_ADDR, proto, inner, ttl=63, options=options, offset=offset)
        return packet[:20 + len(options) + 8 + extra]

    packets = []
    for kind, code, rest in ((3, 4, struct.pack("!HH", 0, 1300)), (3, 3, bytes(4)), (11, 0, bytes(4))):
        for proto, port in ((17, 40000), (6, tcp_port)):
            if kind == 3 and code == 3 and proto == 17:
                continue  # would end L's socket; covered by the sockets of other scenarios
            quotes = (quote(proto, port, 0), quote(proto, port, 28), quote(proto, port, 0, b"\x94\x04\0\0"),
                      quote(proto, port, 0, offset=185), quote(proto, port + 7, 0), quote(proto, port, 0, target=12))
            for quoted in quotes:
                message = frames.icmp(kind, code, rest, quoted)
                packets.append(frames.ipv4(W_ADDR, RB_ADDR, 1, message, ident=len(packets)))
    return packets


def run():
    with lab_a() as lab:
        UdpPeer(lab["W"], W_ADDR, 9)
        flow = UdpFlow(lab["L"], ("0.0.0.0", 40000), (W_ADDR, 9))
        warm_up(flow)
        stream = TcpStream(lab["L"], (W_ADDR, 8000), lab["W"], rate=100_000)
        injector = Injector(lab["W"], "wa", lab["R"], "rb")
        at_l = Sniffer(lab["L"], "la", lambda frame: is_icmp(3)(frame) or is_icmp(11)(frame))
        packets = errors(stream.sport)
        plain = outcome(injector, packets, [at_l])
        check(len(plain[0]) >= len(packets) // 3, f"only {len(plain[0])} of {len(packets)} errors reached L")
        lab["L"].ip("route flush cache")

        lab.attach("ra", "rb")
        flow.start(50)
        lab.wait_live(proto="udp", sport=40000)
        lab.wait_live(proto="tcp", sport=stream.sport)
        flow.stop()
        flow.lost()
        carried = lab.flow(proto="udp", sport=40000)["reply"]["packets"]
        fast = outcome(injector, packets, [at_l])
        check_equal(difference(plain, fast, ["L"]), None, "ICMP errors at L")
        for message in map(parse, at_l.frames()):
            quoted = Packet(message.body[8:])
            check_equal((message.dst, quoted.src, quoted.sport in (40000, stream.sport)), (L_ADDR, L_ADDR, True),
                        "destination and quoted source")
            check(message.header_ok() and message.l4_ok(), "checksums of the message")
        check("mtu 1300" in lab["L"].ip(f"route get {W_ADDR}"), "L did not learn the MTU")
        now = lab.flow(proto="udp", sport=40000)["reply"]["packets"]
        check_equal(now, carried, "packets of the flow after the ICMP messages")
        stream.check_progress()
        wait_until(lambda: lab.live(proto="tcp", sport=stream.sport), 2, "the TCP flow is live")
        check_fast(lab, flow)
        stream.stop()
