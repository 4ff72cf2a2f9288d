# SPDX-License-Identifier: GPL-2.0-only
"""U11: two routers with virtual MACs and injected conntrack entries; connections move with the address."""
import socket
import time

import frames
from lab import Lab, check, check_equal, wait_until
from traffic import TcpStream, UdpFlow, UdpPeer

VIP_IN, VIP_OUT, MAC_IN, MAC_OUT = "192.0.2.254", "198.51.100.254", "00:00:5e:00:01:0a", "00:00:5e:00:01:0b"


class Pair:
    """Two labs share the wires: R1 and R2 are routers with a daemon each."""

    def __init__(self, lab):
        self.lab = lab
        lab["B"].ip("link add br0 type bridge\nlink set br0 up\nlink add br1 type bridge\nlink set br1 up")
        for role, dev, port, bridge in (("L", "la", "p0", "br0"), ("R1", "ra", "p1", "br0"), ("R2", "ra", "p2", "br0"),
                                        ("W", "wa", "q0", "br1"), ("R1", "rb", "q1", "br1"), ("R2", "rb", "q2", "br1")):
            lab.veth(role, dev, "B", port)
            lab["B"].ip(f"link set {port} master {bridge}")
        lab["L"].ip(f"addr add 192.0.2.2/24 dev la\nroute add default via {VIP_IN}")
        lab["W"].ip("addr add 198.51.100.2/24 dev wa")
        for number, role in ((1, "R1"), (2, "R2")):
            router = lab[role]
            router.ip(f"addr add 192.0.2.{100 + number}/24 dev ra\naddr add 198.51.100.{100 + number}/24 dev rb")
            router.sysctl(net_ipv4_ip_forward=1)
            router.sysctl_set("net/ipv4/conf/all/arp_ignore", 1)
            # Entries that were injected have no window scale: what every HA guide sets.
            router.sysctl_set("net/netfilter/nf_conntrack_tcp_be_liberal", 1)
            router.nft(f"""table ip nat {{ chain post {{ type nat hook postrouting priority srcnat;
                ip saddr 192.0.2.0/24 ip daddr 198.51.100.2 snat to {VIP_OUT}; }} }}
                table inet cnt {{ chain fw {{ type filter hook forward priority 10; ct state new counter; }} }}""")

    def take_over(self, role):
        router = self.lab[role]
        for dev, upper, vip, mac in (("ra", "va", VIP_IN, MAC_IN), ("rb", "vb", VIP_OUT, MAC_OUT)):
            router.ip(f"link add {upper} link {dev} address {mac} type macvlan mode private\n"
                      f"link set {upper} up\naddr add {vip}/24 dev {upper}")
        # The route of the virtual address wins, so that replies and neighbours use it.
        router.ip(f"route replace 192.0.2.0/24 dev va src {VIP_IN} metric 0\n"
                  f"route replace 198.51.100.0/24 dev vb src {VIP_OUT} metric 0")
        for upper, vip, mac in (("va", VIP_IN, MAC_IN), ("vb", VIP_OUT, MAC_OUT)):
            sender = router.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            sender.bind((upper, 0))
            own = frames.mac(mac)
            sender.send(frames.ethernet(b"\xff" * 6, own, frames.ETH_ARP, frames.arp_request(own, vip, vip)))

    def give_up(self, role):
        self.lab[role].ip("link del va\nlink del vb")

    def inject(self, source, target):
        """What conntrackd does: the entries of one router written into the other."""
        for proto in ("udp", "tcp"):
            self.lab[target].run("conntrack", "-D", "-p", proto, ok=False)
            for entry in self.lab.at(source).conntrack("-p", proto):
                orig, reply = entry["orig"], entry["reply"]
                if orig["src"] != "192.0.2.2":
                    continue
                state = ["--state", "ESTABLISHED"] if proto == "tcp" else []
                self.lab[target].run(
                    "conntrack", "-I", "-p", proto, "-s", orig["src"], "-d", orig["dst"], "--sport", orig["sport"],
                    "--dport", orig["dport"], "--src-nat", f"{reply['dst']}:{reply['dport']}", "-t", "120",
                    "-u", "ASSURED,SEEN_REPLY", *state)


def scenario(attached):
    """The longest gaps of each move, UDP and TCP."""
    with Lab("L", "B", "W", "R1", "R2", router="R1") as lab:
        pair = Pair(lab)
        pair.take_over("R1")
        if attached:
            for role in ("R1", "R2"):
                lab.at(role).start()
            lab.at("R1").attach("va", "vb", "ra", "rb")
        UdpPeer(lab["W"], "198.51.100.2", 9)
        udp = UdpFlow(lab["L"], ("0.0.0.0", 40000), ("198.51.100.2", 9)).start(100)
        tcp = TcpStream(lab["L"], ("198.51.100.2", 8000), lab["W"], rate=100_000, source=("0.0.0.0", 40001), pps=50)

        if attached:
            for proto, port in (("udp", 40000), ("tcp", 40001)):
                lab.at("R1").wait_live(proto=proto, sport=port)
        else:
            wait_until(lambda: udp.answered() > 250, 5, "datagrams flow")
        gaps = []
        for old, new in (("R1", "R2"), ("R2", "R1"), ("R1", "R2")):
            pair.inject(old, new)
            for each in (udp, tcp):
                each.reset_gap()
            pair.give_up(old)
            pair.take_over(new)
            if attached:
                lab.at(new).attach("va", "vb", "ra", "rb")
            time.sleep(1.0)
            if attached:
                for proto, port in (("udp", 40000), ("tcp", 40001)):
                    flow = lab.wait_live(3, proto=proto, sport=port)
                    check_equal(flow["orig"]["rewrite"]["src"], VIP_OUT, "injected NAT")
                    check(lab.ct(proto, sport=port), f"{new} has a flow that its conntrack does not know")
            tcp.check_progress(3)
            time.sleep(0.5)
            gaps.append((udp.longest_gap, tcp.longest_gap))
        udp.stop()
        udp.lost()
        check_equal(udp.duplicates(), 0, "answers delivered twice")
        check(tcp.error is None, f"TCP stream: {tcp.error}")
        tcp.stop()
        for role in lab.daemons:
            lab.at(role).detach()
        return gaps


def run():
    plain, fast = scenario(False), scenario(True)
    print("longest gaps (UDP, TCP) at each move: plain", plain, "with ftctl", fast)
    for (plain_udp, plain_tcp), (fast_udp, fast_tcp) in zip(plain, fast):
        check(fast_udp <= plain_udp + 0.5, f"UDP resumed after {fast_udp:.2f} s, {plain_udp:.2f} s without ftctl")
        check(fast_tcp <= plain_tcp + 0.5, f"TCP resumed after {fast_tcp:.2f} s, {plain_tcp:.2f} s without ftctl")
