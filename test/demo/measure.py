# SPDX-License-Identifier: GPL-2.0-only
"""Throughput through the laboratory with iperf3, and how much of it the stack saw."""
import json
import math
import time

from lab import Failure, check, wait_until

PORT = 5201
SECONDS = 4
SMALL = 64  # bytes of UDP payload


class Window:
    """Packets by the fast path and by the forward chain between two moments of a run."""

    def __init__(self, lab, mtu, attached):
        self.lab = lab
        self.mtu = mtu
        self.attached = attached
        self.fast = self.slow = 0
        self.datagrams_per_s = 0.0

    def _now(self):
        # Of the devices, since a flow that ends takes its counters along.
        fast = sum(device["fast_packets"] for device in self.lab.stats()["devices"]) if self.attached else 0
        # The chain counts an aggregate of many segments as one packet: count by bytes where that is more.
        slow = sum(max(packets, math.ceil(size / self.mtu)) for packets, size in self.lab.counts().values())
        return fast, slow, self._arrived(), time.monotonic()

    def _arrived(self):
        """UDP datagrams that reached the server, read by iperf3 or dropped before its full buffer."""
        text = self.lab["server"].run("cat", "/proc/net/snmp", "/proc/net/snmp6").stdout
        names, values = [line.split()[1:] for line in text.splitlines() if line.startswith("Udp: ")]
        udp = dict(zip(names, map(int, values)))
        for name, value in (line.split() for line in text.splitlines() if line.startswith("Udp6")):
            udp[name] = int(value)
        read, full = ("InDatagrams", "Udp6InDatagrams"), ("RcvbufErrors", "Udp6RcvbufErrors")
        return sum(udp.get(name, 0) for name in read + full)

    def __enter__(self):
        self.before = self._now()
        return self

    def __exit__(self, *error):
        if error[0] is None:
            after = self._now()
            self.fast = after[0] - self.before[0]
            self.slow = after[1] - self.before[1]
            self.datagrams_per_s = (after[2] - self.before[2]) / (after[3] - self.before[3])


def start_server(lab):
    server = lab["server"].spawn("iperf3", "-s", "-p", str(PORT))
    listening = f":{PORT} "
    wait_until(lambda: listening in lab["server"].run("ss", "-Hltn").stdout, 3, "iperf3 listens")
    return server


def run(lab, tunnel, fast, *options):
    """One iperf3 run from the client; returns its JSON and the Window of the time when it counts."""
    words = ("-c", tunnel.server, "-p", str(PORT), "-J", "-O", "4", "-t", str(SECONDS), *options)
    client = lab["client"].spawn("iperf3", *words, log=f"iperf{time.monotonic_ns()}.json")
    window = Window(lab, tunnel.mtu, fast)
    # The first 4 s are left out: the time in which a connection becomes established and is admitted.
    time.sleep(4.3)
    if fast:
        proto = "udp" if "-u" in options else "tcp"
        # The big one: iperf3's own control connection is a TCP flow as well.
        wait_until(lambda: any(flow["orig"]["live"] for flow in lab.find(proto=proto, dport=PORT)), 3,
                   f"the {proto} flow of iperf3 is live")
    with window:
        time.sleep(SECONDS - 0.8)
    try:
        code = client.wait(SECONDS + 20)
    except Exception as error:
        raise Failure(f"iperf3 did not end: {error}") from error
    with open(client.log, encoding="utf-8") as file:
        text = file.read()
    check(code == 0, f"iperf3 {' '.join(options)}: exit {code}: {text[-300:]}")
    return json.loads(text)["end"], window


def throughput(lab, tunnel, fast):
    """{"kpps", "gbps"} and the Windows of both runs."""
    _, udp_window = run(lab, tunnel, fast, "-u", "-b", "0", "-l", str(SMALL))
    tcp, tcp_window = run(lab, tunnel, fast)
    return {"kpps": round(udp_window.datagrams_per_s / 1000, 1),
            "gbps": round(tcp["sum_received"]["bits_per_second"] / 1e9, 3)}, (udp_window, tcp_window)
