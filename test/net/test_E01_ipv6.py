# SPDX-License-Identifier: GPL-2.0-only
"""E01: IPv6 flows, plain and with NAT66, are fast, exact, and follow what changes around them."""
import socket
import struct
import time

import frames
from lab import CONVERGE_S, check, check_equal, wait_until
from labs import L6, RB6, RB_LINK, W6, W_LINK, lab_6
from raw import Injector, Sniffer
from traffic import (TcpServer, TcpStream, UdpFlow, UdpPeer, check_fast, connect, download, fast_udp,
                     random_bytes, read_all, serve_blob, serve_store, upload)

SERVICE = "2001:db8:99::10"  # behind W, by its link-local address
VIRTUAL = "2001:db8:3::10"
MATCH = {"proto": "udp", "sport": 40000, "dport": 9}
NEW_MAC = "02:00:00:00:00:77"


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


WATCH = {"up": "udp dport 9", "down": "udp sport 9", "tcp_down": "tcp sport 8100"}


def plain():
    with lab_6(watch=WATCH) as lab:
        router = lab["R"]
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
    lab["R"].nft("table ip6 some { chain f { type filter hook forward priority 0; udp dport 9 numgen inc mod 2 0 drop; } }")
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
    router.nft(f"table ip6 block {{ chain f {{ type filter hook forward priority 0; ip6 daddr {W6} udp dport 9 drop; }} }}")
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


def nat66():
    """Masquerade towards W, and a virtual address that is W's."""
    with lab_6(watch=WATCH) as lab:
        lab["W"].ip("route del 2001:db8:1::/64")  # nothing comes back but by NAT
        lab["R"].nft(f"""table ip6 nat {{
            chain pre {{ type nat hook prerouting priority dstnat;
                ip6 daddr {VIRTUAL} udp dport 9 dnat to [{W6}]:9
                ip6 daddr {VIRTUAL} tcp dport 8000-8200 dnat to {W6}; }}
            chain post {{ type nat hook postrouting priority srcnat; oifname "rb" masquerade; }}
        }}""")
        lab.attach("ra", "rb")
        UdpPeer(lab["W"], W6, 9)
        for port, target in (40000, W6), (40001, VIRTUAL):
            flow = UdpFlow(lab["L"], ("::", port), (target, 9)).start(50)
            live = lab.wait_live(proto="udp", sport=port, dport=9)
            rewrite = live["orig"]["rewrite"]
            check_equal((rewrite["src"], rewrite["sport"], rewrite["dst"], rewrite["dport"]), (RB6, port, W6, 9),
                        f"what becomes of packets to {target}")
            check_equal((live["reply"]["match"]["dst"], live["reply"]["rewrite"]["src"],
                         live["reply"]["rewrite"]["dst"]), (RB6, target, L6), "and of the answers")
            check_fast(lab, flow)
        for target, port in (W6, 8000), (VIRTUAL, 8010):
            files(lab, target, port)
        bulk_is_fast(lab, VIRTUAL, 8100).stop()
        # An error about a translated packet goes to who has sent it.
        errors = Sniffer(lab["L"], "la", lambda frame: frame[12:14] == b"\x86\xdd" and frame[20] == 58
                         and frame[54] == 1)
        UdpFlow(lab["L"], ("::", 40002), (W6, 99)).send_one()
        wait_until(lambda: errors.seen, 3, "port unreachable for L")
        check_equal(errors.frames()[0][62 + 8:62 + 40], frames.addr(L6) + frames.addr(W6), "addresses quoted")


def routes():
    """A next hop with a link-local address, a route that changes, and MTUs."""
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


def run():
    plain()
    nat66()
    routes()
