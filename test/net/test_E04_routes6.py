# SPDX-License-Identifier: GPL-2.0-only
"""E04: IPv6 next hops with link-local addresses, routes that change, and MTUs."""
import struct
import time

import frames
from ipv6 import MATCH, WATCH
from lab import CONVERGE_S, check_equal, wait_until
from labs import L6, RB_LINK, W_LINK, lab_6
from raw import Injector, Sniffer
from traffic import (TcpServer, UdpPeer, check_fast, download, fast_udp, random_bytes, serve_blob, serve_store, upload)

SERVICE = "2001:db8:99::10"  # behind W, by its link-local address


def run():
    with lab_6(watch=WATCH, roles=("L", "R", "W", "W2")) as lab:
        lab.veth("W2", "wa", "R", "rb2")
        lab["R"].ip("addr add 2001:db8:4::1/64 dev rb2 nodad\naddr add fe80::c:1/64 dev rb2 nodad")
        lab["W2"].ip("addr add fe80::c:2/64 dev wa nodad\nroute add 2001:db8:1::/64 via fe80::c:1 dev wa")
        lab["W"].ip(f"route replace 2001:db8:1::/64 via {RB_LINK} dev wa")
        for role in ("W", "W2"):
            lab[role].ip(f"addr add {SERVICE}/128 dev lo nodad")
        lab["R"].ip(f"route add 2001:db8:99::/64 via {W_LINK} dev rb")
        lab.attach("ra", "rb", "rb2")
        flow, peer = fast_udp(lab, target=(SERVICE, 9))
        check_equal(lab.flow(**MATCH)["orig"]["next_hop"], W_LINK, "next hop")
        check_fast(lab, flow)
        mtu(lab, flow, peer)

        other = UdpPeer(lab["W2"], SERVICE, 9)
        flow.start(100)
        lab.wait_live(**MATCH)
        lab["R"].ip("route replace 2001:db8:99::/64 via fe80::c:2 dev rb2")
        time.sleep(CONVERGE_S)
        before = peer.received(1)
        wait_until(lambda: other.received(1) > 20, 2, "datagrams by the new route")
        live = wait_until(lambda: (flow_of := lab.live(**MATCH)) and flow_of["orig"]["oif"] == "rb2" and flow_of, 12,
                          "the flow is live by rb2")
        check_equal((peer.received(1), live["orig"]["next_hop"]), (before, "fe80::c:2"),
                    "datagrams by the old route a second later, and the next hop")
        check_fast(lab, flow)


def mtu(lab, flow, peer):
    """Packets up to the MTU are delivered, and the sender of longer ones is told (RFC 8201)."""
    errors = Sniffer(lab["L"], "la", lambda frame: frame[12:14] == b"\x86\xdd" and frame[20] == 58 and frame[54] == 2)
    at_w = Sniffer(lab["W"], "wa", lambda frame: frame[12:14] == b"\x86\xdd" and frame[20] == 17)
    injector = Injector(lab["L"], "la", lab["R"], "ra")

    def probe(limit, lengths):
        peer.echo = False
        errors.clear()
        at_w.clear()
        for number, length in enumerate(lengths):
            body = frames.udp(L6, SERVICE, 40000, 9, bytes([number]) * (length - 48))
            injector.send(frames.ipv6(L6, SERVICE, 17, body), kind=frames.ETH_IPV6)
            time.sleep(0.01)
        large = [length for length in lengths if length > limit]
        check_equal([len(frame) - 14 for frame in at_w.settle()], [length for length in lengths if length <= limit],
                    f"limit {limit}: lengths delivered")
        wait_until(lambda: len(errors.seen) >= len(large), 1, f"limit {limit}: {len(large)} ICMPv6 messages")
        told = [(struct.unpack_from("!I", frame, 58)[0], struct.unpack_from("!H", frame, 66)[0] + 40)
                for frame in errors.settle(0.1)]
        check_equal(told, [(limit, length) for length in large], "MTUs told, lengths quoted")
        peer.echo = True

    flow.stop()
    flow.lost()
    router = lab["R"]
    router.sysctl_set("net/ipv6/icmp/ratelimit", 0)
    big = random_bytes(4_000_000)
    TcpServer(lab["W"], SERVICE, 8000, serve_blob(big))
    TcpServer(lab["W"], SERVICE, 8001, serve_store([]))
    probe(1500, [1499, 1500])
    for limit, change in ((1400, "link set rb mtu 1400"),
                          (1300, f"route replace 2001:db8:99::/64 via {W_LINK} dev rb mtu lock 1300")):
        router.ip(change)
        time.sleep(CONVERGE_S)
        lab["L"].ip("route flush cache")
        probe(limit, [limit - 1, limit, limit + 1, limit + 2, limit + 4, 1500, limit])
        upload(lab["L"], (SERVICE, 8001), big)  # its path MTU is found by what R tells
        download(lab["L"], (SERVICE, 8000), big)
        flow.start(50)
        lab.wait_live(**MATCH)
        check_fast(lab, flow)
        flow.stop()
        flow.lost()
