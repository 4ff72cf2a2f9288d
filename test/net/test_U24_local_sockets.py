# SPDX-License-Identifier: GPL-2.0-only
"""U24: transparent proxies and services of the router itself are never bypassed."""
import socket
import threading
import time

from lab import check, check_equal, wait_until
from labs import RA_ADDR, RB_ADDR, W_ADDR, lab_a
from traffic import TcpServer, UdpFlow, UdpPeer, connect, fast_udp, random_bytes, read_all, read_exactly

TPROXY = """table ip t { chain pre { type filter hook prerouting priority mangle;
    iifname "ra" tcp dport 80 tproxy to :1041 meta mark set 1 accept
    iifname "ra" udp dport 9 tproxy to :1041 meta mark set 1 accept
} }"""
BLOB = random_bytes(300_000)


def run():
    with lab_a() as lab:
        router = lab["R"]
        lab.attach("ra", "rb")
        flow, peer = fast_udp(lab, pps=50)

        # Services on R, also by an address of the other side: local for ever.
        def echo(connection, _address):
            while data := connection.recv(65536):
                connection.sendall(data)

        TcpServer(router, "0.0.0.0", 7000, echo)
        router.nft(f"table ip d {{ chain pre {{ type nat hook prerouting priority dstnat; "
                   f"ip daddr {RB_ADDR} tcp dport 7001 dnat to {RA_ADDR}:7000; }} }}")
        UdpPeer(router, RA_ADDR, 7002)
        local = UdpFlow(lab["L"], ("0.0.0.0", 40002), (RA_ADDR, 7002)).start(50)
        for target in ((RA_ADDR, 7000), (RB_ADDR, 7001)):
            with connect(lab["L"], target) as connection:
                for _number in range(10):
                    connection.sendall(BLOB[:10000])
                    check(read_exactly(connection, 10000) == BLOB[:10000], f"echo of {target} differs")
                    time.sleep(0.05)
                check_equal(lab.find(dport=target[1]), [], f"flows to {target}")
        lab.wait_live(**{"proto": "udp", "sport": 40000, "dport": 9})

        # A transparent proxy takes over what was fast before.
        router.ip("rule add fwmark 1 lookup 100\nroute add local default dev lo table 100")
        proxied = {"tcp": 0, "udp": 0}
        proxy_udp = router.socket()
        proxy_udp.setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT
        proxy_udp.bind(("0.0.0.0", 1041))

        def count_udp():
            while True:
                try:
                    proxy_udp.recv(2000)
                except OSError:
                    return
                proxied["udp"] += 1

        threading.Thread(target=count_udp, daemon=True).start()

        def proxy(connection, _address):
            data = read_all(connection)
            proxied["tcp"] += len(data)
            connection.sendall(str(len(data)).encode())

        TcpServer(router, "0.0.0.0", 1041, proxy, transparent=True)
        router.nft(TPROXY)
        router.run("conntrack", "-D", "-p", "udp", "--orig-port-dst", "9", ok=False)
        time.sleep(1.0)
        to_w, to_proxy, sent = peer.received(1), proxied["udp"], flow.sent
        wait_until(lambda: flow.sent >= sent + 100, 4, "100 more datagrams")
        flow.stop()
        wait_until(lambda: proxied["udp"] - to_proxy >= flow.sent - sent, 1, "every datagram at the proxy")
        check_equal(peer.received(1), to_w, "datagrams at W after the proxy took over")
        check(not lab.live(proto="udp", sport=40000, dport=9), "the proxied flow is live")

        for _number in range(3):
            with connect(lab["L"], (W_ADDR, 80)) as connection:
                for start in range(0, len(BLOB), 30000):
                    connection.sendall(BLOB[start:start + 30000])
                    time.sleep(0.05)
                connection.shutdown(socket.SHUT_WR)
                check_equal(read_all(connection), str(len(BLOB)).encode(), "bytes that reached the proxy")
        check_equal(proxied["tcp"], 3 * len(BLOB), "bytes at the proxy")
        local.stop()
        check_equal(local.lost(), 0, "datagrams to a service of R lost")
        check_equal([each["orig"]["match"] for each in lab.flows()
                     if each["orig"]["match"]["dport"] in (80, 7000, 7001, 7002, 1041)], [], "flows that end on R")
