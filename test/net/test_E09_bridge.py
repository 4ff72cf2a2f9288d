# SPDX-License-Identifier: GPL-2.0-only
"""E09: a bridge as the router's inner device (LAB-B). Its ports are attached, frames leave by the port that the FDB
names, stations that move are followed although only the far end sends, and the spanning tree is obeyed."""
import struct
import time

from lab import CONVERGE_S, check, check_equal, hold, wait_until
from labs import L_ADDR, RA_ADDR, lab_a
from raw import Injector, Sniffer, is_flow
from traffic import UdpFlow, UdpPeer, check_fast

STATION, BRIDGE = "02:00:00:00:0a:01", "02:00:00:00:0b:00"
FROM_W = {"proto": "udp", "sport": 40000, "dport": 9}
DISABLED, FORWARDING = "0", "3"  # without STP the kernel takes a port out of the others by itself


def lab_b():
    """LAB-A whose router has br0 with the ports p1 and p2; L and L2 are one station, on either side.

    A bridge of its own stands between each port and its machine, so that the carrier stays."""
    lab = lab_a(nat=False, watch={"up": "udp sport 9", "down": "udp dport 9"},
                roles=("L", "B1", "L2", "B2", "R", "W"), lan=False)
    router = lab["R"]
    router.ip(f"link add br0 address {BRIDGE} type bridge forward_delay 0 stp_state 0\nlink set br0 up\n"
              f"addr add {RA_ADDR}/24 dev br0")
    for role, between, port in (("L", "B1", "p1"), ("L2", "B2", "p2")):
        lab[between].ip("link add sw type bridge forward_delay 0\nlink set sw up")
        lab.veth(role, "la", between, "host", f"address {STATION}")
        lab.veth("R", port, between, "trunk")
        lab[between].ip("link set host master sw\nlink set trunk master sw")
        router.ip(f"link set {port} master br0")
        lab[role].ip(f"addr add {L_ADDR}/24 dev la\nroute add default via {RA_ADDR}")
    lab["L2"].ip("link set la down")
    return lab


def announce(lab, role):
    """Gratuitous ARP until the router's bridge has heard it: the station says where it is, and no more."""
    mac, addr = bytes.fromhex(STATION.replace(":", "")), bytes(int(part) for part in L_ADDR.split("."))
    arp = struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, mac, addr, bytes(6), addr)
    injector = Injector(lab[role], "la")

    def heard():
        injector.send(arp, "ff:ff:ff:ff:ff:ff", STATION, 0x0806)
        return fdb_port(lab) == "p2"
    wait_until(heard, 5, "the bridge has learnt the new port", 0.1)


def fdb_port(lab):
    text = lab["R"].run("bridge", "fdb", "get", STATION, "br", "br0", ok=False).stdout.split()
    return text[text.index("dev") + 1] if "dev" in text else None


def attached(lab):
    return {device["name"]: device["uppers"] for device in lab.ftctl("status")["devices"]}


def wait_towards(lab, port):
    """The direction to the station is live, by this port; the station is silent."""
    def there():
        flow = lab.flow(**FROM_W)
        return flow if flow and flow["orig"]["live"] and flow["orig"]["oif"] == port else None
    return wait_until(there, 5, f"datagrams to the station are fast by {port}")


def run():
    with lab_b() as lab:
        router = lab["R"]
        lab.start()
        done = lab.ftctl("attach", "br0", "rb")
        check_equal(done["uppers"], {"br0": ["p1", "p2"]}, "what br0 was resolved to")
        check_equal(attached(lab), {"p1": ["br0"], "p2": ["br0"], "rb": []}, "attached devices")
        check_equal([d["changed"] for d in lab.ftctl("attach", "br0", "rb")["devices"]], [False] * 3, "attach again")

        UdpPeer(lab["L"], L_ADDR, 9)
        flow = UdpFlow(lab["W"], ("0.0.0.0", 40000), (L_ADDR, 9)).start(100)
        live = lab.wait_live(**FROM_W)
        check_equal((live["orig"]["oif"], live["orig"]["dst_mac"]), ("p1", STATION), "the way to L")
        check_equal(live["reply"]["iif"], "p1", "the way from L")
        check_fast(lab, flow, up="down", down="up")

        # The station moves and is silent but for one frame; only W goes on sending.
        flow.start(100)
        wrong = Sniffer(lab["B1"], "trunk", is_flow(17, dport=9))
        lab["L"].ip("link set la down")
        lab["L2"].ip("link set la up")
        heir = UdpPeer(lab["L2"], L_ADDR, 9, echo=False)
        announce(lab, "L2")
        wait_until(lambda: heir.got, CONVERGE_S, "datagrams follow the station")
        time.sleep(CONVERGE_S)
        wrong.clear()
        before = wait_towards(lab, "p2")["orig"]["packets"]
        wait_until(lambda: lab.flow(**FROM_W)["orig"]["packets"] > before + 50, 5, "the flow is fast by the new port")
        check_equal(len(wrong.frames()), 0, "frames by the old port")

        # The port is disabled in the spanning tree: nothing may pass the port, and the reason is listed.
        router.run("bridge", "link", "set", "dev", "p2", "state", DISABLED)
        lab.wait_refused("path:p2: not in forwarding state", CONVERGE_S, **FROM_W)
        time.sleep(0.2)
        count = heir.received(1)
        hold(lambda: heir.received(1) == count, 1, "nothing passes a disabled port")
        router.run("bridge", "link", "set", "dev", "p2", "state", FORWARDING)
        wait_until(lambda: heir.received(1) > count, 3, "datagrams pass again")
        wait_towards(lab, "p2")

        # A forgotten station is flooded to by the slow path, and found again when it speaks.
        router.run("bridge", "fdb", "del", STATION, "dev", "p2", "master")
        lab.wait_refused(f"path:br0: no port is known for {STATION}", CONVERGE_S, **FROM_W)
        count = heir.received(1)
        wait_until(lambda: heir.received(1) > count, 2, "the slow path floods")
        announce(lab, "L2")
        wait_towards(lab, "p2")

        # Ports come and go.
        router.ip("link add p3 type veth peer name p3x\nlink set p3 up\nlink set p3 master br0")
        wait_until(lambda: attached(lab).get("p3") == ["br0"], CONVERGE_S, "a new port is attached")
        router.ip("link set p3 nomaster")
        wait_until(lambda: "p3" not in attached(lab), CONVERGE_S, "it is no port any more, and detached")
        check(lab.ftctl_raw("detach", "p1").returncode == 2, "detaching a port of an attached bridge is refused")
        lab.stop()
        lab.start()
        check_equal(attached(lab), {"p1": ["br0"], "p2": ["br0"], "rb": []}, "attached after a restart")
        wait_towards(lab, "p2")
        lab.ftctl("detach", "br0")
        check_equal(attached(lab), {"rb": []}, "left after detach br0")
        count = heir.received(1)
        wait_until(lambda: heir.received(1) > count, 2, "datagrams go on by the stack")
        flow.stop()
