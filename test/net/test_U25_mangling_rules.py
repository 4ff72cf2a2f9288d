# SPDX-License-Identifier: GPL-2.0-only
"""U25: DSCP and TTL rules apply to each packet; a conntrack mark keeps a connection on the slow path."""
from lab import check, check_equal, wait_until
from labs import W_ADDR, lab_a
from traffic import UdpFlow, UdpPeer, check_fast

COUNT = 1000
CS5 = 40 << 2


def run():
    watch = {"up": "udp sport 40002", "down": "udp dport 40002", "up_a": "udp sport 40001", "down_a": "udp dport 40001"}
    with lab_a(watch=watch) as lab:
        router = lab["R"]
        router.nft("""table ip m {
            chain f { type filter hook forward priority -1; udp sport 40001 ct mark set ct mark or 0x80000000; }
            chain p { type filter hook postrouting priority mangle;
                udp sport { 40001, 40003 } ip dscp set cs5 ip ttl set 65
            } }""")
        lab.attach("ra", "rb")
        peer = UdpPeer(lab["W"], W_ADDR, 9)
        flows = {name: UdpFlow(lab["L"], ("0.0.0.0", port), (W_ADDR, 9), port).start(200)
                 for name, port in (("A", 40001), ("B", 40002), ("C", 40003))}
        lab.wait_live(proto="udp", sport=40002)
        lab.wait_refused("mark", proto="udp", sport=40001)
        wait_until(lambda: flows["A"].sent >= COUNT and flows["C"].sent >= COUNT, 10, f"{COUNT} datagrams each")
        for flow in flows.values():
            flow.stop()
            check_equal(flow.lost(), 0, "lost")

        for name, port in (("A", 40001), ("C", 40003)):
            headers = {key[1:]: times for key, times in peer.headers.items() if key[0] == port}
            check_equal(headers, {(65, CS5): flows[name].sent}, f"flow {name}: (ttl, tos) of its datagrams at W")
        slow = lab.counts()
        check_equal((slow["up_a"][0], slow["down_a"][0]), (flows["A"].sent, flows["A"].sent),
                    "flow A: packets seen by the forward chain")
        check(not lab.live(proto="udp", sport=40001), "flow A is live in spite of its mark")
        reason = lab.refused(proto="udp", sport=40003) or ""
        check(reason.startswith("mangled"), f"flow C, changed by a rule without a mark: reason {reason!r}")
        headers = {key[1:] for key in peer.headers if key[0] == 40002}
        check_equal(headers, {(63, 0)}, "flow B: (ttl, tos) at W")

        # Whole-byte TOS is left alone on the fast path.
        flows["B"].socket.setsockopt(0, 1, 0xb9)
        check_fast(lab, flows["B"])
        check(((63, 0xb9)) in {key[1:] for key in peer.headers if key[0] == 40002}, "TOS 0xb9 of B did not arrive")

        # The mark comes in the middle of a flow's life.
        flows["B"].start(100)
        router.run("nft", "insert rule ip m f udp sport 40002 ct mark set 0x80000000")
        wait_until(lambda: (lab.ct("udp", sport=40002) or {}).get("mark"), 1.5, "the rule marks the connection")
        lab.wait_refused("mark", 1.0, proto="udp", sport=40002)
        check(not lab.live(proto="udp", sport=40002), "flow B is live in spite of its mark")
        flows["B"].stop()
        flows["B"].lost()
        before = lab.counts()
        first = flows["B"].send(100)
        check_equal(flows["B"].lost(first), 0, "lost")
        check_equal(lab.count("up") - before["up"][0], 100, "flow B: packets seen by the forward chain")
