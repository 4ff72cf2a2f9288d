# SPDX-License-Identifier: GPL-2.0-only
"""Real traffic between namespaces: numbered UDP datagrams, paced and bulk TCP."""
import collections
import contextlib
import hashlib
import random
import socket
import struct
import threading
import time

from lab import Failure, check, wait_until

HEAD = struct.Struct("!4sIQ")
MAGIC = b"ftT1"
IP_MTU_DISCOVER, IP_PMTUDISC_DONT, IP_PMTUDISC_PROBE = 10, 0, 3
IP_RECVTTL, IP_RECVTOS = 12, 13


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def datagram(flow, seq, size=64):
    return HEAD.pack(MAGIC, flow, seq).ljust(size, b"\xa5")


class UdpPeer:
    """The far end: counts what arrives by (flow, number) and answers each datagram when `echo`."""

    def __init__(self, netns, addr, port, echo=True, device=None):
        self.socket = netns.socket(family(addr))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.socket.family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        else:
            self.socket.setsockopt(socket.SOL_IP, IP_RECVTTL, 1)
            self.socket.setsockopt(socket.SOL_IP, IP_RECVTOS, 1)
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        if device:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        self.socket.bind((addr, port))
        self.socket.settimeout(0.2)
        self.echo = echo
        self.got = collections.Counter()  # (flow, seq) -> times
        self.sources = collections.Counter()  # (addr, port) -> datagrams
        self.headers = collections.Counter()  # (flow, ttl, tos) -> datagrams
        self.last_source = {}  # flow -> (addr, port)
        self.last_time = {}  # flow -> monotonic
        self.sent = 0
        self.echoed = 0
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while True:
            try:
                data, ancillary, _flags, source = self.socket.recvmsg(65535, 128)
            except TimeoutError:
                continue
            except OSError as error:
                if self.socket.fileno() < 0 or error.errno == 9:
                    return
                continue
            if data[:4] != MAGIC or len(data) < HEAD.size:
                continue
            _magic, flow, seq = HEAD.unpack_from(data)
            values = {kind: value[0] for level, kind, value in ancillary if level == socket.SOL_IP and value}
            # A TTL comes as an int (little or big endian: one byte of it is set), a TOS as a byte.
            ttl = next((max(value) for level, kind, value in ancillary if kind == 2 and level == socket.SOL_IP), None)
            for level, kind, value in ancillary:
                if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_HOPLIMIT:
                    ttl = max(value)
                elif level == socket.IPPROTO_IPV6 and kind == socket.IPV6_TCLASS:
                    values[1] = max(value)
            self.got[flow, seq] += 1
            self.sources[source] += 1
            self.headers[flow, ttl, values.get(1)] += 1
            self.last_source[flow] = source
            self.last_time[flow] = time.monotonic()
            if self.echo:
                with contextlib.suppress(OSError):
                    self.socket.sendto(data, source)
                    self.echoed += 1

    def received(self, flow):
        """Different datagrams of the flow that arrived."""
        return sum(1 for key in list(self.got) if key[0] == flow)

    def duplicates(self, flow):
        return sum(times - 1 for key, times in list(self.got.items()) if key[0] == flow)

    def send(self, target, count, pps, flow=0, size=64, first=0):
        """Numbered datagrams from the far end's own port, without being asked."""
        for seq in paced(count, pps):
            self.socket.sendto(datagram(flow, first + seq, size), target)
            self.sent += 1


def paced(count, pps):
    """0, 1, ... count-1 in time; catches up after a late wake-up."""
    start = time.monotonic()
    for number in range(count):
        delay = start + number / pps - time.monotonic()
        if delay > 0:
            time.sleep(delay)
        yield number


