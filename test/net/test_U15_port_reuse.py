# SPDX-License-Identifier: GPL-2.0-only
"""U15: a new connection from a port of a flow that never ended; its SYN belongs to the stack."""
import time

import frames
from lab import check, check_equal, wait_until
from labs import L_ADDR, W_ADDR, lab_a
from raw import Injector
from traffic import TcpServer, close_silently, connect

WATCH = {"up": "tcp dport 8000", "down": "tcp sport 8000", "syn": "tcp flags & syn == syn",
         "data": "tcp flags & syn == syn meta length > 60"}
MUTE = "table ip mute { chain o { type filter hook output priority 0; tcp flags & (fin | rst) != 0 drop; } }"


def echo(connection, _address):
    while data := connection.recv(1000):
        connection.sendall(data)


def talk(connection, times=20):
    for _number in range(times):
        connection.sendall(b"x" * 100)
        check_equal(len(connection.recv(1000)), 100, "echo")
        time.sleep(0.02)


def scenario(attached, far_end_dies, policy):
    """Seconds that the second connect() took, None when it failed; and the SYN packets seen by the stack."""
    with lab_a(watch=WATCH) as lab:
        if attached:
            lab.attach("ra", "rb")
        held = []

        def handler(connection, address):
            held.append(connection)
            echo(connection, address)

        TcpServer(lab["W"], W_ADDR, 8000, handler)
        first = connect(lab["L"], (W_ADDR, 8000), ("0.0.0.0", 40000))
        talk(first)
        if attached:
            wait_until(lambda: talk(first, 5) or lab.live(proto="tcp", sport=40000), 8, "flow live")
        for role in ("L", "W"):
            lab[role].nft(MUTE)
        close_silently(first)
        if far_end_dies:
            close_silently(held[0].dup())
            held[0].close()
        time.sleep(0.3)
        for role in ("L", "W"):
            lab[role].run("nft", "delete", "table", "ip", "mute")
        if attached:
            check(lab.find(proto="tcp", sport=40000), "the stale flow is not there: the test would prove nothing")
            syn_with_data(lab)
        if policy:
            lab["R"].nft("table ip pol { chain f { type filter hook forward priority 0; "
                         "tcp flags & (syn | ack) == syn drop; } }")
        syns = lab.count("syn")
        start = time.monotonic()
        try:
            second = connect(lab["L"], (W_ADDR, 8000), ("0.0.0.0", 40000), 2.5)
        except TimeoutError:
            return None, 0
        took = time.monotonic() - start
        talk(second)
        second.close()
        return took, lab.count("syn") - syns


def syn_with_data(lab):
    """On the live tuple; W refuses to let it come back as something that changes the connection."""
    lab["W"].nft("table ip no { chain i { type filter hook prerouting priority -400; tcp flags & syn == syn drop; } }")
    before = lab.count("data")
    injector = Injector(lab["L"], "la", lab["R"], "ra")
    injector.send(frames.ipv4(L_ADDR, W_ADDR, 6, frames.tcp(L_ADDR, W_ADDR, 40000, 8000, b"d" * 50, flags=frames.SYN,
                                                           seq=5)))
    wait_until(lambda: lab.count("data") == before + 1, 1, "a SYN with data is seen by the stack")
    lab["W"].run("nft", "delete", "table", "ip", "no")


def run():
    for far_end_dies, policy in ((True, False), (False, False), (True, True)):
        text = f"far end {'gone' if far_end_dies else 'still connected'}{', SYN dropped by policy' if policy else ''}"
        plain, plain_syns = scenario(False, far_end_dies, policy)
        fast, syns = scenario(True, far_end_dies, policy)
        print(f"{text}: connect took {plain} s without ftctl, {fast} s with it")
        check_equal(fast is None, plain is None, f"{text}: connect failed")
        if plain is not None:
            check(fast < plain + 0.25, f"{text}: connect took {fast:.2f} s, {plain:.2f} s without ftctl")
            # SYN and SYN-ACK; a SYN may be sent again where the far end still has the old connection.
            check(syns >= 2 and plain_syns >= 2, f"{text}: only {syns} SYN and SYN-ACK packets seen by the stack")
