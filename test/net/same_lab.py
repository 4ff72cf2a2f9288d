# SPDX-License-Identifier: GPL-2.0-only
"""L - R - W for the differential test: a router between two raw-frame ends.

The ends have no IP stack of their own: their addresses are static neighbours on R, and all
frames are written and read with packet sockets.
"""
import errno
import json
import os
import select
import socket
import struct

import lab
from frames import mac

MACS = {"la": mac("02:00:00:00:0a:02"), "ra": mac("02:00:00:00:0a:01"),
        "rb": mac("02:00:00:00:0b:01"), "wa": mac("02:00:00:00:0b:02")}
LINK_MTU = 2000
# Timers and limits that would make two equal routers answer differently; and a RST is judged by
# the window, of which conntrack sees less once a flow is fast.
SYSCTLS = """
net/ipv4/icmp_ratelimit=0 net/ipv4/icmp_msgs_per_sec=1000000 net/ipv4/icmp_msgs_burst=1000000
net/netfilter/nf_conntrack_tcp_ignore_invalid_rst=1
net/netfilter/nf_conntrack_udp_timeout=120
""".split()

_PACKET_AUXDATA, _PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 8, 6, 23
_SOL_PACKET, _SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 263, 33, 32
_ETH_P_ALL = 3
_TP_STATUS_CSUMNOTREADY, _TP_STATUS_VLAN_VALID = 1 << 3, 1 << 4


class HarnessError(Exception):
    """The harness itself could not work; says nothing about the product."""


