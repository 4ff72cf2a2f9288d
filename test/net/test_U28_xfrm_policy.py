# SPDX-License-Identifier: GPL-2.0-only
"""U28: an IPsec policy that blocks also stops what was fast before."""
import time

from lab import CONVERGE_S, check_equal, wait_until
from labs import W_ADDR, lab_a
from traffic import UdpFlow, UdpPeer, check_fast

POLICY = "xfrm policy {} src 192.0.2.0/24 dst 198.51.100.0/24 dir {} {}"
MATCH = {"proto": "udp", "sport": 40000, "dport": 9}


def run():
    with lab_a(nat=False) as lab:
        router = lab["R"]
        lab.attach("ra", "rb")
        peer = UdpPeer(lab["W"], W_ADDR, 9)
        router.ip(POLICY.format("add", "out", "action block"))
        flow = UdpFlow(lab["L"], ("0.0.0.0", 40000), (W_ADDR, 9)).start(100)
        wait_until(lambda: flow.sent > 100, 3, "datagrams are sent")
        check_equal(peer.received(1), 0, "datagrams at W while a policy blocks them")
        check_equal(lab.find(**MATCH), [], "flows while a policy blocks them")

        router.ip(POLICY.format("delete", "out", ""))
        lab.wait_live(**MATCH)
        for direction in ("fwd", "out"):
            router.ip(POLICY.format("add", direction, "action block"))
            time.sleep(CONVERGE_S)
            stopped = peer.received(1)
            time.sleep(1)
            check_equal(peer.received(1), stopped, f"datagrams at W a second after the {direction} policy came")
            check_equal(lab.live(**MATCH), None, f"live flow under a {direction} policy")
            router.ip(POLICY.format("delete", direction, ""))
            wait_until(lambda stopped=stopped: peer.received(1) > stopped, 1.5, "datagrams after the policy went")
            lab.wait_live(**MATCH)
        check_fast(lab, flow)

        # A policy for somebody else does not matter, one that allows does not either.
        router.ip("xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out action block")
        flow.start(50)
        lab.wait_live(**MATCH)
        flow.stop()
        check_equal(flow.lost(flow.sent - 50), 0, "lost")
