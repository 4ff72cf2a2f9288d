# SPDX-License-Identifier: GPL-2.0-only
"""One TCP connection over which two files pass each other, and the comparison of what arrived."""
import contextlib
import queue
import socket
import threading
import time

from lab import Failure, check, check_equal
from traffic import TcpServer, connect, random_bytes, read_exactly

PATIENCE_S = 60  # for one file, on an emulated processor
KNOCK, FILES = b"k", b"f"


def send(connection, data):
    """Sends in a thread of its own, so that both ends send at once; errors go to the queue returned."""
    problems = queue.Queue()

    def body():
        try:
            connection.sendall(data)
        except OSError as error:
            problems.put(error)

    threading.Thread(target=body, daemon=True).start()
    return problems


class Exchange:
    """client -> target, served in `server` at `bind`. knock() sends a byte to and fro; files() is the transfer."""

    def __init__(self, client, server, target, bind, size, seed):
        self.up, self.down = random_bytes(size, seed), random_bytes(size, seed + 1)
        self.outcome = queue.Queue()
        self.server = TcpServer(server, *bind, self._serve)
        self.connection = connect(client, target, timeout=PATIENCE_S)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sport = self.connection.getsockname()[1]

    def _serve(self, connection, _address):
        try:
            connection.settimeout(PATIENCE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while word := connection.recv(1):
                if word == KNOCK:
                    connection.sendall(KNOCK)
                    continue
                check_equal(word, FILES, "the word of ns1")
                problems = send(connection, self.down)
                self.outcome.put(read_exactly(connection, len(self.up)))
                check(problems.empty(), "the file for ns1 cannot be sent")
            self.outcome.put(b"")  # the end
        except (OSError, Failure) as error:
            self.outcome.put(error)

    def knock(self):
        self.connection.sendall(KNOCK)
        check_equal(self.connection.recv(1), KNOCK, "the answer to a single byte")

    def knock_until(self, condition, deadline, what):
        """Small packets both ways until condition() has a value, which is returned."""
        end = time.monotonic() + deadline
        while True:
            self.knock()
            if value := condition():
                return value
            if time.monotonic() > end:
                raise Failure(f"not within {deadline:g} s: {what}")
            time.sleep(0.05)

    def peer(self):
        """Whom the server sees: (address, port)."""
        return self.server.peers[0]

    def files(self):
        """Both files at once; each must arrive as it was. The connection stays open. Returns the seconds it took."""
        began = time.monotonic()
        self.connection.sendall(FILES)
        problems = send(self.connection, self.up)
        try:
            came_down = read_exactly(self.connection, len(self.down))
        except OSError as error:
            raise Failure(f"the file for ns1 did not come: {error}") from error
        compare(came_down, self.down, "ns1")
        compare(self._next(), self.up, "ns2")
        check(problems.empty(), "the file for ns2 cannot be sent")
        return time.monotonic() - began

    def close(self):
        """Ends the connection from both sides: no byte too many, no reset."""
        self.connection.shutdown(socket.SHUT_WR)
        check_equal(self._next(), b"", "what ns2 reads after the file")
        check_equal(self.connection.recv(1), b"", "what ns1 reads after the file")
        self.connection.close()

    def abandon(self):
        self.connection.close()
        # close() alone leaves it listening for as long as the thread waits in accept().
        with contextlib.suppress(OSError):
            self.server.socket.shutdown(socket.SHUT_RDWR)
        self.server.socket.close()

    def _next(self):
        try:
            value = self.outcome.get(timeout=PATIENCE_S)
        except queue.Empty as error:
            raise Failure(f"ns2 has read nothing for {PATIENCE_S} s") from error
        if isinstance(value, Exception):
            raise Failure(f"at ns2: {value}") from value
        return value


def compare(got, want, where):
    if got == want:
        return
    at = next((n for n, (a, b) in enumerate(zip(got, want)) if a != b), len(got))
    raise Failure(f"the file at {where} differs from byte {at} on ({len(got)} bytes came, {len(want)} were sent)")
