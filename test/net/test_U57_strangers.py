# SPDX-License-Identifier: GPL-2.0-only
"""U57: the inner packet of a fast flow in the wrong envelope, or by the wrong way, is no packet of the flow."""
import time

import frames
from lab import check_equal
from labs import V4
from peers import LAN, WAN, PeerLab, kind_of, packet
from raw import Injector, Sniffer

STRANGER = {V4: "203.0.113.77", 6: "2001:db8:a::77"}


def run():
    with PeerLab(("ipip", ()), ("ipip", ()), ("ip6ip6", ()), ("4in6", ()), ("6in4", ()), ("6in4", ())) as lab:
        lab.warm()
        at_client = Sniffer(lab["client"], "eth0", lambda frame: b"<<" in frame)
        inside = Injector(lab["client"], "eth0", lab["router"], "lan0")
        targets = lab.tunnels[0], lab.tunnels[2], lab.tunnels[3], lab.tunnels[4]
        plain = {str(far): arrivals(lab, far, at_client, inside) for far in targets}
        for name, seen in plain.items():
            check_equal({text: count for text, count in seen.items() if text in RIGHT}, RIGHT, f"{name}: slow path")
        check_equal(plain["ipip"]["from an address of the router"], 0, "IPv4 from the router's own address")
        lab.go_fast()
        for far in targets:
            carried = [lab.carried(each, "reply") for each in lab.tunnels]
            seen = arrivals(lab, far, at_client, inside)
            check_equal(seen, plain[str(far)], f"{far}: packets at the client, as without ftctl")
            grown = [lab.carried(each, "reply") - old for each, old in zip(lab.tunnels, carried)]
            check_equal(grown, [int(each is far) for each in lab.tunnels], f"{far}: packets of the flows")


# What the slow path makes of it, as far as it is the same in all modes.
RIGHT = {"right": 1, "source of a stranger": 0, "the other protocol": 0}


def arrivals(lab, far, at_client, inside):
    """How many packets reach the client for each way of sending it the inner packet of the flow."""
    other = next(each for each in lab.tunnels if each is not far and each.outer == far.outer)
    sent = []

    def inner(source=None):
        mark = b"<<%d>>" % len(sent)
        if source is None:
            return far.udp(mark, ttl=60)
        return packet(source, far.client, frames.UDP, frames.udp(source, far.client, 9, far.port, mark), ttl=60)

    def put(name, data, send=lab.send):
        send(data)
        sent.append(name)
        time.sleep(0.002)

    at_client.clear()
    put("right", far.wrap(inner()))
    put("source of a stranger", far.wrap(inner(), source=STRANGER[far.outer]))
    put("other address of the router", far.wrap(inner(), target=LAN[far.outer]))
    put("both other", far.wrap(inner(), source=STRANGER[far.outer], target=LAN[far.outer]))
    put("the other protocol", far.wrap(inner(), proto=far.proto ^ frames.IPIP ^ frames.IPV6))
    put("another tunnel", other.wrap(inner(), proto=far.proto))
    put("no envelope", inner())
    put("envelope in an envelope", far.wrap(far.wrap(inner())))
    put("from an address of the router", far.wrap(inner(source=WAN[far.inner])))
    put("by another device", far.wrap(inner()), lambda data: inside.send(data, kind=kind_of(data)))
    put("without envelope by another device", inner(), lambda data: inside.send(data, kind=kind_of(data)))
    counts = dict.fromkeys(sent, 0)
    for frame in at_client.settle():
        counts[sent[int(frame[frame.index(b"<<") + 2:frame.index(b">>")])]] += 1
    return counts
