# SPDX-License-Identifier: GPL-2.0-only
"""U09: with several next hops each flow keeps the one that the kernel chose, and moves when it goes."""
import time

from lab import CONVERGE_S, check, check_equal, wait_until
from labs import SERVICE, lab_2w
from traffic import UdpFlow, UdpPeer

FLOWS = 40


def run():
    with lab_2w() as lab:
        router = lab["R"]
        router.sysctl(net_ipv4_fib_multipath_hash_policy=1)
        router.ip("route del default metric 200\nroute replace default metric 100 "
                  "nexthop via 198.51.100.2 dev rb nexthop via 203.0.113.2 dev rb2")
        lab.attach("ra", "rb", "rb2")
        peers = {"rb": UdpPeer(lab["W"], SERVICE, 9), "rb2": UdpPeer(lab["W2"], SERVICE, 9)}
        flows = [UdpFlow(lab["L"], ("0.0.0.0", 41000 + n), (SERVICE, 9), n) for n in range(FLOWS)]

        def egress(flow, first=0):
            return [dev for dev, peer in peers.items()
                    if any(key[0] == flow.flow and key[1] >= first for key in list(peer.got))]

        def everybody(rounds, pps):
            for _round in range(rounds):
                start = time.monotonic()
                for flow in flows:
                    flow.send_one()
                time.sleep(max(0, start + 1 / pps - time.monotonic()))

        everybody(1, 10)
        time.sleep(0.3)
        chosen = {flow.flow: egress(flow) for flow in flows}
        check(all(len(devs) == 1 for devs in chosen.values()), f"first packets: {chosen}")
        share = sum(devs == ["rb2"] for devs in chosen.values())
        check(FLOWS * 0.2 <= share <= FLOWS * 0.8, f"{share} of {FLOWS} flows by rb2")
        everybody(80, 15)
        for flow in flows:
            check_equal(flow.lost(), 0, f"flow {flow.flow}: lost")
            check_equal(egress(flow), chosen[flow.flow], f"flow {flow.flow}: uplinks used")
        state = [(entry["state"], entry.get("reason")) for entry in lab.flows() + lab.flows("state", "refused")]
        print("flows:", {kind: state.count(kind) for kind in set(state)})

        # One member goes: the others move, those that were on rb2 notice nothing.
        marks = {flow.flow: flow.sent for flow in flows}
        router.ip("route replace default metric 100 via 203.0.113.2")
        everybody(int(CONVERGE_S * 15) + 1, 15)
        late = {flow.flow: flow.sent for flow in flows}
        everybody(15, 15)
        for flow in flows:
            if chosen[flow.flow] == ["rb2"]:
                check_equal(flow.lost(marks[flow.flow]), 0, f"flow {flow.flow}, on rb2 all the time: lost")
            check_equal(egress(flow, late[flow.flow]), ["rb2"], f"flow {flow.flow}: uplinks a second after the change")

        # A member whose neighbour does not answer must not swallow what the kernel would deliver.
        router.sysctl_set("net/ipv4/fib_multipath_use_neigh", 1)
        lab["W"].nft("table arp a { chain i { type filter hook input priority 0; drop; } }")
        router.ip("neigh flush dev rb")
        router.ip("route replace default metric 100 "
                  "nexthop via 198.51.100.2 dev rb nexthop via 203.0.113.2 dev rb2")

        def all_through():
            marks.update({flow.flow: flow.sent for flow in flows})
            everybody(3, 10)
            return sum(flow.lost(marks[flow.flow], 0.02) for flow in flows) == 0

        wait_until(all_through, 15, "all flows delivered by the uplink that answers")
