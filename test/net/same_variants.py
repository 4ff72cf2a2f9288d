# SPDX-License-Identifier: GPL-2.0-only
"""The NAT and tunnel settings the differential test runs with, and their connections."""
import dataclasses
import typing

from frames import TCP, UDP
from same_ip import LIMIT, V4, V6

MAX_ROUNDS = 400


@dataclasses.dataclass(frozen=True)
class Tuple:
    """Addresses and ports as a packet carries them."""
    src: str
    sport: int
    dst: str
    dport: int


@dataclasses.dataclass(frozen=True)
class Conn:
    """A connection: what its initiator sends (orig) and what its responder sends (reply)."""
    ip: type  # V4 or V6
    index: int
    proto: int
    side: str  # of the initiator: "L" or "W"
    orig: Tuple
    reply: Tuple

    def sender(self, direction):
        return self.side if direction == "o" else "LW".replace(self.side, "")

    def sent(self, direction):
        return self.orig if direction == "o" else self.reply

    def arriving(self, direction):
        """The same packet once R has translated it: the other end's view, turned round."""
        other = self.reply if direction == "o" else self.orig
        return Tuple(other.dst, other.dport, other.src, other.sport)


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    ip: type = V4
    tunnel: bool = False
    outer: type = V4  # its outside
    encaplimit: bool = False  # it has the encapsulation limit option, at both ends
    words: tuple = ()  # of `ftctl tunnel add`, behind mode and addresses
    masquerade: bool = False
    dnat: bool = False
    ports: bool = False  # NAT changes ports, too
    lan_mtu: int = 1600  # of ra; the links themselves carry more
    wan_mtu: int = 1500  # of rb
    l4_checks: bool = False  # nf_conntrack_checksum, as kernels have it by default
    # What follows makes rows for kernels that have the devices (test/vm/rows.py).
    device: typing.Optional[str] = None  # the tunnel is the kernel's: words that follow `ip link add tun0`
    labels: int = 0  # net.ipv6.auto_flowlabels: what R draws is not compared
    slow_in: bool = False  # what comes out of the tunnel is the stack's on this kernel
    links: typing.Optional[typing.Callable] = None  # links(router) makes what is between L, R and W
    outside: str = "rb"  # R's device towards W
    hear: str = "wa"  # where W looks at what arrives: below a VLAN device it sees the tag, too
    attach: tuple = ("ra", "rb")
    extra: str = ""  # more lines for ip(8) in R, at last
    nft: str = ""  # more rules in R
    limit: int = 0  # largest packet towards W, where it is not the MTU of rb that says so
    learnt: int = 0  # W tells R, once the connections are fast, that its path takes so many bytes only
    from_lan: int = 3  # connections of each protocol that L opens
    doubt: tuple = ()  # recipe keys that are out of R's sight here: the packet may be fast
    without: tuple = ()  # recipe keys that are not sent here
    refused: str = ""  # no connection is fast, and `flows state refused` gives this reason
    unattachable: str = ""  # `attach` refuses with this text; nothing is fast

    @property
    def needs_daemon(self):
        """The tunnel is ftctl's own, at the plain router as well."""
        return self.tunnel and self.device is None

    @property
    def fast(self):
        return not (self.refused or self.unattachable)

    def out_mtu(self, side):
        """The largest packet R forwards towards this side without fragmenting."""
        if side == "L":
            return self.lan_mtu
        room = self.outer.head + (8 if self.encaplimit else 0) if self.tunnel else 0
        if not self.gets_options:
            return self.limit or self.wan_mtu - room
        most = (self.learnt or self.wan_mtu) - room - 8
        return min(self.limit, most) if self.limit else most

    @property
    def gets_options(self):
        """A kernel's tunnel without encapsulation limit, in which a packet that brings one gets the option: from then
        on the kernel counts with 8 bytes less for that packet's destination."""
        return bool(self.tunnel and not self.needs_daemon and self.outer.version == 6 and self.ip.version == 6
                    and not self.encaplimit and self.fast)

    @property
    def mode(self):
        """What ftctl calls the tunnel."""
        return {(4, 4): "ipip", (6, 6): "ip6ip6", (4, 6): "4in6", (6, 4): "6in4"}[self.ip.version, self.outer.version]

    @property
    def between(self):
        """The family of packets between R and W."""
        return self.outer if self.tunnel else self.ip

    @property
    def families(self):
        return tuple(dict.fromkeys((self.ip, self.between)))

    def wrap(self, recipe, packet):
        """What W sends into the tunnel, with a recipe's o_ keys."""
        usual = {"o_ext": [LIMIT]} if self.encaplimit else {}
        return self.outer.packet({**usual, **recipe}, "o_", self.outer.w_host, self.outer.r_wan, self.ip.number, packet)

    @property
    def wan_host(self):
        return self.ip.tun_host if self.tunnel else self.ip.w_host

    @property
    def router_outside(self):
        return self.ip.tun_r if self.tunnel else self.ip.r_wan

    def conns(self, round_no):
        """Some connections of each protocol from L, one from W. TCP ports are new in each
        round, since its connections get closed; UDP connections last for the whole run."""
        result = []
        for proto, base, service in ((TCP, 20000 + 8 * round_no, 80), (UDP, 40000, 4000)):
            for k in range(self.from_lan):
                result.append(self._from_lan(len(result), proto, base + k, service + k))
            result.append(self._from_wan(len(result), proto, base + 3, service + 3))
        return result

    def _from_lan(self, index, proto, sport, service):
        inner = Tuple(self.ip.l_host, sport, self.wan_host, service)
        dst, dport = (self.ip.virtual, service + 8000) if self.dnat else (inner.dst, inner.dport)
        back, bport = (self.router_outside, sport) if self.masquerade or self.ports else (inner.src, sport)
        if self.ports:
            bport = sport + 15000
        return Conn(self.ip, index, proto, "L", Tuple(inner.src, sport, dst, dport),
                    Tuple(inner.dst, inner.dport, back, bport))

    def _from_wan(self, index, proto, sport, service):
        dst, dport = (self.router_outside, service + 8000) if self.dnat else (self.ip.l_host, service)
        return Conn(self.ip, index, proto, "W", Tuple(self.wan_host, sport, dst, dport),
                    Tuple(self.ip.l_host, service, self.wan_host, sport))

    @staticmethod
    def _nft(address):
        return "[%s]" % address if ":" in address else address

    def nft_rules(self):
        out = "tun0" if self.tunnel else self.outside
        rules = ["table inet watch { counter forwarded { }\n"
                 " chain f { type filter hook forward priority 0; ct state new counter; counter name forwarded; }; }"]
        if self.nft:
            rules.append(self.nft)
        post, pre = [], []
        if self.ports:
            for proto, name in ((TCP, "tcp"), (UDP, "udp")):
                pairs = {"%d : %d" % (c.orig.sport, c.reply.dport) for r in range(MAX_ROUNDS)
                         for c in self.conns(r) if c.side == "L" and c.proto == proto}
                post.append("oifname %s meta l4proto %s snat %s to %s : %s sport map { %s }"
                            % (out, name, self.ip.nft, self._nft(self.router_outside), name, ", ".join(sorted(pairs))))
        elif self.masquerade:
            post.append("oifname %s masquerade" % out)
        if self.dnat:
            for conn in self.conns(0):
                name = "tcp" if conn.proto == TCP else "udp"
                to = conn.arriving("o")
                pre.append("%s daddr %s %s dport %d dnat to %s:%d"
                           % (self.ip.nft, conn.orig.dst, name, conn.orig.dport, self._nft(to.dst), to.dport))
        if post or pre:
            rules.append("table %s nat {\n chain pre { type nat hook prerouting priority dstnat;\n %s\n }\n"
                         " chain post { type nat hook postrouting priority srcnat;\n %s\n }\n}"
                         % (self.ip.nft, "\n ".join(pre), "\n ".join(post)))
        return "\n".join(rules) + "\n"


