# SPDX-License-Identifier: GPL-2.0-only
"""What the scenarios of IPv6 share: files both ways, and a stream that is fast."""
from lab import check, check_equal, wait_until
from labs import W6
from traffic import TcpServer, TcpStream, download, random_bytes, serve_blob, serve_store, upload

WATCH = {"up": "udp dport 9", "down": "udp sport 9", "tcp_down": "tcp sport 8100"}
MATCH = {"proto": "udp", "sport": 40000, "dport": 9}


def files(lab, target, port):
    """3 MB each way, byte by byte; the flow has been fast meanwhile."""
    blob, store = random_bytes(3_000_000), []
    TcpServer(lab["W"], W6, port, serve_blob(blob))
    TcpServer(lab["W"], W6, port + 1, serve_store(store))
    download(lab["L"], (target, port), blob)
    upload(lab["L"], (target, port + 1), blob)
    check_equal(len(store), 1, "uploads stored")


def bulk_is_fast(lab, target, port):
    """A stream that is live; the forward chain sees next to nothing of what it carries."""
    stream = TcpStream(lab["L"], (target, port), lab["W"], addr=W6, rate=1_000_000)
    lab.wait_live(proto="tcp", sport=stream.sport)
    carried, chain = lab.flow(proto="tcp", sport=stream.sport)["reply"]["packets"], lab.count("tcp_down")
    before = stream.received
    wait_until(lambda: stream.error or stream.received > before + 1_500_000, 10, "1.5 MB of the stream")
    check(stream.error is None, f"the stream: {stream.error}")
    fast = lab.flow(proto="tcp", sport=stream.sport)["reply"]["packets"] - carried
    slow = lab.count("tcp_down") - chain
    check(fast > 300 and slow <= 3, f"{fast} fast and {slow} slow packets of the stream")
    return stream
