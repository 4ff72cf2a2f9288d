# SPDX-License-Identifier: GPL-2.0-only
"""Two routers side by side, one plain Linux, one with flows FAST, that get the same packets.

Both run at the same time and take turns packet by packet, so timers and conntrack have the
same history. A batch is complete when a sentinel sent after it (an ICMP echo, which is always
slow) has arrived, so that "nothing arrived" needs no waiting.
"""
import collections
import time

import frames
from frames import ACK, SYN, TCP, UDP
from same_ip import normalise
from same_lab import MACS, HarnessError, Router
from same_packet import TAG, build, fast

SENTINEL = b"sentinel"


class NotFast(Exception):
    """The product did not make the connections' flows live."""


class Difference:
    """What arrived in one run only. Entries: (side, frame, state)."""

    def __init__(self, missing, extra):
        self.missing, self.extra = missing, extra

    def tags(self):
        found = set()
        for _, frame, _ in self.missing + self.extra:
            at = frame.find(TAG)
            while at >= 0:
                found.add(int.from_bytes(frame[at + 2:at + 6], "big"))
                at = frame.find(TAG, at + 1)
        return found


class Pair:
    def __init__(self, variant, args):
        self.variant, self.args = variant, args
        self.labs, self.serial, self.round_no = [], 0, -1
        self.conns, self.arrived = [], 0  # frames that came out of the plain router
        try:
            self.plain = Router("plain", variant, args.hook, daemon=variant.needs_daemon, attach=False)
            self.labs.append(self.plain)
            self.test = Router("test", variant, args.hook, daemon=variant.needs_daemon or not args.plain,
                               attach=not args.plain)
            self.labs.append(self.test)
        except BaseException:
            self.close()
            raise

    def close(self):
        for lab in self.labs:
            lab.close()

    # --------------------------------------------------------------- exchanging

    def _sentinel(self, serial):
        """(side to send from, frame) for both sides."""
        ip, far = self.variant.ip, self.variant.wan_host[:-1] + "9"
        echo = b"\x5e\x5e" + serial.to_bytes(2, "big"), SENTINEL + serial.to_bytes(4, "big")
        near, back = ip.echo(ip.lan + "9", far, *echo), ip.echo(far, ip.lan + "9", *echo)
        if self.variant.tunnel:
            back = self.variant.wrap({}, back)
        return (("L", frames.ethernet(MACS["ra"], MACS["la"], ip.ethertype, near)),
                ("W", frames.ethernet(MACS["rb"], MACS["wa"], self.variant.between.ethertype, back)))

    def _normal(self, frames_in):
        """Frames as they are compared: without sentinels and what the kernel draws at random."""
        for side, frame, state in frames_in:
            frame = None if SENTINEL in frame else normalise(frame, self.variant)
            if frame is not None:
                yield side, frame, state

    def _collect(self, lab, got, seconds=30.0):
        """Receives until the sentinels sent last have passed through the lab."""
        self_mark = SENTINEL + self.serial.to_bytes(4, "big")
        open_sides, end = {"L", "W"}, time.monotonic() + seconds
        while open_sides:
            if time.monotonic() > end:
                raise HarnessError("router %s: no sentinel at %s within %g s; ftctld %s\n%s" % (
                    lab.tag, " and ".join(sorted(open_sides)), seconds, "runs" if lab.alive() else "does not run",
                    lab.log_tail()))
            received = lab.receive(0.2)
            open_sides -= {side for side, frame, _ in received if self_mark in frame}
            got += self._normal(received)

    def exchange(self, packets, patience=0.5):
        """Sends (side, frame) pairs through both routers. None when the same came out, else the
        Difference; patience: seconds that late frames have."""
        for side, frame in packets:
            for lab in self.labs:
                lab.send(side, frame)
        results = {lab.tag: [] for lab in self.labs}
        self.barrier(results)
        self.arrived += len(results[self.plain.tag])
        return self._compare(results, patience)

    def barrier(self, results):
        # The second one is for XDP, whose redirects leave when the poll that has passed the first ends.
        for _ in range(2):
            self.serial += 1
            for lab in self.labs:
                for side, frame in self._sentinel(self.serial & 0xFFFF):
                    lab.send(side, frame)
            for lab in self.labs:
                self._collect(lab, results[lab.tag])

    def _compare(self, results, patience):
        end = time.monotonic() + patience
        while True:
            want = collections.Counter(results[self.plain.tag])
            got = collections.Counter(results[self.test.tag])
            if want == got:
                return None
            if time.monotonic() > end:
                return Difference(list((want - got).elements()), list((got - want).elements()))
            for lab in self.labs:  # a frame may be late; nothing is gained by calling that different
                results[lab.tag] += self._normal(lab.receive(0.05))

    def try_recipes(self, recipes, patience=0.5):
        packets = []
        for recipe in recipes:
            side, built = build(recipe, self.conns[recipe["conn"]], self.variant)
            packets += [(side, frame) for frame in built]
        return self.exchange(packets, patience)

    # -------------------------------------------------------------- connections

    def new_round(self):
        """Fresh TCP connections (UDP ones go on), live in the test run."""
        self.round_no += 1
        self.conns = self.variant.conns(self.round_no)
        for conn in self.conns:
            if conn.proto == TCP:
                self._must_pass({"flags": SYN, "seq": 999, "ack": 0}, conn, "o")
                self._must_pass({"flags": SYN | ACK, "seq": 1999, "ack": 1000}, conn, "r")
                self._must_pass({"flags": ACK, "seq": 1000, "ack": 2000}, conn, "o")
            elif self.round_no == 0:
                self._must_pass({}, conn, "o")
                self._must_pass({}, conn, "r")
        if self.round_no == 0:
            self._assure()
        self.warm_up()
        if self.round_no == 0 and self.variant.learnt:
            self._learn()
            self.warm_up()
        if self.round_no == 0 and self.variant.gets_options:
            self._bring_options()
            self.warm_up()

    def _must_pass(self, extra, conn, direction):
        """A packet that has to come out, translated as the variant says, at both routers."""
        recipe = {"conn": conn.index, "dir": direction, "len": 0, **extra}
        side, packets = build(recipe, conn, self.variant)
        results = {lab.tag: [] for lab in self.labs}
        for lab in self.labs:
            lab.send(side, packets[0])
        self.barrier(results)
        tup = conn.arriving(direction)
        want = frames.addr(tup.src) + frames.addr(tup.dst) + tup.sport.to_bytes(2, "big") + tup.dport.to_bytes(2, "big")
        for lab in self.labs:
            if not any(want in frame and there != side for there, frame, _ in results[lab.tag]):
                raise HarnessError("%s: %r of connection %r did not come out" % (lab.tag, recipe, conn))

    def _assure(self):
        """UDP is ASSURED once both sides have been sending for more than 2 s."""
        end = time.monotonic() + 2.3
        while time.monotonic() < end:
            time.sleep(0.2)
            for conn in self.conns:
                if conn.proto == UDP:
                    self._must_pass({}, conn, "o")
                    self._must_pass({}, conn, "r")

    def _bring_options(self):
        """Each destination behind the tunnel gets a packet with an encapsulation limit of its own."""
        found = self.try_recipes([{"conn": conn.index, "dir": direction, "ext": [[60, "00040104010100"]], "len": 50}
                                  for conn in self.conns for direction in "or" if conn.sender(direction) == "L"])
        if found:
            raise DifferenceFound([], found)
        time.sleep(2.2)  # asked for once a second, and followed a moment later

    def _learn(self):
        """A router behind W says that the tunnel's packets are too large (RFC 1191, 8201)."""
        ip, learnt = self.variant.outer, self.variant.learnt
        sent = ip.packet({}, "", ip.r_wan, ip.w_host, self.variant.ip.number, bytes(8))
        frame = frames.ethernet(MACS["rb"], MACS["wa"], ip.ethertype, ip.too_big(ip.wan + "3", ip.r_wan, learnt, sent))
        found = self.exchange([("W", frame)])
        if found:
            raise DifferenceFound([], found)
        for lab in self.labs:
            told = lab["R"].ip("route get " + ip.w_host)
            if "mtu %d" % learnt not in told:
                raise HarnessError("%s has learnt no path MTU: %s" % (lab.tag, told))
        time.sleep(1.2)  # the bound for what changes without a message of the kernel

    def warm_up(self, seconds=45.0):
        """Sends plain packets until both directions of every connection are live (or refused, where they must be)."""
        if not self.test.attached:
            return
        end = time.monotonic() + seconds
        while True:
            rest = [conn for conn in self.conns for d in "or" if not self._live(conn, d)]
            if not rest:
                return
            if time.monotonic() > end:
                wanted = "live" if self.variant.fast else "refused: " + self.variant.refused
                raise NotFast("not %s after %g s: %s\nrefused: %s\nflows: %s\nlog:\n%s" % (
                    wanted, seconds, sorted({"%d %s" % (c.index, c.orig) for c in rest}),
                    self.test.ftctl_raw("flows", "state", "refused").stdout, self.test.ftctl_raw("flows").stdout,
                    self.test.log_tail()))
            for conn in rest:
                for direction in "or":
                    seq, ack = (1000, 2000) if direction == "o" else (2000, 1000)
                    recipe = {"conn": conn.index, "dir": direction, "len": 20, "seq": seq, "ack": ack}
                    found = self.try_recipes([recipe])
                    if found:
                        raise DifferenceFound([recipe], found)
            self._flows = None

    _flows = None

    def _flow(self, conn):
        if self._flows is None:
            self._flows = {}
            for flow in self.test.flows(*([] if self.variant.fast else ["state", "refused"])) or []:
                match = flow["orig"]["match"]
                self._flows[(flow["l4proto"], match["src"], match["sport"], match["dst"], match["dport"])] = flow
        tup = conn.orig
        return self._flows.get(("tcp" if conn.proto == TCP else "udp", tup.src, tup.sport, tup.dst, tup.dport))

    def _live(self, conn, direction):
        if self.variant.unattachable:
            return True
        flow = self._flow(conn)
        if self.variant.refused:
            return bool(flow and flow["reason"].startswith(self.variant.refused))
        return bool(flow and flow["state"] == "live" and flow["orig" if direction == "o" else "reply"]["live"])

    def all_live(self):
        self._flows = None
        return not self.test.attached or all(self._live(conn, d) for conn in self.conns for d in "or")

    # ----------------------------------------------------------------- counters

    def carried(self):
        """Packets the fast path has carried, by (connection index, direction)."""
        self._flows = None
        result = collections.Counter()
        for conn in self.conns:
            flow = self._flow(conn)
            for direction, key in (("o", "orig"), ("r", "reply")):
                if flow and self.variant.fast:
                    result[(conn.index, direction)] = flow[key]["packets"]
        return result

    def held_back(self):
        """Packets that went to the stack although their flow is known: reasons that come and go."""
        reasons = ("trickle", "stale", "pending")
        return sum(dev["reasons"].get(name, 0) for dev in self.test.stats()["devices"] for name in reasons)

    def bypass(self):
        """(packets that only the plain router's forward chain saw, packets the fast path says it took)."""
        taken = sum(device["fast_packets"] for device in self.test.stats()["devices"])
        return self.plain.forwarded() - self.test.forwarded(), taken

    def expected(self, recipes):
        """(least, most) packets by (connection, direction) the fast path should have carried."""
        least, most = collections.Counter(), collections.Counter()
        for recipe in recipes:
            verdict = fast(recipe, self.conns[recipe["conn"]], self.variant)
            least[(recipe["conn"], recipe["dir"])] += verdict == "must"
            most[(recipe["conn"], recipe["dir"])] += verdict != "never"
        return least, most


class DifferenceFound(Exception):
    """Recipes of a batch and their Difference."""

    def __init__(self, recipes, difference):
        super().__init__("difference")
        self.recipes, self.difference = recipes, difference