class UdpFlow:
    """The near end of one flow: a connected socket, a paced sender and a reader."""

    def __init__(self, netns, source, target, flow=1, tos=None, ttl=None):
        self.flow = flow
        self.socket = netns.socket(family(target[0]))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(source)
        self.socket.connect(target)
        self.socket.settimeout(0.2)
        if tos is not None:
            self.socket.setsockopt(socket.SOL_IP, socket.IP_TOS, tos)
        if ttl is not None:
            self.socket.setsockopt(socket.SOL_IP, socket.IP_TTL, ttl)
        self.sport = self.socket.getsockname()[1]
        self.sent = 0
        self.first_at = {}
        self.answers = collections.Counter()  # seq -> times
        self.answer_time = 0.0
        self.longest_gap = 0.0
        self.errors = collections.Counter()  # errno -> times
        self.stopping = threading.Event()
        self.sender = None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            try:
                data = self.socket.recv(65535)
            except TimeoutError:
                continue
            except OSError as error:
                if self.socket.fileno() < 0 or error.errno == 9:
                    return
                self.errors[error.errno] += 1
                continue
            if data[:4] == MAGIC and len(data) >= HEAD.size:
                now = time.monotonic()
                if self.answer_time:
                    self.longest_gap = max(self.longest_gap, now - self.answer_time)
                self.answer_time = now
                self.answers[HEAD.unpack_from(data)[2]] += 1

    def send_one(self, size=64):
        try:
            self.socket.send(datagram(self.flow, self.sent, size))
        except OSError as error:
            self.errors[error.errno] += 1
            return
        finally:
            self.sent += 1

    def send(self, count, pps=200, size=64):
        """Returns the number of the first datagram."""
        first = self.sent
        for _number in paced(count, pps):
            self.send_one(size)
        return first

    def start(self, pps, size=64):
        self.stopping.clear()

        def body():
            for _number in paced(1 << 40, pps):
                if self.stopping.is_set():
                    return
                self.send_one(size)

        self.sender = threading.Thread(target=body, daemon=True)
        self.sender.start()
        return self

    def stop(self):
        self.stopping.set()
        if self.sender:
            self.sender.join(5)
        return self

    def answered(self, first=0):
        return sum(1 for seq in list(self.answers) if seq >= first)

    def lost(self, first=0, settle=1.0):
        """Datagrams from `first` on that were not answered; waits a little for the late ones."""
        end = time.monotonic() + settle
        while self.answered(first) < self.sent - first and time.monotonic() < end:
            time.sleep(0.02)
        return self.sent - first - self.answered(first)

    def duplicates(self):
        return sum(times - 1 for times in list(self.answers.values()))

    def reset_gap(self):
        self.longest_gap = 0.0
        self.answer_time = 0.0

    def stalled_for(self):
        return time.monotonic() - self.answer_time if self.answer_time else 0.0


