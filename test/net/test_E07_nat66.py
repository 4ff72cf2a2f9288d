# SPDX-License-Identifier: GPL-2.0-only
"""E07: NAT66: masquerade towards W, and a virtual address that is W's, are fast and exact both ways."""
import frames
from ipv6 import WATCH, bulk_is_fast, files
from lab import check_equal, wait_until
from labs import L6, RB6, W6, lab_6
from raw import Sniffer
from traffic import UdpFlow, UdpPeer, check_fast

VIRTUAL = "2001:db8:3::10"


def run():
    with lab_6(watch=WATCH) as lab:
        lab["W"].ip("route del 2001:db8:1::/64")  # nothing comes back but by NAT
        lab["R"].nft(f"""table ip6 nat {{
            chain pre {{ type nat hook prerouting priority dstnat;
                ip6 daddr {VIRTUAL} udp dport 9 dnat to [{W6}]:9
                ip6 daddr {VIRTUAL} tcp dport 8000-8200 dnat to {W6}; }}
            chain post {{ type nat hook postrouting priority srcnat; oifname "rb" masquerade; }}
        }}""")
        lab.attach("ra", "rb")
        UdpPeer(lab["W"], W6, 9)
        for port, target in (40000, W6), (40001, VIRTUAL):
            flow = UdpFlow(lab["L"], ("::", port), (target, 9)).start(50)
            live = lab.wait_live(proto="udp", sport=port, dport=9)
            rewrite = live["orig"]["rewrite"]
            check_equal((rewrite["src"], rewrite["sport"], rewrite["dst"], rewrite["dport"]), (RB6, port, W6, 9),
                        f"what becomes of packets to {target}")
            check_equal((live["reply"]["match"]["dst"], live["reply"]["rewrite"]["src"],
                         live["reply"]["rewrite"]["dst"]), (RB6, target, L6), "and of the answers")
            check_fast(lab, flow)
        for target, port in (W6, 8000), (VIRTUAL, 8010):
            files(lab, target, port)
        bulk_is_fast(lab, VIRTUAL, 8100).stop()
        # An error about a translated packet goes to who has sent it.
        errors = Sniffer(lab["L"], "la", lambda frame: frame[12:14] == b"\x86\xdd" and frame[20] == 58
                         and frame[54] == 1)
        UdpFlow(lab["L"], ("::", 40002), (W6, 99)).send_one()
        wait_until(lambda: errors.seen, 3, "port unreachable for L")
        check_equal(errors.frames()[0][62 + 8:62 + 40], frames.addr(L6) + frames.addr(W6), "addresses quoted")
