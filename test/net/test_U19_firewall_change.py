# SPDX-License-Identifier: GPL-2.0-only
"""U19: flush is selective and invisible; a new drop rule stops a running flow; a reload does not disturb it."""
import time

from lab import check, check_equal, wait_until
from labs import W_ADDR, lab_a
from traffic import check_fast, fast_udp

MATCH = {"proto": "udp", "sport": 40000, "dport": 9}


def run():
    with lab_a() as lab:
        router = lab["R"]
        lab.attach("ra", "rb")
        flow, peer = fast_udp(lab, pps=100)
        number = lab.ct("udp", sport=40000)["id"]

        def undisturbed(text, first):
            flow.stop()
            check_equal(flow.lost(first), 0, f"{text}: lost")
            check_equal({port for _addr, port in peer.sources}, {40000}, f"{text}: NAT ports")
            check_equal(lab.ct("udp", sport=40000)["id"], number, f"{text}: conntrack id")
            check_fast(lab, flow)
            flow.start(100)

        first, before = flow.sent, lab.flow(**MATCH)["id"]
        check_equal(lab.ftctl("flush", "dst", "203.0.113.77").get("flushed"), 0, "flows flushed for another host")
        check_equal(lab.flow(**MATCH)["id"], before, "the flow after a flush of another host")
        undisturbed("flush of another host", first)

        first = flow.sent
        check(lab.ftctl("flush", "dst", W_ADDR).get("flushed", 0) >= 1, "flush of this host found nothing")
        lab.wait_live(**MATCH)
        undisturbed("flush of this host", first)

        # A reload of everything with the same NAT.
        first = flow.sent
        rules = router.run("nft", "list", "ruleset").stdout
        router.nft("flush ruleset\n" + rules)
        lab.wait_live(**MATCH)
        undisturbed("reload of the ruleset", first)

        # A rule alone stops what runs: flows are witnessed again after a change of the ruleset.
        router.nft(f"table ip block {{ chain f {{ type filter hook forward priority 0; ip daddr {W_ADDR} drop; }} }}")
        time.sleep(1.3)
        stopped = peer.received(1)
        time.sleep(1)
        check_equal(peer.received(1), stopped, "datagrams at W a second after the drop rule came")
        check(not lab.live(**MATCH), "the flow is live although a rule drops it")
        router.run("nft", "delete", "table", "ip", "block")
        wait_until(lambda: peer.received(1) > stopped, 1.5, "datagrams at W after the rule went")
        lab.wait_live(**MATCH)
        flow.stop()
        flow.lost()

        # conntrack -F: a new entry, the same NAT, fast again.
        router.run("conntrack", "-F", ok=False)
        wait_until(lambda: not lab.find(**MATCH), 1, "no flow after conntrack -F")
        flow.start(100)
        lab.wait_live(**MATCH)
        flow.stop()
        flow.lost()
        check_fast(lab, flow)
