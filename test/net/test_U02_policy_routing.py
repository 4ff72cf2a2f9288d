# SPDX-License-Identifier: GPL-2.0-only
"""U02: policy routing by mark, source and TOS is never bypassed."""
import collections

from lab import check, check_equal, wait_until
from labs import SERVICE, lab_2w
from traffic import UdpFlow, UdpPeer


def unknown_marks():
    with lab_2w() as lab:
        router = lab["R"]
        for host in (3, 4, 5):
            lab["L"].ip(f"addr add 192.0.2.{host}/24 dev la")
        router.ip("route add default via 203.0.113.2 table 200\nrule add from 192.0.2.4 lookup 200")
        lab.attach("ra", "rb", "rb2")
        peers = {"rb": UdpPeer(lab["W"], SERVICE, 9), "rb2": UdpPeer(lab["W2"], SERVICE, 9)}
        flows = {host: UdpFlow(lab["L"], (f"192.0.2.{host}", 40000), (SERVICE, 9), host) for host in (2, 3, 4, 5)}

        def egress(host):
            return {dev: peer.received(host) for dev, peer in peers.items() if peer.received(host)}

        def match(host):
            return {"proto": "udp", "src": f"192.0.2.{host}", "sport": 40000}

        # A rule on the source alone can be known: both flows are carried, each by its own uplink.
        for host, dev in ((2, "rb"), (4, "rb2")):
            flows[host].start(50)
            check_equal(lab.wait_live(**match(host))["orig"]["oif"], dev, f"egress of host .{host}")
            flows[host].stop()
            flows[host].lost()
            check_equal(list(egress(host)), [dev], f"host .{host}: uplinks seen")

        # Marks set by nft, per packet and from the connection; a rule on TOS.
        router.nft("""table ip m { chain pre { type filter hook prerouting priority mangle;
            ip saddr 192.0.2.3 meta mark set 2
            ct state new ip saddr 192.0.2.5 ct mark set 2
            ip saddr 192.0.2.5 meta mark set ct mark
        } }""")
        router.ip("rule add fwmark 2 lookup 200\nrule add from 192.0.2.2 tos 0x10 lookup 200")
        for host in (3, 5):
            flows[host].start(100)
        for host in (3, 5):
            lab.wait_refused("policy-routed", **match(host))
        wait_until(lambda: flows[3].sent > 500 and flows[5].sent > 500, 8, "500 datagrams by marked hosts")
        for host in (3, 5):
            flows[host].stop()
            check_equal(flows[host].lost(), 0, f"host .{host}: lost")
            check_equal(egress(host), {"rb2": flows[host].sent}, f"host .{host}: datagrams by uplink")

        # The flow that was fast before the TOS rule came: each packet goes where the kernel sends it.
        before = collections.Counter(egress(2))
        first = flows[2].send(100)
        check_equal(flows[2].lost(first), 0, "host .2 with TOS 0: lost")
        check_equal(egress(2)["rb"] - before["rb"], 100, "host .2 with TOS 0: datagrams by rb")
        flows[2].socket.setsockopt(0, 1, 0x10)
        first = flows[2].send(100)
        check_equal(flows[2].lost(first), 0, "host .2 with TOS 0x10: lost")
        check_equal(egress(2).get("rb2", 0), 100, "host .2 with TOS 0x10: datagrams by rb2")
        check(lab.live(**match(2)) is None, "host .2 has a live flow although a TOS rule names it")

        first = flows[4].send(200)
        check_equal(flows[4].lost(first), 0, "host .4: lost")
        check_equal(list(egress(4)), ["rb2"], "host .4: uplinks seen")


def marks_of_connections():
    """The operator says that packets carry their connection's mark: rules on marks are followed."""
    with lab_2w() as lab:
        router = lab["R"]
        router.ip("route add default via 203.0.113.2 table 200\nroute add 192.0.2.0/24 dev ra table 200\n"
                  "rule add fwmark 2 lookup 200")
        mark = "ip saddr 192.0.2.2 ct mark set 2"

        def ruleset(first):
            router.nft(f"""table ip m {{ chain pre {{ type filter hook prerouting priority mangle; }} }}
                flush chain ip m pre
                table ip m {{ chain pre {{ {first}
                meta mark set ct mark
                }} }}""")

        ruleset("")
        lab.start({"packet_mark": "conntrack"})
        lab.attach("ra", "rb", "rb2")
        peers = {"rb": UdpPeer(lab["W"], SERVICE, 9), "rb2": UdpPeer(lab["W2"], SERVICE, 9)}
        flow = UdpFlow(lab["L"], ("192.0.2.2", 40000), (SERVICE, 9)).start(100)

        def carried_by(dev):
            found = lab.live(proto="udp", sport=40000)
            return found and found["orig"]["oif"] == dev

        wait_until(lambda: carried_by("rb"), 12, "a flow without a mark by rb")
        ruleset(mark)
        wait_until(lambda: carried_by("rb2"), 12, "the flow by rb2 once its connection is marked")
        flow.stop()
        flow.lost()
        before = {dev: peer.received(1) for dev, peer in peers.items()}
        first = flow.send(100)
        check_equal(flow.lost(first), 0, "marked: lost")
        check_equal({dev: peer.received(1) - before[dev] for dev, peer in peers.items()}, {"rb": 0, "rb2": 100},
                    "marked: datagrams by uplink")


def run():
    unknown_marks()
    marks_of_connections()
