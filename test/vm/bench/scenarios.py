# SPDX-License-Identifier: GPL-2.0-only
"""What test/vm/bench.sh measures: one line of SCENARIOS each.

client eth0 -- lan0 router wan0 == wan0 remote lan0 -- eth0 server; the router is what is measured, in the direction
from client to server (`up`) or back. A tunnel, a VLAN, or a PPPoE session runs between router and remote.

A new encapsulation is an entry of TUNNELS (test/bench/shapes.py) and its lines in SCENARIOS.
"""
from shapes import V6, Scenario

# The IP packet that client and server exchange; headers of tunnels come on top.
L3_LENGTH = 100

SCENARIOS = {each.name: each for each in (
    Scenario("plain", "IPv4 forwarded as it is"),
    Scenario("nat", "masqueraded: source address and port rewritten", masquerade=True),
    Scenario("nat-reply", "the answers to it: destination rewritten", up=False, masquerade=True),
    Scenario("ipip-encap", "into an IPIP tunnel of the kernel's", tunnel="ipip"),
    Scenario("ipip-decap", "out of it", up=False, tunnel="ipip"),
    Scenario("plain6", "IPv6 forwarded as it is", ip=V6),
    Scenario("ip6ip6-encap", "IPv6 into a tunnel over IPv6", ip=V6, tunnel="ip6ip6"),
    Scenario("ip6ip6-decap", "out of it", up=False, ip=V6, tunnel="ip6ip6"),
    Scenario("4in6-encap", "IPv4 into a tunnel over IPv6", tunnel="4in6", rival=False),
    Scenario("4in6-decap", "out of it", up=False, tunnel="4in6", rival=False),
    Scenario("6in4-encap", "IPv6 into a tunnel over IPv4", ip=V6, tunnel="6in4", rival=False),
    Scenario("6in4-decap", "out of it", up=False, ip=V6, tunnel="6in4", rival=False),
    Scenario("vlan-push", "IPv4 into a VLAN", vlan=True),
    Scenario("vlan-pop", "out of it", up=False, vlan=True),
    Scenario("pppoe-push", "IPv4 into a PPPoE session", pppoe=True),
    Scenario("pppoe-pop", "out of it", up=False, pppoe=True),
)}
