# SPDX-License-Identifier: GPL-2.0-only
"""U14: FIN and RST end a flow, half-closed connections still deliver, nothing stays ESTABLISHED."""
import collections
import hashlib
import socket
import struct
import threading
import time

from lab import check, check_equal, wait_until
from labs import W_ADDR, lab_a
from traffic import TcpServer, connect, download, paced, random_bytes, read_all, serve_blob

SHORT, HALF, RESET = 300, 5, 5
HALF_BYTES = 1_000_000


def run():
    with lab_a(watch={"up": "tcp dport 8000", "down": "tcp sport 8000"}) as lab:
        lab.attach("ra", "rb")
        ended = lab["R"].spawn("conntrack", "-E", "-e", "DESTROY", "-p", "tcp", "-o", "timestamp", log="destroyed.log")
        blob, long_blob = random_bytes(10_000), random_bytes(HALF_BYTES, 2)
        TcpServer(lab["W"], W_ADDR, 8000, serve_blob(blob))

        def slowly(connection, _address):
            read_all(connection)  # the client has shut down its side
            size = HALF_BYTES // 40
            for number in paced(40, 10):
                connection.sendall(long_blob[number * size:(number + 1) * size])

        def reset(connection, _address):
            for number in paced(20, 10):
                connection.sendall(bytes([number]))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        TcpServer(lab["W"], W_ADDR, 8001, slowly)
        TcpServer(lab["W"], W_ADDR, 8002, reset)
        half, resets = [], []

        def half_closed():
            with connect(lab["L"], (W_ADDR, 8001), timeout=30) as connection:
                connection.sendall(b"request")
                time.sleep(0.5)
                connection.shutdown(socket.SHUT_WR)
                half.append(hashlib.sha256(read_all(connection)).digest())

        def be_reset():
            with connect(lab["L"], (W_ADDR, 8002), timeout=30) as connection:
                try:
                    while connection.recv(100):
                        pass
                except ConnectionResetError:
                    resets.append(True)

        threads = [threading.Thread(target=body, daemon=True)
                   for body, times in ((half_closed, HALF), (be_reset, RESET)) for _n in range(times)]
        for thread in threads:
            thread.start()
        # The server closes first, so the kernel may give the client a port twice: conntrack then has one entry.
        ports = {download(lab["L"], (W_ADDR, 8000), blob) for _number in paced(SHORT, 80)}
        for thread in threads:
            thread.join(30)
        check_equal(half, [hashlib.sha256(long_blob).digest()] * HALF, "half-closed downloads")
        check_equal(len(resets), RESET, "connections that ended with a reset")
        check(len(ports) > SHORT // 2, f"{SHORT} downloads from {len(ports)} ports only")

        # A connection is over: no flow within 5 s, no ESTABLISHED in conntrack.
        wait_until(lambda: not [flow for flow in lab.flows() if flow["l4proto"] == "tcp"], 5, "no TCP flow left", 0.2)
        # A reset one is forgotten after ten seconds, so those are not counted.
        states = collections.Counter(entry["state"] for entry in lab.conntrack("-p", "tcp", "--orig-port-dst", "8002"))
        check(not states.keys() - {"CLOSE"}, f"conntrack states of reset connections: {dict(states)}")
        for port, count in (8000, len(ports)), (8001, HALF):
            listed = lab.conntrack("-p", "tcp", "--orig-port-dst", str(port))
            states = collections.Counter(entry["state"] for entry in listed)
            if len(listed) != count:  # seen rarely: did they end, or does the list leave them out?
                with open(ended.log, encoding="utf-8") as log:
                    print("conntrack announced these ends:", *log.read().splitlines()[:30], sep="\n  ")
            check(not states.keys() - {"TIME_WAIT", "LAST_ACK"}, f"conntrack states, port {port}: {dict(states)}")
            check_equal(len(listed), count, f"connections that conntrack lists for port {port}")
