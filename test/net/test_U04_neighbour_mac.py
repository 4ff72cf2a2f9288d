# SPDX-License-Identifier: GPL-2.0-only
"""U04: a neighbour that changes its MAC without telling is found again as soon as by the kernel alone."""
import json
import time

from lab import check, check_equal, hold, wait_until
from labs import L_ADDR, RA_ADDR, lab_a
from traffic import UdpFlow, UdpPeer

OLD, NEW = "02:00:00:00:00:01", "02:00:00:00:00:02"


def neighbour_lab():
    """LAB-A with a bridge B between ra and two machines L and L' of the same address."""
    lab = lab_a(nat=False, watch={"up": "udp sport 9", "down": "udp dport 9"}, roles=("L", "L2", "B", "R", "W"),
                lan=False)
    lab["B"].ip("link add br0 type bridge\nlink set br0 up")
    for role, port, mac in (("L", "p1", OLD), ("L2", "p2", NEW)):
        lab.veth(role, "la", "B", port, f"address {mac}")
        lab["B"].ip(f"link set {port} master br0")
        if role == "L2":
            lab[role].ip("link set la down")
        lab[role].ip(f"addr add {L_ADDR}/24 dev la")
    lab.veth("R", "ra", "B", "p0")
    lab["B"].ip("link set p0 master br0")
    lab["R"].ip(f"addr add {RA_ADDR}/24 dev ra")
    lab["L"].ip(f"route add default via {RA_ADDR}")
    # The kernel's own pace, shortened: 5 s and 3 probes would only make the test longer.
    lab["R"].sysctl_set("net/ipv4/neigh/ra/delay_first_probe_time", 1)
    return lab


def state(lab, dev, addr):
    rows = json.loads(lab["R"].run("ip", "-j", "neigh", "show", "to", addr, "dev", dev).stdout or "[]")
    return rows[0].get("state", ["NONE"])[0] if rows else "GONE"


def takeover(attached):
    """Seconds until the flow W -> L reaches L', after L fell silent."""
    with neighbour_lab() as lab:
        if attached:
            lab.attach("ra", "rb")
        UdpPeer(lab["L"], L_ADDR, 9)
        flow = UdpFlow(lab["W"], ("0.0.0.0", 40000), (L_ADDR, 9)).start(100)
        if attached:
            check_equal(lab.wait_live(proto="udp", sport=40000)["orig"]["dst_mac"], OLD, "destination MAC")
        else:
            wait_until(lambda: flow.answered() > 250, 5, "datagrams flow")
        lab["L"].ip("link set la down")
        lab["L2"].ip(f"link set la up\nroute add default via {RA_ADDR}")
        heir = UdpPeer(lab["L2"], L_ADDR, 9)
        start = time.monotonic()
        lab["R"].ip(f"neigh replace {L_ADDR} lladdr {OLD} dev ra nud stale")
        wait_until(lambda: heir.got, 15, "datagrams reach the new machine")
        took = time.monotonic() - start
        if attached:
            wait_until(lambda: (lab.live(proto="udp", sport=40000) or {"orig": {}})["orig"].get("dst_mac") == NEW,
                       5, "the flow is live with the new MAC")
            # While L and L' share an address and only the fast flow uses it, it must stay usable.
            lab["R"].sysctl_set("net/ipv4/neigh/ra/base_reachable_time_ms", 1000)
            lab["R"].sysctl_set("net/ipv4/neigh/ra/gc_stale_time", 1)
            flow.stop()
            flow.lost()
            first = flow.sent
            flow.start(100)
            hold(lambda: state(lab, "ra", L_ADDR) not in ("FAILED", "GONE"), 8, "the neighbour stays usable", 0.2)
            flow.stop()
            check_equal(flow.lost(first), 0, "datagrams lost while only the fast path used the neighbour")
        return took


def run():
    plain = takeover(False)
    fast = takeover(True)
    print(f"new machine reached after {plain:.1f} s by the kernel alone, {fast:.1f} s with ftctl")
    check(fast <= plain + 1.0, f"{fast:.1f} s with ftctl, {plain:.1f} s without")
