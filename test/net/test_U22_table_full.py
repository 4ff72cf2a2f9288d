# SPDX-License-Identifier: GPL-2.0-only
"""U22: a full flow table never evicts an active flow; those that wait get in when there is room."""
import selectors
import threading
import time

from lab import check, check_equal, wait_until
from labs import W_ADDR, lab_a
from traffic import HEAD, UdpPeer, datagram

LIMIT, FLOWS, STOPPED = 100, 150, 50
PPS = 8


class Crowd:
    """Many UDP flows with one thread to send and one to read."""

    def __init__(self, netns, target, count):
        self.sockets = []
        self.active = [True] * count
        self.sent = [0] * count
        self.got = [set() for _n in range(count)]
        self.sending = self.reading = True
        self.selector = selectors.DefaultSelector()
        for number in range(count):
            made = netns.socket()
            made.bind(("0.0.0.0", 20000 + number))
            made.connect(target)
            made.setblocking(False)
            self.selector.register(made, selectors.EVENT_READ, number)
            self.sockets.append(made)
        self.sender = threading.Thread(target=self._send, daemon=True)
        self.sender.start()
        threading.Thread(target=self._read, daemon=True).start()

    def _send(self):
        while self.sending:
            start = time.monotonic()
            for number, made in enumerate(self.sockets):
                if self.active[number]:
                    made.send(datagram(number, self.sent[number]))
                    self.sent[number] += 1
                if number % 10 == 9:
                    time.sleep(0.001)
            time.sleep(max(0, start + 1 / PPS - time.monotonic()))

    def _read(self):
        while self.reading:
            for key, _events in self.selector.select(0.2):
                try:
                    while True:
                        self.got[key.data].add(HEAD.unpack_from(key.fileobj.recv(2000))[2])
                except BlockingIOError:
                    continue
                except OSError:
                    return

    def stop(self):
        """Sends no more, and reads on for as long as answers may be under way."""
        self.sending = False
        self.sender.join()
        wait_until(lambda: self.lost() == 0, 5, "answers to all datagrams of all flows")
        self.reading = False

    def lost(self):
        return sum(self.sent) - sum(len(seen) for seen in self.got)


def run():
    with lab_a(nat=False) as lab:
        lab["R"].sysctl_set("net/netfilter/nf_conntrack_udp_timeout_stream", 5)
        lab["R"].sysctl_set("net/netfilter/nf_conntrack_udp_timeout", 5)
        lab.start(config={"limits": {"flows": LIMIT}})
        lab.attach("ra", "rb")
        UdpPeer(lab["W"], W_ADDR, 9)
        crowd = Crowd(lab["L"], (W_ADDR, 9), FLOWS)

        def live():
            return {flow["orig"]["match"]["sport"] - 20000 for flow in lab.flows()
                    if flow["orig"]["live"] and flow["reply"]["live"]}

        wait_until(lambda: len(live()) == LIMIT, 12, f"{LIMIT} flows live", 0.3)
        admitted = live()
        time.sleep(3)
        check_equal(live(), admitted, "the flows that are live: an active one was evicted")
        flows = lab.stats()["flows"]
        check_equal(flows["max"], LIMIT, "stats: flows.max")
        check(flows["insert_full"] >= FLOWS - LIMIT, f"stats: {flows}")
        check_equal(lab.refused(proto="udp", sport=20000 + min(set(range(FLOWS)) - admitted)), "table-full",
                    "reason of a flow that waits")

        stopped = set(sorted(admitted)[:STOPPED])
        for number in stopped:
            crowd.active[number] = False
        waiting = set(range(FLOWS)) - admitted
        wait_until(lambda: waiting <= live(), 18, "the waiting flows got in after others expired", 0.3)
        check(admitted - stopped <= live(), "an active flow was evicted for a newer one")

        # Churn: short flows come and go, the table does not leak.
        churn = lab["L"].socket()
        for number in range(2000):
            churn.sendto(datagram(9999, number), (W_ADDR, 10000 + number))
        crowd.stop()
        wait_until(lambda: not lab.flows(), 12, "all flows gone after the last packet", 0.3)
        check_equal(lab.ftctl("flows", "--count").get("count"), 0, "flows counted")
        check_equal(lab.stats()["flows"]["live"] + lab.stats()["flows"]["pending"], 0, "stats: flows left")
