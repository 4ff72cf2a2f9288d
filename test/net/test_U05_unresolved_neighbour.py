# SPDX-License-Identifier: GPL-2.0-only
"""U05: an unresolved neighbour is the stack's business: it queues and answers, nothing is swallowed."""
import time

from lab import check, check_equal, wait_until
from labs import W_ADDR, lab_a
from raw import Sniffer, is_icmp
from traffic import check_fast, fast_udp

MATCH = {"proto": "udp", "sport": 40000, "dport": 9}


def run():
    with lab_a() as lab:
        lab.attach("ra", "rb")
        flow, _peer = fast_udp(lab, pps=200)
        for how in ("neigh flush dev rb", f"neigh del {W_ADDR} dev rb"):
            flow.stop()
            check_equal(flow.lost(), 0, "lost before the neighbour was flushed")
            first = flow.sent
            flow.start(200)
            time.sleep(0.3)
            lab["R"].ip(how)
            time.sleep(0.2)
            lab.wait_live(1.0, **MATCH)  # resolved at once: fast again within a second
            flow.stop()
            check(flow.lost(first) <= 3, f"`ip {how}`: {flow.lost(first)} datagrams lost, the kernel loses 3 at most")
            check_fast(lab, flow)

        # W is silent in ARP: the entry fails and L must be told. Its requests stop too: R would learn its MAC from one.
        unreachable = Sniffer(lab["L"], "la", is_icmp(3, 1))
        passed = lab.reason("ra", "no-neigh") + lab.reason("ra", "stale") + lab.reason("ra", "no-flow")
        lab["W"].nft("""table arp a {
            chain i { type filter hook input priority 0; drop; }
            chain o { type filter hook output priority 0; drop; } }""")
        lab["R"].ip("neigh flush dev rb")
        flow.start(50)
        wait_until(lambda: unreachable.seen, 6, "ICMP host unreachable reaches L")
        now = lab.reason("ra", "no-neigh") + lab.reason("ra", "stale") + lab.reason("ra", "no-flow")
        check(now > passed, "no counter on ra says why packets went to the stack")
        lab["W"].run("nft", "delete", "table", "arp", "a")
        lab.wait_live(8, **MATCH)
        check_fast(lab, flow)

        # The link goes down and comes back.
        flow.start(50)
        lab["W"].ip("link set wa down")
        time.sleep(3.5)
        lab["W"].ip("link set wa up")
        lab.wait_live(8, **MATCH)
        flow.stop()
        flow.lost()
        check_fast(lab, flow)