class Router(lab.Lab):
    """One router and its two ends. daemon: start ftctld; attach: and attach it, at this hook."""

    def __init__(self, tag, variant, hook, *, daemon, attach):
        self.senders, self.receivers = {}, {}
        six = any(ip.version == 6 for ip in variant.families)
        super().__init__("L", "R", "W", tag=tag, ipv6=("R",) if six else False)
        self.tag, self.variant, self.hook, self.attached = tag, variant, hook, attach
        self.wire = {}  # side -> how its frames look on the link, when not as Ethernet alone (test/vm/wires.py)
        self.flip = False  # a fault: one bit of some frames changes before it is compared
        try:
            (variant.links or Router.wires)(self)
            self._router()
            if variant.device is not None:
                self._tunnel(variant.device)
            if variant.extra:
                self["R"].ip(variant.extra)
            for side, dev, hear in (("L", "la", "la"), ("W", "wa", variant.hear)):
                self.senders[side] = self._socket(side, dev, _ETH_P_ALL if hear == dev else 0)
                self.receivers[side] = self.senders[side] if hear == dev else self._socket(side, hear, _ETH_P_ALL)
            if daemon:
                self._daemon()
            self._wait_wired()
        except BaseException:
            self.close()
            raise

    def wires(self):
        """L and W are R's neighbours."""
        for end, peer, side in (("la", "ra", "L"), ("wa", "rb", "W")):
            self.veth(side, end, "R", peer, "mtu %d address %s" % (LINK_MTU, MACS[end].hex(":")),
                      "address " + MACS[peer].hex(":"))
            self.prepare_end(side, end)

    def prepare_end(self, side, end):
        self[side].sysctl_set("net/ipv4/ip_forward", 0)
        if self.hook == "xdp":  # a veth delivers redirected frames only to a peer with NAPI
            self[side].run("ethtool", "-K", end, "gro", "on", "tx", "off")

    def _router(self):
        v = self.variant
        lines = ["link set ra mtu %d" % v.lan_mtu, "link set %s mtu %d" % (v.outside, v.wan_mtu)]
        settings = SYSCTLS + ["net/ipv4/conf/%s/send_redirects=0" % v.outside]
        for ip in v.families:
            hosts = [(net, dev, end, k) for net, dev, end in ((ip.lan, "ra", "la"), (ip.wan, v.outside, "wa"))
                     for k in range(2, 10)]
            if ip.version == 6:
                hosts += [(ip.link_local, dev, end, 7) for dev, end in (("ra", "la"), (v.outside, "wa"))]
            lines += ip.configure(v.outside)
            lines += ["neigh replace %s%d lladdr %s nud permanent dev %s" % (net, k, MACS[end].hex(":"), dev)
                      for net, dev, end, k in hosts if not dev.startswith("ppp")]
            settings += ip.sysctls.split()
        self["R"].ip("\n".join(lines))
        if v.labels:
            settings.append("net/ipv6/auto_flowlabels=%d" % v.labels)
        for setting in settings:
            key, value = setting.split("=")
            # On older kernels the limit of all ICMP messages is the machine's: whoever owns the machine lifts it.
            if "icmp_msgs" not in key or self._has(key):
                self["R"].sysctl_set(key, value)
        # With this setting the slow path alone calls a wrong L4 checksum INVALID: documented.
        self["R"].sysctl_set("net/netfilter/nf_conntrack_checksum", int(v.l4_checks))
        self["R"].nft(v.nft_rules())
        # The fast run has no window checks; that the daemon sees to this by itself is tested as well.
        self["R"].sysctl_set("net/netfilter/nf_conntrack_tcp_be_liberal", int(not self.attached))

    def _wait_wired(self):
        """A new veth drops what is sent before its carrier has come round. Asked for its MAC, R answers and forwards
        nothing: what is compared and counted later has not begun."""
        v = self.variant
        for side, end, peer, ip in (("L", "la", "ra", v.ip), ("W", "wa", "rb", v.between)):
            if side == "W" and v.outside.startswith("ppp"):
                continue  # nobody asks for MACs there, and the session that is up has come by this link
            who, router = (ip.l_host, ip.r_lan) if side == "L" else (ip.w_host, ip.r_wan)
            question, = ip.solicit(MACS[end], who, router)
            lab.wait_until(lambda: self._answered(side, question, MACS[peer]), 30, "R answers " + side)

    def _answered(self, side, question, answerer):
        self.send(side, question)
        return any(there == side and frame[6:12] == answerer for there, frame, _ in self.receive(0.2))

    def _has(self, key):
        with self["R"].entered():
            return os.path.exists("/proc/sys/" + key)

    def _tunnel(self, words):
        """The kernel's own device, or what the daemon has made."""
        ip = self.variant.ip
        if words:
            self["R"].ip("link add tun0 " + words)
        self["R"].ip("link set tun0 addrgenmode none\nlink set tun0 up\n" + ip.through)
        # An IPv6 address is there only once a worker of the kernel has been at it.
        lab.wait_until(lambda: ip.tun_r in self["R"].ip("-%d route show table local" % ip.version), 20,
                       "tun0 has its address")

    def _daemon(self):
        self.start()
        if self.variant.needs_daemon:
            outer = self.variant.outer
            self.ftctl("tunnel", "add", "tun0", "mode", self.variant.mode, "local", outer.r_wan, "remote", outer.w_host,
                       *self.variant.words)
            self._tunnel("")
        if self.attached:
            self._attach()

    def _attach(self):
        done = self.ask("attach", devices=self.variant.attach, mode=self.hook, force=self.hook == "xdp")
        want = self.variant.unattachable
        if done["ok"] == bool(want) or want not in json.dumps(done):
            raise HarnessError("attach %s: %r" % (" ".join(self.variant.attach), done))

    def _data(self, command, **arguments):
        answer = self.ask(command, **arguments)
        if not answer["ok"]:
            raise HarnessError("%s: %r" % (command, answer))
        return answer["data"]

    def flows(self, *words):
        return self._data("flows", filter=dict(zip(words[::2], words[1::2])))

    def stats(self, dev=None):
        assert dev is None
        return self._data("stats")

    def forwarded(self):
        """Packets that R's forward chain has seen."""
        text = self["R"].run("nft", "-j", "list", "counters", "table", "inet", "watch").stdout
        return next(item["counter"]["packets"] for item in json.loads(text)["nftables"] if "counter" in item)

    def close(self):
        for sock in (*self.senders.values(), *self.receivers.values()):
            sock.close()
        super().close()

    # ------------------------------------------------------------- packet sockets

    def _socket(self, side, dev, protocol):
        sock = self[side].socket(socket.AF_PACKET, socket.SOCK_RAW)
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 4 << 20)
        sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        sock.bind((dev, protocol))
        sock.setblocking(False)
        return sock

    def send(self, side, frame):
        if side in self.wire:
            frame = self.wire[side].seal(frame)
        try:
            self.senders[side].send(frame)
        except OSError as error:
            if error.errno in (errno.ENOBUFS, errno.EMSGSIZE):
                return  # more than the link takes (R's MTU and 4 bytes): not sent at either router
            raise HarnessError("sending %d bytes from %s: %s" % (len(frame), side, error)) from error

    def receive(self, timeout=0.0):
        """All frames that are there, waiting at most timeout seconds for the first one:
        (side, frame, state), state telling whether checksum or VLAN tag are still outside of it."""
        got = []
        ready, _, _ = select.select(self.receivers.values(), [], [], timeout)
        for side, sock in self.receivers.items():
            while sock in ready:
                try:
                    frame, extra, flags, _ = sock.recvmsg(65536, 256)
                except BlockingIOError:
                    break
                except OSError as error:
                    raise HarnessError("receiving at %s: %s" % (side, error)) from error
                if flags & socket.MSG_TRUNC:
                    raise HarnessError("truncated frame at " + side)
                state = _state(extra)
                if side in self.wire:
                    opened = self.wire[side].open(frame, state)
                    if not opened:
                        continue
                    frame, state = opened
                if self.flip and 314 <= len(frame) <= 460:
                    frame = frame[:22] + bytes([frame[22] ^ 1]) + frame[23:]
                got.append((side, frame, state))
        return got

    def drops(self):
        """Frames the packet sockets themselves lost."""
        return sum(struct.unpack("II", sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]
                   for sock in self.receivers.values())


def _state(ancillary):
    text = ""
    for level, kind, data in ancillary:
        if level == _SOL_PACKET and kind == _PACKET_AUXDATA:
            status, _, _, _, _, tci = struct.unpack("=IIIHHH", data[:18])
            if status & _TP_STATUS_CSUMNOTREADY:
                text += "unfinished checksum "
            if status & _TP_STATUS_VLAN_VALID:
                text += "vlan tag %04x " % tci
    return text
