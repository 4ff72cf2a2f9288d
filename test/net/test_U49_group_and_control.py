# SPDX-License-Identifier: GPL-2.0-only
"""U49: a fast flow's packets in group frames or from odd sources, and all control protocols, are the stack's."""
import struct

import frames
from lab import check, check_equal
from labs import L_ADDR, RA_ADDR, RB_ADDR, W_ADDR, lab_a
from raw import Injector, Sniffer
from traffic import UdpFlow, UdpPeer, check_fast, warm_up

HOST = "02:00:00:00:00:99"
GROUPS = ("ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "33:33:00:00:00:01", "01:80:c2:00:00:0e")
ODD_MACS = ("00:00:00:00:00:00", "01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff")
ODD_SOURCES = ("224.0.0.1", "0.0.0.0", "127.0.0.1", "255.255.255.255", RA_ADDR, RB_ADDR)


def flow_frames(router, client):
    """(what, frame with the flow's packet) that no router forwards, or that is not the flow's; router, client: MACs."""
    def udp(source=L_ADDR):
        return frames.ipv4(source, W_ADDR, 17, frames.udp(source, W_ADDR, 40000, 9, b"odd"), ident=7)

    for group in GROUPS:
        yield f"to {group}", frames.ethernet(frames.mac(group), client, frames.ETH_IP, udp())
    yield "to another host", frames.ethernet(frames.mac(HOST), client, frames.ETH_IP, udp())
    for source in ODD_MACS:
        yield f"from MAC {source}", frames.ethernet(router, frames.mac(source), frames.ETH_IP, udp())
    for source in ODD_SOURCES:
        yield f"from {source}", frames.ethernet(router, client, frames.ETH_IP, udp(source))


def control_frames(router, client):
    """Frames of protocols that keep a network together."""
    link, router_link = "fe80::1:2", "fe80::1:1"

    def nd(kind, target, rest=b""):
        body = frames.icmp6(link, target, kind, 0, bytes(4), rest)
        return frames.ipv6(link, target, frames.ICMPV6, body, hop=255)

    all_nodes, group = frames.mac("33:33:00:00:00:01"), frames.mac("01:80:c2:00:00:00")
    broadcast = b"\xff" * 6
    dhcp = frames.udp("0.0.0.0", "255.255.255.255", 68, 67, bytes(300))
    yield "ARP request", frames.ethernet(broadcast, client, frames.ETH_ARP,
                                         frames.arp_request(client, L_ADDR, RA_ADDR))
    yield "DHCP", frames.ethernet(broadcast, client, frames.ETH_IP, frames.ipv4("0.0.0.0", "255.255.255.255", 17, dhcp))
    for name, kind, target, rest in (("NS", 135, "ff02::1:ff01:1", frames.addr(router_link)),
                                     ("NA", 136, "ff02::1", frames.addr(link)), ("RS", 133, "ff02::2", b""),
                                     ("RA", 134, "ff02::1", bytes(8)),
                                     ("MLD", 131, "ff02::1:3", frames.addr("ff02::1:3"))):
        yield name, frames.ethernet(all_nodes, client, frames.ETH_IPV6, nd(kind, target, rest))
    yield "IGMP", frames.ethernet(frames.mac("01:00:5e:00:00:16"), client, frames.ETH_IP,
                                  frames.ipv4(L_ADDR, "224.0.0.22", 2, bytes(16), ttl=1, options=b"\x94\x04\0\0"))
    yield "STP", group + client + struct.pack("!H", 38) + b"\x42\x42\x03" + bytes(35)
    for name, target, kind in (("LLDP", "01:80:c2:00:00:0e", 0x88CC), ("LACP", "01:80:c2:00:00:02", 0x8809),
                               ("802.1X", "01:80:c2:00:00:03", 0x888E),
                               ("PPPoE discovery", "ff:ff:ff:ff:ff:ff", 0x8863)):
        yield name, frames.ethernet(frames.mac(target), client, kind, bytes(46))


def run():
    with lab_a() as lab:
        UdpPeer(lab["W"], W_ADDR, 9)
        flow = UdpFlow(lab["L"], ("0.0.0.0", 40000), (W_ADDR, 9))
        warm_up(flow)
        router, client = frames.mac(lab["R"].mac("ra")), frames.mac(lab["L"].mac("la"))
        send = Injector(lab["L"], "la").socket.send
        at_w = Sniffer(lab["W"], "wa", lambda frame: b"odd" in frame)
        odd, control = list(flow_frames(router, client)), list(control_frames(router, client))
        # A packet socket below the TC program would see the frames before it; this one is what the stack gets.
        in_stack = taps(lab, {frame[12:14] for _name, frame in control})
        plain = trial(odd, send, at_w), heard(control, send, in_stack)
        check_equal(sorted(plain[0]), sorted(name for name, _frame in odd if name.startswith("from MAC")),
                    "what the stack alone forwards")
        check_equal(plain[1], [name for name, _frame in control if name != "STP"], "what the stack alone hears")
        lab.attach("ra", "rb")
        flow.start(50)
        lab.wait_live(proto="udp", sport=40000)
        flow.stop()
        flow.lost()
        before, stats = lab.flow(proto="udp", sport=40000), lab.stats("ra")
        check_equal(trial(odd, send, at_w), plain[0], "what is forwarded, as without ftctl")
        check_equal(heard(control, send, in_stack), plain[1], "what the stack hears, as without ftctl")
        after, now = lab.flow(proto="udp", sport=40000), lab.stats("ra")
        taken = after["orig"]["packets"] - before["orig"]["packets"]
        check(taken <= len(ODD_MACS), f"{taken} frames were taken for the flow's")
        check(now["reasons"]["group"] - stats["reasons"].get("group", 0) >= len(GROUPS), f"reasons: {now['reasons']}")
        check_equal(now["reasons"]["other-host"] - stats["reasons"].get("other-host", 0), 1, "for another host")

        # ARP still finds everybody.
        lab["R"].ip("neigh flush all")
        lab["L"].ip("neigh flush all")
        flow.start(50)
        lab.wait_live(proto="udp", sport=40000)
        check_fast(lab, flow)


def trial(odd, send, at_w):
    """Names of the frames whose packet comes to W."""
    seen = []
    for name, frame in odd:
        at_w.clear()
        send(frame)
        if at_w.settle(0.05):
            seen.append(name)
    return seen


def taps(lab, kinds):
    """Sockets for one EtherType each, which see frames after the TC program only."""
    return {kind: Sniffer(lab["R"], "ra", kind=struct.unpack("!H", kind)[0]) for kind in kinds
            if struct.unpack("!H", kind)[0] >= 0x600}


def heard(control, send, in_stack):
    for tap in in_stack.values():
        tap.clear()
    for _name, frame in control:
        send(frame)
    for tap in in_stack.values():
        tap.settle(0.1)
    return [name for name, frame in control if any(frame == got[:len(frame)] for tap in in_stack.values()
                                                   for got in tap.frames())]
