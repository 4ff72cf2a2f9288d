# SPDX-License-Identifier: GPL-2.0-only
"""U53: options, wrong lengths and other protocols on a fast flow's tuple: the stack decides, as without ftctl."""
import struct

import frames
from lab import check, check_equal
from labs import L_ADDR, RA_ADDR, RB_ADDR, W_ADDR, lab_a
from raw import ETH_P_IP, Injector, Sniffer, difference, outcome, parse
from traffic import UdpFlow, UdpPeer, check_fast, warm_up

PORTS = struct.pack("!HH", 40000, 9)


def odd_packets():
    """(what, packet)"""
    def udp(payload=b"odd", **lies):
        return frames.udp(L_ADDR, W_ADDR, 40000, 9, payload, **lies)

    def ip(body, proto=17, **header):
        return frames.ipv4(L_ADDR, W_ADDR, proto, body, **header)

    yield "router alert", ip(udp(), options=b"\x94\x04\0\0")
    yield "record route", ip(udp(), options=b"\x07\x0b\x04" + bytes(8))
    yield "timestamp, full", ip(udp(), options=b"\x44\x0c\x0d\x00" + bytes(8))  # a time would differ between runs
    yield "40 bytes of no-operation", ip(udp(), options=b"\x01" * 40)
    yield "options that look like the ports", ip(udp(), options=PORTS + bytes(36))
    yield "IHL 4", ip(udp(), ihl=4)
    yield "IHL 15 in a short packet", ip(udp(b""), ihl=15)
    yield "IP version 5", ip(udp(), version=5)
    yield "total length beyond the frame", ip(udp(), length=1000)
    yield "total length below the header", ip(udp(), length=19)
    yield "total length without ports", ip(udp(), length=22)
    yield "UDP length too large", ip(udp(length=100))
    yield "UDP length below 8", ip(udp(length=7))
    yield "wrong IPv4 header checksum", ip(udp(), check=("xor", 0x0101))
    for name, proto in (("SCTP", 132), ("ESP", 50), ("AH", 51), ("IPIP", 4), ("protocol 253", 253), ("GRE", 47)):
        yield name + " with the ports as first bytes", ip(PORTS + bytes(60), proto)
    yield "UDP-Lite", ip(udp(), 136)
    yield "ICMP echo that looks like the ports", ip(frames.icmp(8, 0, PORTS, b"ping"), 1)
    for doff in (0, 4, 15):
        yield f"TCP data offset {doff}", ip(frames.tcp(L_ADDR, W_ADDR, 40000, 9, doff=doff), 6)
    yield "truncated TCP header", ip(frames.tcp(L_ADDR, W_ADDR, 40000, 9)[:12], 6)


def run():
    routers = (RA_ADDR, RB_ADDR)
    with lab_a() as lab:
        UdpPeer(lab["W"], W_ADDR, 9)
        flow = UdpFlow(lab["L"], ("0.0.0.0", 40000), (W_ADDR, 9))
        warm_up(flow)
        injector = Injector(lab["L"], "la", lab["R"], "ra")
        odd = list(odd_packets())
        packets = [packet for _text, packet in odd]

        # W must not answer, and R answer always: errors are limited by rate, which would differ between runs.
        lab["W"].nft("table ip no { chain o { type filter hook output priority 0; meta l4proto icmp drop; } }")
        lab["R"].sysctl_set("net/ipv4/icmp_ratelimit", 0)

        def ipv4(frame):
            return frame[12:14] == b"\x08\x00"

        names = ["W", "L", "R's stack"]
        sniffers = [Sniffer(lab["W"], "wa", ipv4), Sniffer(lab["L"], "la", ipv4),
                    Sniffer(lab["R"], "ra", ipv4, kind=ETH_P_IP)]
        # Once before to have the kernel's ARP and conntrack entries of both runs alike.
        outcome(injector, packets, sniffers, routers)
        lab["R"].run("conntrack", "-D", "-p", "icmp", ok=False)
        plain = outcome(injector, packets, sniffers, routers)
        check(len(plain[0]) >= 5, "the stack forwarded nearly nothing: the test would prove nothing")
        lab.attach("ra", "rb")
        flow.start(50)
        lab.wait_live(proto="udp", sport=40000)
        flow.stop()
        flow.lost()
        before = lab.flow(proto="udp", sport=40000)
        stats = lab.stats("ra")
        lab["R"].run("conntrack", "-D", "-p", "icmp", ok=False)
        fast = outcome(injector, packets, sniffers, routers)
        check_equal(difference(plain, fast, names), None, "what arrived")
        after = lab.flow(proto="udp", sport=40000)
        for side in ("orig", "reply"):
            check_equal(after[side]["packets"], before[side]["packets"], f"{side}: packets of the flow")
        now = lab.stats("ra")
        check_equal(now["fast_packets"], stats["fast_packets"], "fast packets of ra")
        for name in ("ip-options", "bad-length", "bad-checksum", "protocol"):
            check(now["reasons"][name] > stats["reasons"].get(name, 0), f"no packet was counted as {name}")
        check(any(parse(frame) for frame in sniffers[0].frames()), "nothing reached W")
        check_fast(lab, flow)
