# SPDX-License-Identifier: GPL-2.0-only
"""A tunnel of the kernel's ipip driver between two routers, ftctl on the one that masquerades into it."""
import os
import sys

VM = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [VM, os.path.join(os.path.dirname(VM), "net")]

from lab import Failure, check, check_equal  # noqa: E402
from labs import (FORWARDED_PORT, CLIENT, SERVER, TUNNEL_FAR, TUNNEL_NEAR, WAN_FAR, WAN_NEAR,  # noqa: E402
                  kernel_has_ipip, lab_t)
from raw import Sniffer  # noqa: E402
from traffic import UdpFlow, UdpPeer, check_fast, random_bytes, warm_up  # noqa: E402
from transfer import Transfer  # noqa: E402

WATCH = {"up": "udp dport 9", "down": "udp sport 9", "tcp_up": "tcp dport 8000", "tcp_down": "tcp sport 8000",
         "fwd_up": f"tcp dport {FORWARDED_PORT}", "fwd_down": f"tcp sport {FORWARDED_PORT}"}
TTL, TOS = 33, 0x48


def envelope(frame):
    """(TTL, TOS) outside and inside of an Ethernet frame with IPIP."""
    return {"outer": (frame[22], frame[15]), "inner": (frame[42], frame[35])}


def is_ipip(frame):
    return len(frame) > 54 and frame[12:14] == b"\x08\x00" and frame[23] == 4 and frame[43] == 17


def run():
    with lab_t(watch=WATCH) as lab:
        if not kernel_has_ipip(lab):
            print("SKIP: this kernel has no ipip module")
            return 77
        for role, local, remote, inner, peer in (("remote", WAN_FAR, WAN_NEAR, TUNNEL_FAR, TUNNEL_NEAR),
                                                 ("router", WAN_NEAR, WAN_FAR, TUNNEL_NEAR, TUNNEL_FAR)):
            # No ttl and no tos given: both are inherited from the packet inside.
            lab[role].ip(f"link add tun0 type ipip local {local} remote {remote}")
            lab[role].ip(f"addr add {inner} peer {peer} dev tun0\nlink set tun0 up")
        lab["router"].ip("route add 198.51.100.0/24 dev tun0")

        UdpPeer(lab["server"], SERVER, 9)
        flow = UdpFlow(lab["client"], ("0.0.0.0", 40000), (SERVER, 9), tos=TOS, ttl=TTL)
        warm_up(flow)
        on_wire = Sniffer(lab["remote"], "wan0", is_ipip)
        flow.send(3)
        flow.lost()
        slow = envelope(on_wire.settle(0.3)[0])
        check_equal(slow["inner"], (TTL - 1, TOS), "inner TTL and TOS on the slow path")

        lab.at("router").attach("lan0", "wan0")
        flow.start(50)
        live = lab.wait_live(proto="udp", sport=40000)
        check_equal(live["orig"]["push"]["tunnel"], {"type": "ipip", "src": WAN_NEAR, "dst": WAN_FAR}, "pushed")
        check_equal(live["reply"]["match"]["tunnel"], {"type": "ipip", "src": WAN_FAR, "dst": WAN_NEAR}, "matched")
        check_fast(lab, flow)
        on_wire.clear()
        flow.send(20)
        flow.lost()
        frames = on_wire.settle(0.3)
        check(len(frames) >= 20, f"{len(frames)} frames seen on the wire")
        for frame in frames:
            check_equal(envelope(frame), slow, "TTL and TOS outside and inside, as on the slow path")

        blob = random_bytes(4_000_000)
        Transfer(lab, "client", "server", (SERVER, 8000)).check_fast(blob, "tcp_up", "tcp_down")
        # By the port that the router forwards from the tunnel: here the server is the one that connects.
        Transfer(lab, "server", "client", (TUNNEL_NEAR, FORWARDED_PORT), CLIENT).check_fast(blob, "fwd_up", "fwd_down")
        lab.detach()
        lab.stop()
    check(not lab.left_behind, f"left behind: {lab.left_behind}")
    print("ok: UDP and TCP through the kernel's ipip device, masqueraded and forwarded, on the fast path")
    return 0


try:
    sys.exit(run())
except Failure as failure:
    print(f"FAIL: {failure}")
    sys.exit(1)