class TcpServer:
    """Accepts for ever; handler(connection, address) runs in a thread each."""

    def __init__(self, netns, addr, port, handler, transparent=False, backlog=512):
        self.socket = netns.socket(family(addr), socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if transparent:
            self.socket.setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT
        self.socket.bind((addr, port))
        self.socket.listen(backlog)
        self.socket.settimeout(0.2)
        self.handler = handler
        self.peers = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while self.socket.fileno() >= 0:
            try:
                connection, address = self.socket.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            self.peers.append(address)
            threading.Thread(target=self._serve, args=(connection, address), daemon=True).start()

    def _serve(self, connection, address):
        with contextlib.suppress(OSError), connection:
            self.handler(connection, address)


def random_bytes(size, seed=1):
    return random.Random(seed).randbytes(size)


def read_exactly(connection, size):
    parts, left = [], size
    while left:
        part = connection.recv(min(left, 1 << 16))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def read_all(connection):
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def serve_blob(blob):
    """A handler: reads a line, sends the blob, closes."""
    def handler(connection, _address):
        connection.recv(64)
        connection.sendall(blob)
    return handler


def serve_store(store):
    """A handler: reads all, appends its SHA-256 to `store`, answers with it."""
    def handler(connection, _address):
        digest = hashlib.sha256(read_all(connection)).hexdigest()
        store.append(digest)
        connection.sendall(digest.encode())
    return handler


def connect(netns, target, source=None, timeout=10):
    made = netns.socket(family(target[0]), socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.settimeout(timeout)
    if source:
        made.bind(source)
    made.connect(target)
    return made


def download(netns, target, want, source=None):
    """Fetches a blob and compares it. Returns the own port."""
    with connect(netns, target, source, 30) as connection:
        port = connection.getsockname()[1]
        connection.sendall(b"get\n")
        got = read_all(connection)
    check(got == want, f"download of {len(want)} bytes arrived as {len(got)} bytes, "
                       f"{'different' if len(got) == len(want) else 'cut short'}")
    return port


def upload(netns, target, blob, source=None):
    """Sends a blob; the far end must have read the very bytes."""
    with connect(netns, target, source, 30) as connection:
        connection.sendall(blob)
        connection.shutdown(socket.SHUT_WR)
        digest = read_all(connection).decode()
    check(digest == hashlib.sha256(blob).hexdigest(), "upload arrived with other bytes")


def close_silently(connection):
    """No FIN: with linger 0 a RST, which the caller has arranged to drop."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class TcpStream:
    """A long-lived connection. The far end sends `rate` bytes a second of a known pattern, the near end
    checks each byte and sends a byte now and then; `echo` makes the far end answer instead."""

    BLOCK = bytes(range(256)) * 16

    def __init__(self, client, target, server, addr=None, rate=0, source=None, pps=20):
        self.rate, self.pps = rate, pps
        self.received = 0
        self.last = time.monotonic()
        self.longest_gap = 0.0
        self.error = None
        self.stopping = threading.Event()
        self.server = TcpServer(server, addr or target[0], target[1], self._serve)
        self.connection = connect(client, target, source)
        self.sport = self.connection.getsockname()[1]
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._write, daemon=True).start()

    def _serve(self, connection, _address):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.rate:
            for _number in paced(1 << 40, self.rate / len(self.BLOCK)):
                if self.stopping.is_set():
                    return
                connection.sendall(self.BLOCK)
        while data := connection.recv(65536):
            connection.sendall(data)

    def _write(self):
        try:
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in paced(1 << 40, self.pps):
                if self.stopping.is_set():
                    return
                self.connection.sendall(bytes([number & 255]))
        except OSError as error:
            self.error = self.error or error

    def _read(self):
        self.connection.settimeout(0.5)
        try:
            while not self.stopping.is_set():
                try:
                    data = self.connection.recv(65536)
                except TimeoutError:
                    continue
                if not data:
                    raise Failure("the stream ended")
                start = self.received & 255
                if data != (self.BLOCK * (len(data) // 4096 + 2))[start:start + len(data)]:
                    raise Failure(f"wrong byte in the stream after {self.received}")
                now = time.monotonic()
                self.longest_gap = max(self.longest_gap, now - self.last)
                self.last = now
                self.received += len(data)
        except (OSError, Failure) as error:
            if not self.stopping.is_set():
                self.error = error

    def reset_gap(self):
        self.last = time.monotonic()
        self.longest_gap = 0.0

    def check_progress(self, deadline=2.0, what="the TCP stream goes on"):
        before = self.received
        wait_until(lambda: self.error or self.received > before + 200 or
                   (not self.rate and self.received > before), deadline, what)
        check(self.error is None, f"{what}: {self.error}")

    def stop(self):
        self.stopping.set()


def warm_up(flow, seconds=2.6, pps=20):
    """Both ways for so long that conntrack calls a UDP connection ASSURED."""
    first = flow.send(int(seconds * pps), pps)
    lost = flow.lost(first, settle=10)
    check(lost == 0, f"{lost} of {flow.sent - first} datagrams lost on the plain slow path")


def fast_udp(lab, client="L", server="W", target=None, source_port=40000, flow=1, pps=50, bind=None, deadline=12,
             echo=True):
    """A UDP flow L -> W:9 that is live in both directions, still sending; returns (flow, peer)."""
    target = target or ("198.51.100.2", 9)
    peer = UdpPeer(lab[server], bind or target[0], target[1], echo)
    wild = "::" if family(target[0]) == socket.AF_INET6 else "0.0.0.0"
    made = UdpFlow(lab[client], (wild, source_port), target, flow).start(pps)
    lab.wait_live(deadline, proto="udp", sport=source_port, dport=target[1])
    return made, peer


def check_fast(lab, flow, count=200, pps=200, up="up", down="down", proto="udp", dport=9):
    """FAST(f): the counters of the flow and of the forward chain add up, the chain saw the trickle at most."""
    flow.stop()
    flow.lost(settle=0.5)
    before, chain = lab.flow(proto=proto, sport=flow.sport, dport=dport), lab.counts()
    check(before is not None, "the flow is not in the dump")
    first = flow.send(count, pps)
    lost = flow.lost(first, settle=10)
    check(lost == 0, f"{lost} of {count} datagrams lost on the fast path")
    check(flow.duplicates() == 0, "datagrams were duplicated")
    after, chain_after = lab.flow(proto=proto, sport=flow.sport, dport=dport), lab.counts()
    check(after is not None, "the flow left the dump while it carried packets")
    for side, name in (("orig", up), ("reply", down)):
        fast = after[side]["packets"] - before[side]["packets"]
        slow = chain_after[name][0] - chain[name][0]
        check(fast + slow == count, f"{side}: {fast} fast and {slow} slow packets, {count} were sent")
        check(slow <= 1 + count / pps / 10 + 0.999, f"{side}: {slow} of {count} packets took the slow path")


def check_slow(lab, flow, count=100, pps=200, up="up", down="down"):
    """SLOW(f): the forward chain saw every packet."""
    flow.stop()
    flow.lost(settle=0.5)
    chain = lab.counts()
    first = flow.send(count, pps)
    check(flow.lost(first) == 0, f"{flow.lost(first)} of {count} datagrams lost")
    after = lab.counts()
    for name in (up, down):
        check(after[name][0] - chain[name][0] == count,
              f"the forward chain's counter {name} grew by {after[name][0] - chain[name][0]}, want {count}")
