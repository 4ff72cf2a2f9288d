# SPDX-License-Identifier: GPL-2.0-only
"""U27: fast and slow packets together are exactly what was sent; counters per reason add up."""
import json
import threading
import time

from lab import BIN, check, check_equal, wait_until
from labs import W_ADDR, lab_a
from traffic import UdpFlow, UdpPeer, datagram

UP, DOWN = 1000, 500


def run():
    for acct in (0, 1):
        account(acct)


def account(acct):
    with lab_a() as lab:
        lab["R"].sysctl_set("net/netfilter/nf_conntrack_acct", acct)
        lab.attach("ra", "rb")
        monitor = lab["R"].spawn(f"{BIN}/ftctl", "-i", lab.instance, "-j", "monitor", log="monitor.log")
        peer = UdpPeer(lab["W"], W_ADDR, 9, echo=False)
        flow = UdpFlow(lab["L"], ("0.0.0.0", 40000), (W_ADDR, 9))
        back = threading.Thread(target=lambda: wait_until(lambda: peer.last_source, 2, "first datagram", 0.005) and
                                peer.send(peer.last_source[1], DOWN, 100, size=1000), daemon=True)
        back.start()
        sender = threading.Thread(target=flow.send, args=(UP, 200, 100), daemon=True)
        sender.start()
        # Short connections come and go meanwhile; each dump must be valid and never count back.
        churn, last, dumps = lab["L"].socket(), {"orig": (0, 0), "reply": (0, 0)}, 0
        while sender.is_alive() or back.is_alive():
            for number in range(200):
                churn.sendto(datagram(7, number), (W_ADDR, 10000 + (dumps * 200 + number) % 50000))
            for each in lab.find(proto="udp", sport=40000, dport=9):
                for side in last:
                    now = (each[side]["packets"], each[side]["bytes"])
                    check(now >= last[side], f"{side}: counters went from {last[side]} to {now}")
                    last[side] = now
            dumps += 1
            time.sleep(0.2)
        wait_until(lambda: peer.received(1) == UP and flow.answered() == DOWN, 2, "all datagrams arrived")
        final = lab.flow(proto="udp", sport=40000, dport=9)
        slow = lab.counts()
        for side, name, packets, size in (("orig", "up", UP, 128), ("reply", "down", DOWN, 1028)):
            got = final[side]
            check(got["packets"] > packets // 3, f"{side}: only {got['packets']} of {packets} packets were fast")
            check_equal(got["packets"] + slow[name][0], packets, f"{side}: fast plus slow packets")
            check_equal(got["bytes"] + slow[name][1], packets * size, f"{side}: fast plus slow bytes")
        for device in lab.stats()["devices"]:
            check_equal(device["rx_packets"], device["fast_packets"] + sum(device["reasons"].values()),
                        f"{device['name']}: packets seen and packets explained")
        check_equal((lab.stats("ra")["fast_packets"], lab.stats("ra")["fast_bytes"]),
                    (final["orig"]["packets"], final["orig"]["bytes"]), "fast packets and bytes of ra")
        why = lab.ftctl_raw("explain", "udp", "192.0.2.2:40000", f"{W_ADDR}:9", "dev", "ra")
        check_equal(why.returncode, 0, f"explain: {why.stderr}")

        # The flow ends: its totals are told once.
        lab["R"].run("conntrack", "-D", "-p", "udp", "--orig-port-src", "40000")
        wait_until(lambda: not lab.find(proto="udp", sport=40000), 1.5, "flow gone after the delete")

        def totals():
            with open(monitor.log, encoding="utf-8") as file:
                events = [json.loads(line) for line in file if '"removal"' in line]
            return [(event["orig"], event["reply"]) for event in events if ":40000" in event["tuple"]]

        wait_until(totals, 2, "the monitor tells of the removal")
        check_equal(totals(), [tuple({key: final[side][key] for key in ("packets", "bytes")} for side in last)],
                    "final counters in the monitor's event")
