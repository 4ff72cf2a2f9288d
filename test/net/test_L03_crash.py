# SPDX-License-Identifier: GPL-2.0-only
"""L03: a killed daemon means the slow path within 6 s; one that comes back adopts; detach needs none."""
import os
import signal
import time

from lab import BIN, RUN_DIR, check, check_equal, hold, wait_until
from labs import lab_a
from traffic import TcpStream, check_fast, check_slow, fast_udp

MATCH = {"proto": "udp", "sport": 40000, "dport": 9}


def run():
    with lab_a() as lab:
        router = lab["R"]
        lab.attach("ra", "rb")
        flow, peer = fast_udp(lab, pps=100)
        stream = TcpStream(lab["L"], ("198.51.100.2", 8000), lab["W"], rate=200_000)
        lab.wait_live(proto="tcp", sport=stream.sport)

        # A second daemon of the same name is refused, the first does not notice.
        second = router.run(os.path.join(BIN, "ftctld"), "-i", lab.instance, ok=False, timeout=15)
        check(second.returncode != 0, "a second daemon of the same instance started")
        check(second.stderr.strip() or second.stdout.strip(), "the second daemon said nothing")
        check(lab.alive() and lab.ftctl("status") is not None, "the first daemon does not answer any more")
        lab.wait_live(1, **MATCH)

        # kill -9: flows go on for the heartbeat, then everything takes the stack; nothing is lost.
        first = flow.sent
        stream.reset_gap()
        lab.stop(signal.SIGKILL)
        died = time.monotonic()
        listed = lab.ftctl_raw("flows", as_json=True)
        check_equal(listed.returncode, 0, f"`flows` without a daemon: {listed.stderr}")
        check('"dport"' in listed.stdout, "`flows` without a daemon lists none")
        for words in (("stats",), ("flows", "--count")):
            check_equal(lab.ftctl_raw(*words, as_json=True).returncode, 0, f"`{words[0]}` without a daemon")
        flush = lab.ftctl_raw("attach", "ra")
        check_equal(flush.returncode, 3, f"attach without a daemon: {flush.stderr}")
        check(flush.stderr.startswith("ftctl: ") and "hint:" in flush.stderr, f"form of the error: {flush.stderr}")
        time.sleep(max(0, died + 6 - time.monotonic()))
        flow.stop()
        check_equal(flow.lost(first), 0, "datagrams lost after kill -9")
        check_slow(lab, flow)
        check(lab.stats("ra")["reasons"]["heartbeat"] > 0, "no packet was counted as `heartbeat`")
        stream.check_progress(what="the TCP stream without a daemon")

        # It comes back: adopts, loses nothing, is fast again.
        first, flows = flow.sent, lab.ftctl_raw("flows", "--count", as_json=True).stdout
        flow.start(100)
        lab.start()
        check_equal(sorted(device["name"] for device in lab.stats()["devices"]), ["ra", "rb"], "adopted devices")
        lab.wait_live(**MATCH)
        lab.wait_live(proto="tcp", sport=stream.sport)
        flow.stop()
        check_equal(flow.lost(first), 0, f"datagrams lost while the daemon came back (flows before: {flows.strip()})")
        check_fast(lab, flow)
        check(stream.longest_gap < 1.0, f"the TCP stream stood still for {stream.longest_gap:.1f} s")
        check_equal({port for _addr, port in peer.sources}, {40000}, "NAT ports")

        # Stopped in good order: pins stay, and packets go to the stack after the last beat.
        flow.start(100)
        first = flow.sent
        lab.stop()
        hold(lambda: flow.stalled_for() < 0.5, 1.5, "datagrams flow after SIGTERM")
        # detach with no daemon
        gone = lab.ftctl_raw("detach", "--all")
        check_equal(gone.returncode, 0, f"detach --all without a daemon: {gone.stderr}")
        flow.stop()
        check_equal(flow.lost(first), 0, "datagrams lost around SIGTERM and detach")
        check_slow(lab, flow)
        pins = os.path.join(RUN_DIR, "bpf", "ftctl", lab.instance)
        wait_until(lambda: not os.path.exists(pins), 1, f"{pins} is gone")
        left = router.run("bpftool", "net", "show", "dev", "ra", ok=False).stdout
        check("ftctl" not in left and "tcx" not in left, f"a program is left on ra: {left}")
        stream.check_progress(what="the TCP stream after detach")

        # And a fresh start after all that.
        lab.start()
        lab.attach("ra", "rb")
        flow.start(100)
        lab.wait_live(**MATCH)
        stream.stop()
