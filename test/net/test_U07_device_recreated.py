# SPDX-License-Identifier: GPL-2.0-only
"""U07: a device deleted and made again is attached again; its old ifindex carries nothing of the old flows."""
import time

from lab import check, check_equal, hold, wait_until
from labs import RB_ADDR, W_ADDR, lab_a
from raw import Sniffer, is_flow
from traffic import check_fast, fast_udp

MATCH = {"proto": "udp", "sport": 40000, "dport": 9}


def make_rb(lab, index=""):
    lab.veth("R", "rb", "W", "wa", extra_a=index)
    lab["R"].ip(f"addr add {RB_ADDR}/24 dev rb")
    lab["W"].ip(f"addr add {W_ADDR}/24 dev wa")


def listed(lab, dev):
    return [device["index"] for device in lab.ftctl("stats")["devices"] if device["name"] == dev]


def run():
    with lab_a() as lab:
        router = lab["R"]
        lab.attach("ra", "rb")
        flow, peer = fast_udp(lab, bind="0.0.0.0", pps=100)

        old = router.ifindex("rb")
        for text, index in (("(a) new ifindex", ""), ("(b) the same ifindex", f"index {old}")):
            before = router.ifindex("rb")
            router.ip("link del rb")
            wait_until(lambda: lab.flow(**MATCH) is None, 1.5, f"{text}: flows of the deleted device purged")
            check(lab.alive(), f"{text}: the daemon ended")
            make_rb(lab, index)
            now = router.ifindex("rb")
            check((now == old) if index else (now != before), f"{text}: the kernel gave ifindex {now}")
            wait_until(lambda now=now: listed(lab, "rb") == [now], 2.5, f"{text}: rb attached again as {now}")
            got = peer.received(1)
            wait_until(lambda got=got: peer.received(1) > got, 3, f"{text}: datagrams reach W again")
            live = lab.wait_live(**MATCH)
            check_equal(live["orig"]["oif_index"], now, f"{text}: egress ifindex of the flow")
            check_fast(lab, flow)
            flow.start(100)

        # (c) Somebody else's device gets the index.
        lab.spaces["G"] = type(router)(lab, "G")
        recycled = router.ifindex("rb")
        router.ip("link del rb")
        lab.veth("R", "guest", "G", "gg", extra_a=f"index {recycled}")
        guest = Sniffer(lab["G"], "gg", is_flow(17, dport=9))
        check_equal(router.ifindex("guest"), recycled, "ifindex of guest")
        router.ip("addr add 203.0.113.1/24 dev guest")
        wait_until(lambda: not lab.find(**MATCH), 1.5, "old flows purged")
        hold(lambda: not guest.seen, 2, "no packet of the old flow on guest", 0.2)
        check_equal(listed(lab, "guest"), [], "guest is attached although nobody asked")
        flow.stop()
        time.sleep(0.2)
        check(lab.alive(), "the daemon ended")
        lab.detach()
        check_equal(lab.ftctl_raw("detach", "--all").returncode in (0, 3), True, "detach --all with nothing attached")
