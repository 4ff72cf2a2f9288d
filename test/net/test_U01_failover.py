# SPDX-License-Identifier: GPL-2.0-only
"""U01: an established flow follows the route to the other uplink within a second."""
import time

from lab import CONVERGE_S, Lab, check, check_equal, wait_until
from labs import SERVICE, lab_2w
from raw import Sniffer, is_flow
from traffic import TcpStream, UdpFlow, UdpPeer


def two_uplinks_one_server() -> Lab:
    """LAB-2W where W and W2 are routers to one server S, so that a connection can live through a change."""
    lab = lab_2w(watch={"up": "tcp dport 8000", "down": "tcp sport 8000"}, roles=("L", "R", "W", "W2", "S"))
    for number, role in ((1, "W"), (2, "W2")):
        lab[role].ip(f"addr del {SERVICE}/32 dev lo")
        lab.veth("S", f"s{number}", role, "ws")
        lab["S"].ip(f"addr add 10.0.{number}.2/24 dev s{number}")
        lab[role].ip(f"addr add 10.0.{number}.1/24 dev ws\nroute add {SERVICE} via 10.0.{number}.2")
        lab[role].sysctl(net_ipv4_ip_forward=1)
    lab["S"].ip(f"addr add {SERVICE}/32 dev lo\nroute add default via 10.0.1.1 src {SERVICE}")
    return lab


def run():
    follows_the_route()
    masquerade_as_detached()


def follows_the_route():
    with two_uplinks_one_server() as lab:
        router, far = lab["R"], lab["S"]
        lab.attach("ra", "rb", "rb2")
        stream = TcpStream(lab["L"], (SERVICE, 8000), far, rate=2_500_000)
        match = {"proto": "tcp", "sport": stream.sport, "dport": 8000}
        lab.wait_live(**match)
        wanted = is_flow(6, dport=8000)
        on = {"rb": Sniffer(lab["W"], "wa", wanted), "rb2": Sniffer(lab["W2"], "wa", wanted)}

        def move(text, change, now, bound=CONVERGE_S):
            stream.reset_gap()
            change()
            changed = time.monotonic()
            wait_until(lambda: on[now].since(changed), bound, f"{text}: upstream packets on {now}", 0.01)
            time.sleep(max(0, changed + CONVERGE_S - time.monotonic()))
            late = time.monotonic()
            stream.check_progress(what=f"{text}: the stream goes on")
            wait_until(lambda: (lab.flow(**match) or {"orig": {}})["orig"].get("oif") == now
                       and lab.flow(**match)["orig"]["live"], 5, f"{text}: flow live again by {now}", 0.1)
            time.sleep(0.5)
            for dev, sniffer in on.items():
                if dev != now:
                    check_equal(len(sniffer.since(late)), 0, f"{text}: upstream packets on {dev} a second later")
            check(stream.longest_gap < bound + 1.0, f"{text}: the stream stalled for {stream.longest_gap:.1f} s")

        move("(a) route replaced", lambda: router.ip("route replace default via 203.0.113.2 metric 100"), "rb2")
        move("(b) and back", lambda: router.ip("route replace default via 198.51.100.2 metric 100"), "rb")

        def link_down():
            router.ip("link set rb down")
            far.ip(f"route replace default via 10.0.2.1 src {SERVICE}")

        move("(c) link down", link_down, "rb2")

        def link_up():
            router.ip("link set rb up\nroute replace default via 198.51.100.2 metric 100")
            far.ip(f"route replace default via 10.0.1.1 src {SERVICE}")

        # Plain Linux may lose its first ARP request on a link that has just come up, and asks again after 1 s.
        move("link up", link_up, "rb", CONVERGE_S + 1.5)

        # (d) Carrier loss alone: the kernel keeps the route (ignore_routes_with_linkdown=0), and so
        # must we: nothing on rb2. With the sysctl on it moves.
        router.sysctl_set("net/ipv4/conf/all/ignore_routes_with_linkdown", 1)
        router.sysctl_set("net/ipv4/conf/rb/ignore_routes_with_linkdown", 1)

        def carrier_loss():
            lab["W"].ip("link set wa down")
            far.ip(f"route replace default via 10.0.2.1 src {SERVICE}")

        move("(d) carrier lost", carrier_loss, "rb2")
        stream.stop()


def masquerade_as_detached():
    """With masquerade the kernel gives the moved connection a new entry with the new source address."""
    def scenario(attached):
        with lab_2w(nat=True) as lab:
            lab["R"].nft('add rule ip nat post oifname "rb2" masquerade')
            if attached:
                lab.attach("ra", "rb", "rb2")
            peers = [UdpPeer(lab[role], SERVICE, 9) for role in ("W", "W2")]
            flow = UdpFlow(lab["L"], ("0.0.0.0", 40000), (SERVICE, 9)).start(100)
            if attached:
                lab.wait_live(proto="udp", sport=40000, dport=9)
            else:
                wait_until(lambda: flow.answered() > 20, 3, "datagrams flow")
            lab["R"].ip("route replace default via 203.0.113.2 metric 100")
            wait_until(lambda: peers[1].sources, CONVERGE_S, "datagrams by the new uplink", 0.01)
            time.sleep(CONVERGE_S)
            before = peers[0].received(1)
            time.sleep(0.5)
            check_equal(peers[0].received(1), before, "datagrams by the old uplink a second after the change")
            flow.stop()
            return [sorted(address for address, _port in peer.sources) for peer in peers], \
                   [entry["reply"]["dst"] for entry in lab.conntrack("-p", "udp")]

    check_equal(scenario(True), scenario(False), "source addresses and conntrack entries, attached and detached")
