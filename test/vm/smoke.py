# SPDX-License-Identifier: GPL-2.0-only
"""UDP and TCP through a masquerading router on this kernel: on the fast path at both hooks, byte by byte."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "net"))

from lab import Failure, check, check_equal  # noqa: E402
from labs import W_ADDR, lab_a  # noqa: E402
from traffic import check_fast, fast_udp, random_bytes  # noqa: E402

sys.path.insert(0, HERE)
from transfer import Transfer  # noqa: E402

WATCH = {"up": "udp dport 9", "down": "udp sport 9", "tcp_up": "tcp dport 8000", "tcp_down": "tcp sport 8000"}


def at_hook(hook):
    with lab_a(watch=WATCH) as lab:
        if hook == "xdp":
            # A veth delivers redirected frames only to a peer with NAPI, and finishes no checksum on the way.
            for role, dev in (("L", "la"), ("W", "wa")):
                lab[role].run("ethtool", "-K", dev, "gro", "on", "tx", "off")
            lab.start()
            done = lab.ftctl("attach", "ra", "rb", "--mode", "xdp", "--force")
        else:
            done = lab.attach("ra", "rb", mode=hook)
        check_equal([device["hook"] for device in done["devices"]], [hook, hook], "hooks of ra and rb")
        flow, _peer = fast_udp(lab, deadline=40)
        check_fast(lab, flow)
        transfer = Transfer(lab, "L", "W", (W_ADDR, 8000))
        transfer.check_fast(random_bytes(4_000_000), "tcp_up", "tcp_down")
        lab.detach()
        first = flow.send(20)
        check_equal(flow.lost(first), 0, "datagrams lost after detach")
        lab.stop()
        check_equal(lab.daemon.returncode, 0, "exit code of ftctld")
    check(not lab.left_behind, f"left behind: {lab.left_behind}")
    print(f"ok: UDP and TCP forwarded at {hook}")


def main():
    failed = False
    for hook in ("tc", "xdp"):
        try:
            at_hook(hook)
        except Failure as failure:
            print(f"FAIL at {hook}: {failure}")
            failed = True
    return failed


sys.exit(main())