VARIANTS = {v.name: v for v in (
    Variant("none"),
    Variant("masquerade", masquerade=True, wan_mtu=1400, l4_checks=True),
    Variant("dnat", dnat=True, lan_mtu=1400, wan_mtu=1600),
    Variant("both", dnat=True, ports=True),
    Variant("ipip", tunnel=True),
    Variant("ipip-nat", tunnel=True, masquerade=True, dnat=True, lan_mtu=1400),
    Variant("none6", V6, from_lan=1),
    Variant("masquerade6", V6, from_lan=1, masquerade=True, wan_mtu=1400, l4_checks=True),
    Variant("dnat6", V6, from_lan=1, dnat=True, lan_mtu=1400, wan_mtu=1600),
    Variant("both6", V6, from_lan=1, dnat=True, ports=True),
    Variant("ip6ip6", V6, from_lan=1, tunnel=True, outer=V6, encaplimit=True, words=("encaplimit", "4")),
    Variant("ip6ip6-nat", V6, from_lan=1, tunnel=True, outer=V6, masquerade=True, dnat=True, lan_mtu=1400,
            words=("encaplimit", "none", "tos", "184", "ttl", "33", "flowlabel", "74565")),
    Variant("4in6", from_lan=1, tunnel=True, outer=V6, words=("encaplimit", "none", "tos", "inherit"), dnat=True),
    Variant("6in4", V6, from_lan=1, tunnel=True, masquerade=True, words=("tos", "inherit", "ttl", "inherit")),
)}
