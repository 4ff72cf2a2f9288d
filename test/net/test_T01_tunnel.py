# SPDX-License-Identifier: GPL-2.0-only
"""T01: flows through an IPIP tunnel are fast both ways, with NAT, and only for the tunnel's own peer."""
import frames
from lab import check, check_equal
from labs import (CLIENT, FORWARDED_PORT, SERVER, TUNNEL_NEAR, WAN_FAR, WAN_NEAR, lab_t, open_tunnel)
from raw import Injector, Sniffer
from traffic import (TcpServer, UdpFlow, UdpPeer, check_fast, download, random_bytes, serve_blob, serve_store, upload,
                     TcpStream, warm_up)


def run():
    with lab_t(watch={"up": "udp dport 9", "down": "udp sport 9"}) as lab:
        print("the tunnel is made by", open_tunnel(lab))
        UdpPeer(lab["server"], SERVER, 9)
        flow = UdpFlow(lab["client"], ("0.0.0.0", 40000), (SERVER, 9))
        warm_up(flow)
        plain = envelopes(lab)
        check_equal((plain["right"], plain["other source"], plain["both other"]), (1, 0, 0), "the plain slow path")
        for role in ("remote", "router"):
            lab.at(role).attach("wan0", "lan0")
        flow.start(50)
        live = lab.wait_live(proto="udp", sport=40000)
        tunnel = {"type": "ipip", "src": WAN_NEAR, "dst": WAN_FAR}
        back = {"type": "ipip", "src": WAN_FAR, "dst": WAN_NEAR}
        check_equal((live["orig"]["push"]["tunnel"], live["orig"]["match"]["tunnel"], live["orig"]["oif"]),
                    (tunnel, None, "wan0"), "orig: pushed, matched, egress")
        check_equal((live["reply"]["match"]["tunnel"], live["reply"]["push"]["tunnel"], live["reply"]["oif"]),
                    (back, None, "lan0"), "reply: matched, pushed, egress")
        check_equal(live["orig"]["rewrite"]["src"], TUNNEL_NEAR, "source after NAT")
        check_equal(live["orig"]["mtu"], 1480, "MTU of the flow")
        check_fast(lab, flow)
        check_equal(len(lab.find(proto="udp", sport=40000)), 1, "flows of the connection")
        check_equal(len(lab.flows("tunnel", "ipip")) >= 1, True, "flows with the filter `tunnel ipip`")

        # Files, both ways and by the forwarded port, byte by byte.
        blob, store = random_bytes(3_000_000), []
        TcpServer(lab["server"], SERVER, 8000, serve_blob(blob))
        TcpServer(lab["server"], SERVER, 8001, serve_store(store))
        TcpServer(lab["client"], CLIENT, FORWARDED_PORT, serve_blob(blob))
        download(lab["client"], (SERVER, 8000), blob)
        upload(lab["client"], (SERVER, 8001), blob)
        download(lab["server"], (TUNNEL_NEAR, FORWARDED_PORT), blob)

        # The same inner packet in somebody else's envelope: the stack's business, and no packet of the flow.
        carried = lab.flow(proto="udp", sport=40000)["reply"]["packets"]
        fast = envelopes(lab)
        check_equal(fast, plain, "packets at the client by envelope, as without ftctl")
        check_equal(lab.flow(proto="udp", sport=40000)["reply"]["packets"], carried + 1, "packets of the flow")

        # A stream lives through detach of both routers.
        stream = TcpStream(lab["client"], (SERVER, 8002), lab["server"], rate=200_000)
        lab.wait_live(proto="tcp", sport=stream.sport)
        for role in ("router", "remote"):
            lab.at(role).detach()
            stream.check_progress(what=f"the stream after detach on {role}")
        check(stream.longest_gap < 1, f"the stream stood still for {stream.longest_gap:.1f} s")
        stream.stop()


def envelopes(lab):
    """How many packets reach the client for each way of sending it the flow's inner packet."""
    mark = b"foreign"
    at_client = Sniffer(lab["client"], "eth0", lambda frame: mark in frame)
    inject = Injector(lab["remote"], "wan0", lab["router"], "wan0")
    inner = frames.ipv4(SERVER, TUNNEL_NEAR, 17, frames.udp(SERVER, TUNNEL_NEAR, 9, 40000, mark), ttl=60)

    def ipip(source, target, packet=inner):
        return frames.ipv4(source, target, 4, packet)

    counts = {}
    for name, packet in (("right", ipip(WAN_FAR, WAN_NEAR)), ("other source", ipip("203.0.113.77", WAN_NEAR)),
                         ("other local address", ipip(WAN_FAR, "192.0.2.1")),
                         ("both other", ipip("203.0.113.77", "192.0.2.1")), ("no envelope", inner),
                         ("two envelopes", ipip(WAN_FAR, WAN_NEAR, ipip(WAN_FAR, WAN_NEAR)))):
        at_client.clear()
        inject.send(packet)
        counts[name] = len(at_client.settle(0.2))
    return counts
