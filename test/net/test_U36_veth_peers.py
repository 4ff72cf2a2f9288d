# SPDX-License-Identifier: GPL-2.0-only
"""U36: redirected frames vanish in a veth whose peer runs no NAPI: not chosen, refused with the remedy, or counted."""
from lab import check, check_equal, wait_until
from labs import lab_a
from test_L01_attach_detach import check_same, snapshot
from traffic import check_fast, fast_udp


def napi(lab, on):
    for host, dev in (("L", "la"), ("W", "wa")):
        # Also no unfinished checksums, which nobody finishes at XDP.
        lab[host].run("ethtool", "-K", dev, "gro", "on" if on else "off", "tx", "off")


def run():
    with lab_a() as lab:
        lab.attach("ra", "rb")
        check_equal({device["hook"] for device in lab.stats()["devices"]}, {"tc"}, "hooks chosen for a plain veth")
        flow, peer = fast_udp(lab)
        check_fast(lab, flow)
        lab.detach()

        before = snapshot(lab)
        for words in (), ("--force",):
            refused = lab.ftctl_raw("attach", "ra", "rb", "--mode", "xdp", *words)
            check_equal(refused.returncode, 2, f"attach --mode xdp {words}: {refused.stdout}{refused.stderr}")
            for word in "ra", "peer", "gro on":
                check(word in refused.stderr, f"the error does not say {word}: {refused.stderr}")
            check_same(before, snapshot(lab), "after an attach that was refused")

        napi(lab, True)
        lab.ftctl("attach", "ra", "rb", "--mode", "xdp", "--force")
        check_equal({device["hook"] for device in lab.stats()["devices"]}, {"xdp"}, "hooks by force")
        flow.start(50)
        lab.wait_live(proto="udp", sport=40000)
        check_fast(lab, flow)

        # The peer stops its NAPI: each frame that is lost is counted where it should have left.
        sent, arrived, failed = flow.sent, peer.received(1), lab.stats("rb")["tx_failed"]
        lab["W"].run("ethtool", "-K", "wa", "gro", "off")
        flow.send(50)
        flow.lost(sent)
        lost = 50 - (peer.received(1) - arrived)
        wait_until(lambda: lab.stats("rb")["tx_failed"] - failed == lost, 3, f"tx_failed of rb tells of {lost} frames")
        # ... for a second: then the stack sends them.
        def carried(by_stack):
            slow = lab.count("up")
            first = flow.send(5)
            return flow.lost(first) == 0 and (lab.count("up") - slow == 5) == by_stack
        wait_until(lambda: carried(True), 5, "the stack carries what cannot be redirected")
        check(lab.reason("ra", "egress") > 0, "the reason is counted")
        lab["W"].run("ethtool", "-K", "wa", "gro", "on")
        wait_until(lambda: carried(False), 5, "traffic is fast again with NAPI")
