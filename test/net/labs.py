# SPDX-License-Identifier: GPL-2.0-only
"""The standard laboratories.

LAB-A    L 192.0.2.2 -- ra R rb -- 198.51.100.2 W; R masquerades to rb unless told otherwise.
LAB-2W   LAB-A without NAT and with a second uplink rb2 -- 203.0.113.2 W2; W and W2 both own 198.18.0.10.
LAB-T    LAB-A whose far side is a second router with a tunnel (declared to ftctl, or the kernel's).
"""
from lab import Lab

L_ADDR, RA_ADDR = "192.0.2.2", "192.0.2.1"
W_ADDR, RB_ADDR = "198.51.100.2", "198.51.100.1"
W2_ADDR, RB2_ADDR = "203.0.113.2", "203.0.113.1"
SERVICE = "198.18.0.10"

UDP_WATCH = {"up": "udp dport 9", "down": "udp sport 9"}


def lab_a(nat=True, watch=None, roles=("L", "R", "W"), lan=True):
    """LAB-A. `watch`: counters in R's forward chain; lan=False leaves L and ra to the caller."""
    lab = Lab(*roles)
    try:
        if lan:
            lab.veth("L", "la", "R", "ra")
            lab["L"].ip(f"addr add {L_ADDR}/24 dev la\nroute add default via {RA_ADDR}")
            lab["R"].ip(f"addr add {RA_ADDR}/24 dev ra")
        lab.veth("W", "wa", "R", "rb")
        lab["R"].ip(f"addr add {RB_ADDR}/24 dev rb")
        lab["W"].ip(f"addr add {W_ADDR}/24 dev wa")
        lab["R"].sysctl(net_ipv4_ip_forward=1)
        if nat:
            masquerade(lab)
        else:
            lab["W"].ip(f"route add 192.0.2.0/24 via {RB_ADDR}")
        lab.watch(**(watch or UDP_WATCH))
    except BaseException:
        lab.close()
        raise
    return lab


def masquerade(lab, dev="rb"):
    lab["R"].nft(f"""table ip nat {{
        chain post {{ type nat hook postrouting priority srcnat; oifname "{dev}" masquerade; }}
    }}""")


def lab_2w(nat=False, watch=None, roles=("L", "R", "W", "W2")):
    """LAB-2W."""
    lab = lab_a(nat, watch, roles)
    try:
        lab.veth("W2", "wa", "R", "rb2")
        lab["R"].ip(f"""addr add {RB2_ADDR}/24 dev rb2
            route add default via {W_ADDR} metric 100
            route add default via {W2_ADDR} metric 200""")
        lab["W2"].ip(f"addr add {W2_ADDR}/24 dev wa")
        if not nat:
            lab["W2"].ip(f"route add 192.0.2.0/24 via {RB2_ADDR}")
        for role in ("W", "W2"):
            lab[role].ip(f"addr add {SERVICE}/32 dev lo")
    except BaseException:
        lab.close()
        raise
    return lab
