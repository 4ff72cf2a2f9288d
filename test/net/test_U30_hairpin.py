# SPDX-License-Identifier: GPL-2.0-only
"""U30: NAT hairpin, in and out by the same device: right in both modes, fast where no ICMP redirects are due."""
import errno
import time

from lab import check, check_equal, wait_until
from labs import RA_ADDR, RB_ADDR, lab_a
from raw import Sniffer, is_flow, is_icmp
from traffic import TcpServer, UdpFlow, UdpPeer, download, random_bytes, serve_blob

BLOB = random_bytes(5_000_000)
MATCH = {"proto": "udp", "sport": 40000, "dport": 8080}


def hairpin_lab(snat=True):
    lab = lab_a(roles=("L", "L2", "B", "R", "W"), lan=False,
                watch={"up": "meta l4proto udp ct original proto-dst 8080 ct direction original",
                       "down": "meta l4proto udp ct original proto-dst 8080 ct direction reply"})
    lab["B"].ip("link add br0 type bridge\nlink set br0 up")
    for role, dev, port in (("L", "la", "p1"), ("L2", "la", "p2"), ("R", "ra", "p0")):
        lab.veth(role, dev, "B", port)
        lab["B"].ip(f"link set {port} master br0")
    lab["R"].ip(f"addr add {RA_ADDR}/24 dev ra")
    for role, addr in (("L", "192.0.2.2"), ("L2", "192.0.2.3")):
        lab[role].ip(f"addr add {addr}/24 dev la\nroute add default via {RA_ADDR}")
    rule = 'oifname "ra" ip saddr 192.0.2.0/24 masquerade' if snat else ""
    lab["R"].nft(f"""table ip hair {{
        chain pre {{ type nat hook prerouting priority dstnat
            ip daddr {RB_ADDR} meta l4proto {{ tcp, udp }} th dport 8080-8089 dnat to 192.0.2.3
        }}
        chain post {{ type nat hook postrouting priority srcnat; {rule}
        }} }}""")
    return lab


def exercise(lab, live):
    """UDP and TCP both ways through the hairpin; returns what the hosts saw."""
    peer = UdpPeer(lab["L2"], "192.0.2.3", 8080)
    flow = UdpFlow(lab["L"], ("0.0.0.0", 40000), (RB_ADDR, 8080)).start(50)
    redirects = Sniffer(lab["L"], "la", is_icmp(5))
    at_l2 = Sniffer(lab["L2"], "la", is_flow(17, dport=8080))
    at_l = Sniffer(lab["L"], "la", is_flow(17, sport=8080))
    if live:
        lab.wait_live(**MATCH)
    else:
        wait_until(lambda: flow.answered() > 150, 5, "datagrams flow")
    flow.stop()
    check_equal(flow.lost(), 0, "lost")
    for sniffer in (at_l2, at_l):
        sniffer.clear()
    first = flow.send(100)
    check_equal(flow.lost(first), 0, "lost")
    check_equal((len(at_l2.settle()), len(at_l.settle())), (100, 100), "frames at L2 and at L for 100 datagrams")
    router_mac = bytes.fromhex(lab["R"].mac("ra").replace(":", ""))
    for sniffer, role in ((at_l2, "L2"), (at_l, "L")):
        own = bytes.fromhex(lab[role].mac("la").replace(":", ""))
        check_equal({(frame[:6], frame[6:12]) for frame in sniffer.frames()}, {(own, router_mac)}, f"MACs at {role}")
    check_equal(set(address for address, _port in peer.sources), {RA_ADDR}, "source that L2 sees")

    TcpServer(lab["L2"], "192.0.2.3", 8081, serve_blob(BLOB))
    download(lab["L"], (RB_ADDR, 8081), BLOB)

    # Nobody listens on 8082: L's socket must hear of it, translated back.
    closed = UdpFlow(lab["L"], ("0.0.0.0", 40002), (RB_ADDR, 8082))
    closed.send(3, 20)
    wait_until(lambda: closed.errors[errno.ECONNREFUSED], 1, "port unreachable reaches L's socket")
    return len(redirects.frames())


def run():
    with hairpin_lab() as lab:
        plain = exercise(lab, False)
    with hairpin_lab() as lab:
        lab.attach("ra", "rb")
        redirects = exercise(lab, False)
        lab.wait_refused("hairpin", 3, **MATCH)
        check(abs(redirects - plain) <= 2, f"{redirects} ICMP redirects, {plain} without ftctl")
    with hairpin_lab() as lab:
        for dev in ("all", "ra"):
            lab["R"].sysctl_set(f"net/ipv4/conf/{dev}/send_redirects", 0)
        lab.attach("ra", "rb")
        check_equal(exercise(lab, True), 0, "ICMP redirects although they are off")
        live = lab.wait_live(**MATCH)
        check_equal((live["orig"]["iif"], live["orig"]["oif"], live["reply"]["iif"], live["reply"]["oif"]),
                    ("ra",) * 4, "devices of the flow")
        check_equal(live["orig"]["rewrite"]["src"], RA_ADDR, "source after NAT")
        check(live["orig"]["packets"] > 90 and live["reply"]["packets"] > 90, "the hairpin flow carried nothing")
    # Without SNAT the answers do not come back through R: as without ftctl.
    results = []
    for attached in (False, True):
        with hairpin_lab(snat=False) as lab:
            if attached:
                lab.attach("ra", "rb")
            peer = UdpPeer(lab["L2"], "192.0.2.3", 8080)
            flow = UdpFlow(lab["L"], ("0.0.0.0", 40000), (RB_ADDR, 8080))
            flow.send(150, 50)
            time.sleep(0.3)
            results.append((peer.received(1), flow.answered()))
    check_equal(results[1], results[0], "hairpin without SNAT: (at L2, answered), attached and detached")
