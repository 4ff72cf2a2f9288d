# SPDX-License-Identifier: GPL-2.0-only
"""U17: events lost while the daemon stood still; it re-reads and agrees with the kernel again."""
import os
import signal
import time

from lab import check, check_equal, wait_until
from labs import SERVICE, lab_2w
from traffic import UdpFlow, UdpPeer, paced

FLOWS, CONNECTIONS = 10, 20000


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run():
    with lab_2w() as lab:
        router = lab["R"]
        lab.attach("ra", "rb", "rb2")
        peers = {"rb": UdpPeer(lab["W"], SERVICE, 9), "rb2": UdpPeer(lab["W2"], SERVICE, 9)}
        flows = [UdpFlow(lab["L"], ("0.0.0.0", 41000 + n), (SERVICE, 9), n).start(20) for n in range(FLOWS)]
        for flow in flows:
            lab.wait_live(proto="udp", sport=flow.sport)

        lab.daemon.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        try:
            flood = lab["L"].socket()
            for number in range(CONNECTIONS):
                flood.sendto(b"x", (SERVICE, 10000 + number))
            wait_until(lambda: int(router.sysctl_get("net/netfilter/nf_conntrack_count")) > CONNECTIONS * 0.9, 3,
                       "20000 connections are tracked")
            # All of them go again: 20000 more events.
            router.run("conntrack", "-D", "-p", "udp", "--orig-src", "192.0.2.2", "--sport",
                       str(flood.getsockname()[1]), ok=False)
            changes = [f"route {verb} 10.{n >> 8}.{n & 255}.0/24 via 203.0.113.2"
                       for n in range(1200) for verb in ("add", "del")]
            changes += ["neigh replace 203.0.113.9 lladdr 02:00:00:00:00:09 dev rb2 nud stale",
                        "neigh del 203.0.113.9 dev rb2"] * 1200
            router.ip("\n".join(changes))
            router.ip("route replace default via 203.0.113.2 metric 100")
            time.sleep(max(0, start + 3 - time.monotonic()))
        finally:
            lab.daemon.send_signal(signal.SIGCONT)
        took = time.monotonic() - start
        print(f"the daemon stood still for {took:.1f} s")

        time.sleep(5)
        check(lab.alive(), "the daemon ended")
        mark = {flow.flow: flow.sent for flow in flows}
        time.sleep(1)
        for flow in flows:
            by = [dev for dev, peer in peers.items()
                  if any(key[0] == flow.flow and key[1] >= mark[flow.flow] for key in list(peer.got))]
            check_equal(by, ["rb2"], f"flow {flow.flow}: uplinks used after the route changed")
        known = {(entry["orig"]["sport"], entry["orig"]["dport"]) for entry in lab.conntrack("-p", "udp")}
        ghosts = [flow["orig"]["match"] for flow in lab.flows()
                  if (str(flow["orig"]["match"]["sport"]), str(flow["orig"]["match"]["dport"])) not in known]
        check_equal(ghosts, [], "flows that conntrack does not know")
        counters = lab.stats()["conntrack"]
        print("conntrack counters:", counters)
        check(counters["overruns"] >= 1, f"no overrun was counted: {counters}")
        check(1 <= counters["resyncs"] <= counters["overruns"] + 10, f"resyncs: {counters}")
        for flow in flows:
            lab.wait_live(5, proto="udp", sport=flow.sport)
            flow.stop()
        before = cpu_seconds(lab.daemon.pid)
        for _second in paced(3, 1):
            pass
        used = cpu_seconds(lab.daemon.pid) - before
        check(used < 0.6, f"the daemon used {used:.2f} s of CPU in 2 idle seconds")
