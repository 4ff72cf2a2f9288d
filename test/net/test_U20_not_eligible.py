# SPDX-License-Identifier: GPL-2.0-only
"""U20: half-open, unreplied and asymmetric connections are never offloaded."""
import time

import frames
from lab import check, check_equal, wait_until
from labs import L_ADDR, W_ADDR, lab_a
from raw import Injector
from traffic import TcpServer, download, random_bytes, serve_blob

COUNT = 10000


def memory_kb(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def run():
    with lab_a(nat=False) as lab:
        lab.attach("ra", "rb")
        lab["W"].nft("table ip quiet { chain i { type filter hook prerouting priority -400; "
                     "meta l4proto { tcp, udp } th dport 1000-20000 drop; } }")
        before = memory_kb(lab.daemon.pid)
        to_w, to_l = Injector(lab["L"], "la", lab["R"], "ra"), Injector(lab["W"], "wa", lab["R"], "rb")

        def syn(port, sport=5000, ack=False):
            if ack:
                flags = frames.SYN | frames.ACK
                segment = frames.tcp(W_ADDR, L_ADDR, port, sport, flags=flags, seq=100, ack=11)
                return frames.ipv4(W_ADDR, L_ADDR, 6, segment)
            return frames.ipv4(L_ADDR, W_ADDR, 6, frames.tcp(L_ADDR, W_ADDR, sport, port, flags=frames.SYN, seq=10))

        lab["L"].nft("table ip quiet { chain i { type filter hook prerouting priority -400; "
                     "tcp dport 5000-6000 drop; } }")
        for number in range(COUNT):
            to_w.send(syn(1000 + number))
            to_w.send(frames.ipv4(L_ADDR, W_ADDR, 17, frames.udp(L_ADDR, W_ADDR, 5000, 1000 + number, b"x")))
        for number in range(40):
            to_w.send(syn(999 + 1 + number % 4, 5500 + number % 10))
            to_l.send(syn(999 + 1 + number % 4, 5500 + number % 10, ack=True))
            time.sleep(0.02)
        tracked = int(lab["R"].sysctl_get("net/netfilter/nf_conntrack_count"))
        check(tracked >= 2 * COUNT, f"conntrack has {tracked} entries, so the daemon has not seen them")

        # A connection whose answers take another way: R never sees them.
        lab.veth("L", "ld", "W", "wd")
        lab["L"].ip("addr add 10.9.9.1/24 dev ld")
        lab["W"].ip("addr add 10.9.9.2/24 dev wd\nroute replace 192.0.2.0/24 via 10.9.9.1")
        blob = random_bytes(200_000)
        TcpServer(lab["W"], W_ADDR, 30000, serve_blob(blob))
        for _number in range(3):
            download(lab["L"], (W_ADDR, 30000), blob)
        time.sleep(1)
        check_equal(lab.flows(), [], "flows")
        refusals = lab.stats()["refusals"]
        check(refusals.get("not-assured", 0) > 0, f"no connection was refused as not-assured: {refusals}")
        # What the daemon keeps of a connection it refuses must not grow with the flood.
        grown = memory_kb(lab.daemon.pid) - before
        check(grown < 16384, f"the daemon grew by {grown} kB for {2 * COUNT} connections that are not eligible")
        wait_until(lambda: lab.ftctl("status") is not None, 2, "the daemon answers")
