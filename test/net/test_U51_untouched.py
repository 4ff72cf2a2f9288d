# SPDX-License-Identifier: GPL-2.0-only
"""U51: a packet that the fast path gives up is handed to the stack as it came."""
import time

import frames
from lab import CONVERGE_S, check, check_equal
from labs import L_ADDR, RB_ADDR, W_ADDR, lab_a
from raw import ETH_P_IP, Injector, Sniffer, is_flow, normal
from traffic import datagram, fast_udp

MATCH = {"proto": "udp", "sport": 40000, "dport": 9}


def run():
    with lab_a() as lab:
        router = lab["R"]
        lab.attach("ra", "rb")
        flow, _peer = fast_udp(lab, pps=100)
        injector = Injector(lab["L"], "la", router, "ra")
        passed = Sniffer(router, "ra", is_flow(17, dport=9), kind=ETH_P_IP)

        def hidden_arp(on):
            if on:
                lab["W"].nft("table arp a { chain i { type filter hook input priority 0; drop; } }")
            else:
                lab["W"].run("nft", "delete", "table", "arp", "a", ok=False)

        def no_route():
            router.ip("route del 198.51.100.0/24 dev rb")

        def route_back():
            router.ip(f"route replace 198.51.100.0/24 dev rb proto kernel scope link src {RB_ADDR}")

        def prohibit():
            router.ip(f"route add prohibit {W_ADDR}/32")

        def allow():
            router.ip(f"route del prohibit {W_ADDR}/32")

        def unresolved():
            hidden_arp(True)
            router.ip("neigh flush dev rb")

        def resolved():
            hidden_arp(False)
            router.ip("neigh flush dev rb")

        cases = (("no route", no_route, route_back), ("prohibit route", prohibit, allow),
                 ("unresolved neighbour", unresolved, resolved),
                 ("egress down", lambda: router.ip("link set rb down"), lambda: router.ip("link set rb up")),
                 ("oversize", lambda: router.ip("link set rb mtu 600"), lambda: router.ip("link set rb mtu 1500")))
        for number, (text, spoil, mend) in enumerate(cases):
            flow.stop()
            flow.lost(settle=0.2)
            stats = lab.stats("ra")
            spoil()
            time.sleep(CONVERGE_S)
            passed.clear()
            sent = [frames.ipv4(L_ADDR, W_ADDR, 17,
                                frames.udp(L_ADDR, W_ADDR, 40000, 9, datagram(50, seq, 700)), ident=number * 16 + seq)
                    for seq in range(10)]
            for packet in sent:
                injector.send(packet)
            got = [normal(frame)[2:] for frame in passed.settle()]
            check_equal(len(got), len(sent), f"{text}: packets that the stack got")
            for packet, arrived in zip(sent, got):
                check(arrived[:len(packet)] == packet, f"{text}: sent {packet.hex()}, the stack got {arrived.hex()}")
            strange = [entry for entry in lab.conntrack("-p", "udp") if entry["orig"]["src"] != L_ADDR]
            check_equal(strange, [], f"{text}: conntrack entries of a packet that was half translated")
            now = lab.stats("ra")
            reasons = {name: count - stats["reasons"].get(name, 0) for name, count in now["reasons"].items()
                       if count != stats["reasons"].get(name, 0)}
            check(sum(reasons.values()) >= len(sent), f"{text}: reasons counted: {reasons}")
            print(f"{text}: {reasons}")
            mend()
            flow.start(100)
            lab.wait_live(**MATCH)
