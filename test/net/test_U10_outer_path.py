# SPDX-License-Identifier: GPL-2.0-only
"""U10: the way of a tunnel's outer packets changes: route, neighbour, into itself; flows follow in a second."""
import struct
import time

import frames
from lab import CONVERGE_S, check, check_equal, wait_until
from labs import V4
from peers import PeerLab, inside
from raw import Sniffer
from traffic import check_fast

GATEWAY = {V4: "203.0.113.200", 6: "2001:db8:a::200"}
MACS = "02:00:00:00:00:71", "02:00:00:00:00:72"


def run():
    with PeerLab(("ipip", ()), ("4in6", ("encaplimit", "none"))) as lab:
        lab.warm()
        lab.go_fast()
        for far in lab.tunnels:
            follow(lab, far)
        for far in lab.tunnels:
            into_itself(lab, far)


def follow(lab, far):
    flow = lab.flows_of[far.number]
    mark = struct.pack("!HH", far.port, 9)
    wire = Sniffer(lab["peer"], "wan0", lambda frame: mark in frame[:100])
    bits = 32 if far.outer == V4 else 128
    gateway = GATEWAY[far.outer]
    flow.start(100)
    wait_until(lambda: wire.seen, 2, f"{far}: frames on the wire")
    before = head(wire.frames()[-1])
    router = lab["router"]
    router.ip(f"neigh replace {gateway} lladdr {MACS[0]} dev wan0 nud permanent")
    router.ip(f"route add {far.far}/{bits} via {gateway} dev wan0")
    moved(lab, far, wire, MACS[0], "a route by another next hop")
    router.ip(f"neigh replace {gateway} lladdr {MACS[1]} dev wan0 nud permanent")
    moved(lab, far, wire, MACS[1], "another MAC of the next hop")
    check_equal(head(wire.frames()[-1]), before, f"{far}: outer header")
    router.ip(f"route del {far.far}/{bits} via {gateway} dev wan0")
    moved(lab, far, wire, lab["peer"].mac("wan0"), "the route is gone again")
    check_fast(lab, flow)
    check_equal(head(wire.frames()[-1]), before, f"{far}: outer header at the end")


def moved(lab, far, wire, mac, what):
    """A second after the kernel's own view no frame goes elsewhere, and the flow is fast that way."""
    time.sleep(CONVERGE_S)
    wire.clear()
    wait_until(lambda: (lab.live(proto="udp", sport=far.port) or {"orig": {}})["orig"].get("dst_mac") == mac, 5,
               f"{far}, {what}: the flow is live by {mac}")
    carried = lab.carried(far, "orig")
    wait_until(lambda: lab.carried(far, "orig") > carried + 20, 3, f"{far}, {what}: fast packets")
    check_equal({frame[:6].hex(":") for frame in wire.frames()}, {mac}, f"{far}, {what}: where frames went")


def head(frame):
    """The outer header without its ID and checksum."""
    data = frame[14:]
    return (data[:4] + data[6:10] + data[12:20] if data[0] >> 4 == 4 else data[:40]).hex()


def into_itself(lab, far):
    """The remote routed into the tunnel: nothing leaves, in one envelope or in two, and the flow says why."""
    bits = 32 if far.outer == V4 else 128
    lab.flows_of[far.number].start(100)
    lab["router"].ip(f"route add {far.far}/{bits} dev {far.dev}")
    lab.wait_refused("path:" + far.dev, proto="udp", sport=far.port)
    far.got.clear()
    time.sleep(CONVERGE_S)
    check_equal([inside(data) for data, _at in far.got], [], f"{far}: packets at the peer with the tunnel in itself")
    lab["router"].ip(f"route del {far.far}/{bits} dev {far.dev}")
    lab.wait_live(proto="udp", sport=far.port)
    lab.flows_of[far.number].stop()
    check(frames.addr(far.near) in far.got[-1][0][:40], f"{far}: the peer is reached again")
