# SPDX-License-Identifier: GPL-2.0-only
"""U26: a shaper on the egress device keeps its rate, also when it comes later."""
import socket
import threading
import time

from lab import check, check_equal, wait_until
from labs import W_ADDR, lab_a
from traffic import TcpServer, connect

LIMIT = 10.5e6
TBF = "root tbf rate 10mbit burst 10k latency 50ms"


class Upload:
    """As many bytes as go through, L to W; rate() over an interval."""

    def __init__(self, lab):
        self.received = 0
        TcpServer(lab["W"], W_ADDR, 8000, self._sink)
        self.connection = connect(lab["L"], (W_ADDR, 8000))
        self.sport = self.connection.getsockname()[1]
        self.running = True
        threading.Thread(target=self._send, daemon=True).start()

    def _sink(self, connection, _address):
        while data := connection.recv(1 << 20):
            self.received += len(data)

    def _send(self):
        try:
            while self.running:
                self.connection.sendall(bytes(1 << 14))
        except OSError:
            pass

    def rate(self, seconds):
        before, start = self.received, time.monotonic()
        time.sleep(seconds)
        return (self.received - before) * 8 / (time.monotonic() - start)

    def stop(self):
        self.running = False
        self.connection.shutdown(socket.SHUT_RDWR)


def qdisc_bytes(lab):
    text = lab["R"].run("tc", "-s", "qdisc", "show", "dev", "rb").stdout
    return int(text.split("Sent ")[1].split()[0])


def shaped(mode):
    """The rate of a 10 Mbit/s shaper holds."""
    with lab_a(watch={"up": "tcp dport 8000", "down": "tcp sport 8000"}) as lab:
        lab["R"].run("tc", "qdisc", "add", "dev", "rb", *TBF.split())
        lab.attach("ra", "rb", mode=mode)
        upload = Upload(lab)
        wait_until(lambda: lab.find(proto="tcp", sport=upload.sport), 8, "the connection is listed")
        before, start = qdisc_bytes(lab), upload.received
        rate = upload.rate(3)
        counted, passed = qdisc_bytes(lab) - before, upload.received - start
        print(f"--mode {mode}: {rate / 1e6:.2f} Mbit/s; {lab.find(proto='tcp', sport=upload.sport)[:1]}")
        check(rate <= LIMIT, f"--mode {mode}: {rate / 1e6:.1f} Mbit/s through a 10 Mbit/s shaper")
        check(counted >= passed * 0.95, f"--mode {mode}: the qdisc counted {counted} of {passed} bytes")
        upload.stop()


def forced_xdp():
    """XDP may exceed the rate, but says so when it is attached and in stats."""
    with lab_a(watch={"up": "tcp dport 8000", "down": "tcp sport 8000"}) as lab:
        for host, dev in ("L", "la"), ("W", "wa"):  # what XDP on veth needs: docs/design.md
            lab[host].run("ethtool", "-K", dev, "gro", "on", "tx", "off")
        lab["R"].run("tc", "qdisc", "add", "dev", "rb", *TBF.split())
        lab.start()
        attached = lab.ftctl_raw("attach", "ra", "rb", "--mode", "xdp", "--force")
        check_equal(attached.returncode, 0, f"exit code of attach --mode xdp --force: {attached.stderr}")
        said = attached.stdout + attached.stderr
        check("rb: XDP bypasses the egress qdisc" in said, f"attach does not warn of the qdisc: {said}")
        for dev in ("ra", "rb"):
            check_equal(lab.stats(dev)["bypasses_qdisc"], True, f"bypasses_qdisc of {dev}")
        upload = Upload(lab)
        wait_until(lambda: lab.live(proto="tcp", sport=upload.sport), 8, "flow live")
        before = lab.flow(proto="tcp", sport=upload.sport)["orig"]["bytes"]
        print(f"--mode xdp: {upload.rate(2) / 1e6:.2f} Mbit/s")
        check(lab.flow(proto="tcp", sport=upload.sport)["orig"]["bytes"] > before, "no packet took the fast path")
        upload.stop()


def shaper_comes_later():
    with lab_a(watch={"up": "tcp dport 8000", "down": "tcp sport 8000"}) as lab:
        lab.attach("ra", "rb")
        upload = Upload(lab)
        wait_until(lambda: lab.live(proto="tcp", sport=upload.sport), 8, "flow live")
        check(upload.rate(1) > 5 * LIMIT, "the rate without a shaper is too low for the test to prove anything")
        lab["R"].run("tc", "qdisc", "add", "dev", "rb", *TBF.split())
        time.sleep(2)  # what a shaper that comes later is given to be noticed
        rate = upload.rate(3)
        check(rate <= LIMIT, f"a shaper that came later lets {rate / 1e6:.1f} Mbit/s through")
        upload.stop()


def run():
    for mode in ("auto", "tc"):
        shaped(mode)
    forced_xdp()
    shaper_comes_later()
