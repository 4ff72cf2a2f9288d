# SPDX-License-Identifier: GPL-2.0-only
"""What the scenarios of tunnels with IPv6 share: flows are fast both ways, with NAT, and only for the tunnel's
own peer."""
import time

import frames
from lab import Skip, check, check_equal
from labs import FORWARDED_PORT, V4, declare_tunnel, lab_tunnel
from raw import Injector, Sniffer
from traffic import (TcpServer, TcpStream, UdpFlow, UdpPeer, check_fast, download, random_bytes, serve_blob,
                     serve_store, upload, warm_up)

MARK = b"marked"


def run(*rows):
    """Rows of a tunnel and the words that follow in `tunnel add`."""
    refused = []
    for tunnel, words in rows:
        name, start = " ".join((tunnel.mode,) + words), time.monotonic()
        why = trial(tunnel, words, name)
        print(f"  {name}: " + (f"not tested, the daemon refuses it: {why}" if why else
                               f"ok, {time.monotonic() - start:.1f} s"), flush=True)
        if why:
            refused.append(f"{name} ({why.splitlines()[0]})")
    if refused:
        raise Skip("all others passed, but the daemon refuses " + ", ".join(refused))


def trial(tunnel, words, name):
    """None, or why there is no such tunnel."""
    with lab_tunnel(tunnel, {"up": "udp dport 9", "down": "udp sport 9"}) as lab:
        why = declare_tunnel(lab, tunnel, *words)
        if why:
            return why
        UdpPeer(lab["server"], tunnel.server, 9)
        any_address = "0.0.0.0" if tunnel.inner == V4 else "::"
        flow = UdpFlow(lab["client"], (any_address, 40000), (tunnel.server, 9))
        warm_up(flow)
        plain = outsides(lab, tunnel, flow), envelopes(lab, tunnel)
        check_equal((plain[1]["right"], plain[1]["other source"], plain[1]["other protocol"]), (1, 0, 0),
                    f"{name}: the plain slow path")
        for role in ("remote", "router"):
            lab.at(role).attach("wan0", "lan0")
        flow.start(50)
        live = lab.wait_live(proto="udp", sport=40000)
        check_equal(live["family"], "ipv4" if tunnel.inner == V4 else "ipv6", "family")
        check_equal((live["orig"]["push"]["tunnel"], live["orig"]["match"]["tunnel"], live["orig"]["oif"]),
                    ({"type": tunnel.mode, "src": tunnel.wan_near, "dst": tunnel.wan_far}, None, "wan0"),
                    "orig: pushed, matched, egress")
        check_equal((live["reply"]["match"]["tunnel"], live["reply"]["push"]["tunnel"], live["reply"]["oif"]),
                    ({"type": tunnel.mode, "src": tunnel.wan_far, "dst": tunnel.wan_near}, None, "lan0"),
                    "reply: matched, pushed, egress")
        check_equal(live["orig"]["rewrite"]["src"], tunnel.near, "source after NAT")
        check_equal(live["orig"]["mtu"], tunnel.mtu, "MTU of the flow")
        check_fast(lab, flow)
        check_equal(len(lab.flows("tunnel", tunnel.mode)), 1, f"flows with the filter `tunnel {tunnel.mode}`")
        fast = outsides(lab, tunnel, flow), envelopes(lab, tunnel)
        check_equal(fast[0], plain[0], f"{name}: outer headers, as without ftctl")
        check_equal(fast[1], plain[1], f"{name}: packets at the client by envelope, as without ftctl")

        blob, store = random_bytes(2_000_000), []
        TcpServer(lab["server"], tunnel.server, 8000, serve_blob(blob))
        TcpServer(lab["server"], tunnel.server, 8001, serve_store(store))
        TcpServer(lab["client"], tunnel.client, FORWARDED_PORT, serve_blob(blob))
        download(lab["client"], (tunnel.server, 8000), blob)
        upload(lab["client"], (tunnel.server, 8001), blob)
        download(lab["server"], (tunnel.near, FORWARDED_PORT), blob)

        stream = TcpStream(lab["client"], (tunnel.server, 8002), lab["server"], rate=200_000)
        lab.wait_live(proto="tcp", sport=stream.sport)
        for role in ("router", "remote"):
            lab.at(role).detach()
            stream.check_progress(what=f"{name}: the stream after detach on {role}")
        stream.stop()
        check(stream.longest_gap < 1, f"{name}: the stream stood still for {stream.longest_gap:.1f} s")
    return None


def outsides(lab, tunnel, flow):
    """What is before the inner packet of the flow's datagrams on the wire, by their inner TOS; without what is drawn
    at random (ID and checksum, flow label) and the lengths."""
    flow.stop()
    flow.lost(settle=0.5)
    size = 14 + 28 if tunnel.inner == V4 else 14 + 48
    size += tunnel.room
    port = (40000).to_bytes(2, "big") + (9).to_bytes(2, "big")
    seen = Sniffer(lab["remote"], "wan0", lambda frame: port in frame[:size])
    level, option = (0, 1) if tunnel.inner == V4 else (41, 67)  # IP_TOS, IPV6_TCLASS
    result = {}
    for tos in (0, 1, 2, 3, 0xB8):
        flow.socket.setsockopt(level, option, tos)
        seen.clear()
        first = flow.send(3, 50, 100)
        check_equal(flow.lost(first), 0, f"datagrams with TOS {tos:#x} lost")
        heads = [bytearray(frame[12:14 + tunnel.room]) for frame in seen.settle(0.2)]
        check_equal(len(heads), 3, "datagrams seen on the wire")
        for head in heads:
            if tunnel.outer == V4:
                head[6:8] = head[12:14] = b"\0\0"
            else:
                head[3] &= 0xF0
                head[4:6] = b"\0\0"
        result[tos] = {bytes(head).hex() for head in heads}
    flow.socket.setsockopt(level, option, 0)
    return result


def envelopes(lab, tunnel):
    """How many packets reach the client for each way of sending it the flow's inner packet."""
    at_client = Sniffer(lab["client"], "eth0", lambda frame: MARK in frame)
    inject = Injector(lab["remote"], "wan0", lab["router"], "wan0")
    body = frames.udp(tunnel.server, tunnel.near, 9, 40000, MARK)
    inner = frames.ipv4(tunnel.server, tunnel.near, 17, body, ttl=60) if tunnel.inner == V4 else \
        frames.ipv6(tunnel.server, tunnel.near, 17, body, hop=60)
    proto = frames.IPIP if tunnel.inner == V4 else frames.IPV6
    stranger, elsewhere = ("203.0.113.77", "192.0.2.1") if tunnel.outer == V4 else ("2001:db8:a::77", "2001:db8:b::1")

    def wrap(source, target, packet=inner, number=proto):
        make = frames.ipv4 if tunnel.outer == V4 else frames.ipv6
        return make(source, target, number, packet)

    right = wrap(tunnel.wan_far, tunnel.wan_near)
    counts = {}
    for name, packet, version in (
            ("right", right, tunnel.outer), ("other source", wrap(stranger, tunnel.wan_near), tunnel.outer),
            ("other local address", wrap(tunnel.wan_far, elsewhere), tunnel.outer),
            ("other protocol", wrap(tunnel.wan_far, tunnel.wan_near, number=proto ^ 0x2D), tunnel.outer),
            ("no envelope", inner, tunnel.inner)):
        at_client.clear()
        inject.send(packet, kind=frames.ETH_IP if version == V4 else frames.ETH_IPV6)
        counts[name] = len(at_client.settle(0.2))
    return counts
