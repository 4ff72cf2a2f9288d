# SPDX-License-Identifier: GPL-2.0-only
"""A TCP connection that is first made fast and then carries a file each way."""
import hashlib
import time

from lab import Failure, check, check_equal
from traffic import TcpServer, connect, read_exactly

HEAD = 9  # a letter and eight digits: the number of bytes


class Transfer:
    """client -> target, which is served in `server` (bind there, when its address is another one)."""

    def __init__(self, lab, client, server, target, bind=None):
        self.lab, self.port = lab, target[1]
        self.blob = b""
        TcpServer(lab[server], bind or target[0], self.port, self._serve)
        self.connection = connect(lab[client], target, timeout=30)
        self.sport = self.connection.getsockname()[1]

    def _serve(self, connection, _address):
        while head := read_exactly(connection, HEAD):
            size = int(head[1:])
            if head[:1] == b"G":
                connection.sendall(self.blob)
            else:
                connection.sendall(hashlib.sha256(read_exactly(connection, size)).digest())

    def _put(self, data):
        self.connection.sendall(b"P%08d" % len(data) + data)
        return read_exactly(self.connection, 32) == hashlib.sha256(data).digest()

    def _get(self):
        self.connection.sendall(b"G%08d" % 0)
        return read_exactly(self.connection, len(self.blob)) == self.blob

    def wait_live(self, deadline=20):
        """Small packets both ways until both directions are live."""
        end = time.monotonic() + deadline
        while not (flow := self.lab.live(proto="tcp", sport=self.sport)):
            check(self._put(b"x"), "a byte got lost")
            if time.monotonic() > end:
                raise Failure(f"not within {deadline} s: the TCP connection is live")
            time.sleep(0.05)
        return flow

    def check_fast(self, blob, up, down):
        """The file arrives as it was, both ways, and the forward chain's counters (of lab.watch) saw next to none of it."""
        self.blob = blob
        before, chain = self.wait_live(), self.lab.counts()
        check(self._get(), "the file came with other bytes")
        check(self._put(blob), "the file arrived with other bytes")
        after, chain_after = self.lab.flow(proto="tcp", sport=self.sport), self.lab.counts()
        check(after is not None, "the flow left the dump while it carried packets")
        for side, name in (("orig", up), ("reply", down)):
            fast = after[side]["bytes"] - before[side]["bytes"]
            slow = chain_after[name][1] - chain[name][1]
            check(fast >= len(blob) * 0.9, f"{side}: {fast} bytes of {len(blob)} were fast")
            # The trickle gives a packet in ten seconds to the stack; at TC that may be an aggregated one of 64 KiB.
            check(slow <= len(blob) * 0.1, f"{side}: the forward chain saw {slow} bytes of {len(blob)}")
        check_equal(after["orig"]["live"] and after["reply"]["live"], True, "live at the end")
        self.connection.close()
