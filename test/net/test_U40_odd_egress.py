# SPDX-License-Identifier: GPL-2.0-only
"""U40, U41: egress by vxlan, by a TUN device, by a device that goes down: fast, or slow with a reason, never lost."""
import fcntl
import os
import struct
import threading

import frames
from lab import check, check_equal, wait_until
from labs import L_ADDR, W_ADDR, lab_a
from peers import answer
from raw import Sniffer, is_icmp
from traffic import UdpFlow, UdpPeer, check_fast, check_slow, warm_up

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
BEHIND_VXLAN, BEHIND_TUN = "10.8.0.2", "10.7.0.2"


def run():
    with lab_a(nat=False) as lab:
        vxlan(lab)
        tun(lab)
        down(lab)


def vxlan(lab):
    """An Ethernet device that puts UDP around: attached it is fast at TC, else the connection says so."""
    for role, far in ("R", W_ADDR), ("W", "198.51.100.1"):
        lab[role].ip(f"link add vx0 type vxlan id 5 dstport 4789 remote {far}\nlink set vx0 up mtu 1450")
    lab["R"].ip("addr add 10.8.0.1/24 dev vx0")
    lab["W"].ip(f"addr add {BEHIND_VXLAN}/24 dev vx0\nroute replace 192.0.2.0/24 via 10.8.0.1 dev vx0")
    UdpPeer(lab["W"], BEHIND_VXLAN, 9)
    lab.attach("ra", "rb")
    flow = UdpFlow(lab["L"], ("0.0.0.0", 40000), (BEHIND_VXLAN, 9)).start(50)
    lab.wait_refused("device", proto="udp", sport=40000)
    check_slow(lab, flow)
    lab.attach("vx0")
    check_equal(lab.stats("vx0")["hook"], "tc", "hook of vx0")
    flow.start(50)
    live = lab.wait_live(proto="udp", sport=40000)
    check_equal((live["orig"]["oif"], live["orig"]["mtu"]), ("vx0", 1450), "egress and MTU")
    check_fast(lab, flow)
    lab.detach("vx0")
    lab["W"].ip("route replace 192.0.2.0/24 via 198.51.100.1")


class Tun:
    """A host behind a TUN device of R that answers datagrams."""

    def __init__(self, lab, dev):
        self.got = []
        with lab["R"].entered():
            self.file = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(self.file, TUNSETIFF, struct.pack("16sH22x", dev.encode(), IFF_TUN | IFF_NO_PI))
        lab.resources.callback(os.close, self.file)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                data = os.read(self.file, 65535)
            except OSError:
                return
            self.got.append(data)
            back = answer(data) if data[0] >> 4 == 4 else None
            if back:
                os.write(self.file, back)


def tun(lab):
    """Packets without Ethernet: the device is refused by name, its connections say so, nothing is mis-read."""
    far = Tun(lab, "tt0")
    lab["R"].ip("addr add 10.7.0.1/24 dev tt0\nlink set tt0 up")
    refused = lab.ftctl_raw("attach", "tt0")
    check_equal(refused.returncode, 2, f"attach tt0: {refused.stdout}")
    check("tt0" in refused.stderr and "Ethernet" in refused.stderr and "hint: " in refused.stderr, refused.stderr)
    flow = UdpFlow(lab["L"], ("0.0.0.0", 40001), (BEHIND_TUN, 9))
    warm_up(flow)
    lab.wait_refused("device", proto="udp", sport=40001)
    check_slow(lab, flow)
    check(all(data[0] == 0x45 for data in far.got), "an Ethernet header came out of the TUN device")
    # A packet from the TUN device that begins like an Ethernet frame with IPv4 in it is no IPv4 packet.
    at_l = Sniffer(lab["L"], "la", lambda frame: b"from tun" in frame)
    inner = frames.ipv4(BEHIND_TUN, L_ADDR, 17, frames.udp(BEHIND_TUN, L_ADDR, 9, 40001, b"from tun"))
    os.write(far.file, frames.ethernet(b"\x45\0\0\x48\0\0", bytes(6), frames.ETH_IP, inner))
    os.write(far.file, inner)
    wait_until(lambda: at_l.seen, 2, "the right packet at L")
    frame = at_l.settle()[0]
    check_equal((len(at_l.seen), frame[:14].hex()),
                (1, (frames.mac(lab["L"].mac("la")) + frames.mac(lab["R"].mac("ra"))).hex() + "0800"), "frames at L")


def down(lab):
    """A device that is down takes nothing, and as without ftctl the sender is told; up again it is fast again."""
    UdpPeer(lab["W"], W_ADDR, 9)
    flow = UdpFlow(lab["L"], ("0.0.0.0", 40002), (W_ADDR, 9)).start(50)
    lab.wait_live(proto="udp", sport=40002)
    check_fast(lab, flow)
    told = Sniffer(lab["L"], "la", is_icmp(3, 0))
    lab["R"].ip("link set rb down")
    flow.start(50)
    wait_until(lambda: told.seen, 3, "the sender is told that the network is unreachable")
    lab["R"].ip("link set rb up")
    lab.wait_live(proto="udp", sport=40002)
    check_fast(lab, flow)
