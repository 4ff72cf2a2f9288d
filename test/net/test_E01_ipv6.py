# SPDX-License-Identifier: GPL-2.0-only
"""E01: IPv6 flows are fast and exact, and follow the neighbour, the rules and the connection's end."""
import socket
import struct
import time

import frames
from ipv6 import MATCH, WATCH, bulk_is_fast, files
from lab import CONVERGE_S, check, check_equal, wait_until
from labs import L6, RB6, W6, W_LINK, lab_6
from raw import Injector
from traffic import TcpServer, check_fast, connect, fast_udp, read_all

NEW_MAC = "02:00:00:00:00:77"


def run():
    with lab_6(watch=WATCH) as lab:
        lab.attach("ra", "rb")
        flow, peer = fast_udp(lab, target=(W6, 9))
        live = lab.flow(**MATCH)
        check_equal((live["family"], live["orig"]["match"]["src"], live["orig"]["oif"], live["orig"]["next_hop"],
                     live["orig"]["dst_mac"], live["reply"]["oif"]),
                    ("ipv6", L6, "rb", W6, lab["W"].mac("wa"), "ra"), "the flow as it is listed")
        check_fast(lab, flow)
        check_equal({ttl for _flow, ttl, _class in peer.headers}, {63}, "hop limits at W")
        files(lab, W6, 8000)
        stream = bulk_is_fast(lab, W6, 8100)

        marks(lab, flow)
        neighbour(lab, flow, peer)
        rule(lab, flow, peer)
        stream.check_progress(what="the TCP stream after all that")
        check(stream.error is None, f"the stream: {stream.error}")
        stream.stop()
        stream.connection.shutdown(socket.SHUT_RDWR)
        endings(lab)
        flow.stop()


def marks(lab, flow):
    """Datagrams of one length whose traffic class and hop limit change all the time while a rule drops some of
    them: a witness that takes one for the other would say that something mangles the flow."""
    flow.stop()
    flow.lost()
    lab["R"].nft("""table ip6 some {
        chain f { type filter hook forward priority 0; udp dport 9 numgen inc mod 2 0 drop; }
    }""")
    end, number = time.monotonic() + 2 * CONVERGE_S, 0
    while time.monotonic() < end:
        flow.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, (0, 1, 2, 3)[number & 3])
        flow.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 64 - (number & 7))
        flow.send_one()
        number += 1
        if number & 15 == 0:
            time.sleep(0.03)  # bursts: the packets of one are on their way together
    flow.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0)
    flow.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 64)
    check_equal(lab.refused(**MATCH), None, "reason why the flow is refused")
    lab["R"].run("nft", "delete", "table", "ip6", "some")
    flow.start(50)
    time.sleep(CONVERGE_S)
    lab.wait_live(**MATCH)
    check_fast(lab, flow)
    flow.start(50)


def neighbour(lab, flow, peer):
    """W's MAC changes, and says so by the neighbour advertisement that a host sends then."""
    lab["W"].ip(f"link set wa down\nlink set wa address {NEW_MAC}\nlink set wa up")
    for line in (f"addr add {W6}/64 dev wa nodad", f"addr add {W_LINK}/64 dev wa nodad",
                 f"route replace 2001:db8:1::/64 via {RB6}"):
        lab["W"].ip(line, ok=False)  # gone with the carrier
    advert = frames.icmp6(W6, "ff02::1", 136, 0, b"\x20\0\0\0", frames.addr(W6) + b"\x02\x01" + frames.mac(NEW_MAC))
    start = time.monotonic()
    Injector(lab["W"], "wa").send(frames.ipv6(W6, "ff02::1", frames.ICMPV6, advert, hop=255), dst="33:33:00:00:00:01",
                                  kind=frames.ETH_IPV6)
    wait_until(lambda: (lab.live(**MATCH) or {"orig": {}})["orig"].get("dst_mac") == NEW_MAC, 5,
               "the flow goes to the new MAC")
    first = peer.received(1)
    wait_until(lambda: peer.received(1) > first + 10, 2, "datagrams at W's new MAC")
    print(f"the new MAC is followed after {time.monotonic() - start:.1f} s")
    check_fast(lab, flow)
    flow.start(50)


def rule(lab, flow, peer):
    """A drop rule stops what runs; without it the flow goes on, and is fast again."""
    router = lab["R"]
    router.nft(f"""table ip6 block {{
        chain f {{ type filter hook forward priority 0; ip6 daddr {W6} udp dport 9 drop; }}
    }}""")
    time.sleep(CONVERGE_S + 0.3)
    stopped = peer.received(1)
    time.sleep(0.7)
    check_equal(peer.received(1), stopped, "datagrams at W a second after the drop rule came")
    check(not lab.live(**MATCH), "the flow is live although a rule drops it")
    router.run("nft", "delete", "table", "ip6", "block")
    wait_until(lambda: peer.received(1) > stopped, 2, "datagrams at W after the rule went")
    lab.wait_live(**MATCH)
    check_fast(lab, flow)


def endings(lab):
    """FIN and RST end a flow."""
    def reset(connection, _address):
        connection.recv(10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def echo(connection, _address):
        while data := connection.recv(100):
            connection.sendall(data)
        connection.sendall(b"rest")

    TcpServer(lab["W"], W6, 8200, echo)
    TcpServer(lab["W"], W6, 8201, reset)
    with connect(lab["L"], (W6, 8200)) as closed, connect(lab["L"], (W6, 8201)) as broken:
        def live():
            closed.sendall(b"x")
            check_equal(closed.recv(1), b"x", "echo")
            return lab.live(proto="tcp", dport=8200)

        wait_until(live, 12, "the connection is live")
        closed.shutdown(socket.SHUT_WR)
        check_equal(read_all(closed), b"rest", "what comes after the first FIN")
        broken.sendall(b"go")
        try:
            check_equal(broken.recv(10), b"", "data instead of a reset")
        except ConnectionResetError:
            pass
    wait_until(lambda: not [flow for flow in lab.flows() if flow["l4proto"] == "tcp"], 5, "no TCP flow left", 0.2)
    for port, allowed in (8200, {"TIME_WAIT", "LAST_ACK"}), (8201, {"CLOSE", None}):
        found = {entry["state"] for entry in lab.conntrack("-f", "ipv6", "-p", "tcp", "--orig-port-dst", str(port))}
        check(found <= allowed, f"conntrack states of port {port}: {found}")
