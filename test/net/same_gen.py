# SPDX-License-Identifier: GPL-2.0-only
"""Random and hand-picked recipes (see same_packet)."""
import struct

from frames import ACK, CWR, ECE, PSH, TCP, UDP, URG
from same_packet import CLOSING, EDST, ESRC, fast, l4_right
from same_ip import V4

BORDERS16 = (0, 1, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFEFF, 0xFF00, 0xFFFE, 0xFFFF)
BORDERS32 = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
# Addresses that must not pass, or that nobody routes; no host without a static neighbour, since
# the router would ask for it and answer later.
BAD_SOURCES = ("0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", V4.r_lan, V4.r_wan)
OTHER_TARGETS = ("192.0.2.3", "198.51.100.3", V4.r_lan, V4.r_wan, "127.0.0.1", "255.255.255.255", "224.0.0.5",
                 "0.0.0.0", "203.0.113.5", "192.0.2.255", "198.51.100.255", "240.0.0.1")
PROTOCOLS = (0, 1, 2, 4, 6, 17, 41, 47, 50, 51, 58, 89, 103, 136, 255)
OPTIONS = ("94040000", "01010101", "00000000", "07070400000000", "070b04" + "00" * 8, "8907040a090002",
           "8307040a090002", "01" * 40, "440c0d00" + "00" * 8, "82" + "0b" + "00" * 9, "0728" + "04" + "00" * 37,
           "94050000", "ff01", "0700")
HEADER_SUMS = (0x0000, 0x0001, 0x00FF, 0xFE00, 0xFEFE, 0xFEFF, 0xFF00, 0xFFFE)
CLOSERS = (0x02, 0x12, 0x04, 0x14, 0x11, 0x19, 0x31, 0x01, 0x03, 0x05, 0x06, 0x3F, 0xFF, 0xC2, 0x52)
ICMPS = ([3, 3], [3, 4], [3, 1], [11, 0], [12, 0], [4, 0], [8, 0], [0, 0], [13, 0])
ETHERTYPES = (0x86DD, 0x0806, 0x8863, 0x8864, 0x88CC, 0x0040, 0x0801)


class Generator:
    """Makes recipes; everything comes from rng, so that a seed repeats the run. What is named ip_ is
    of the address family: here IPv4, in same_gen6 IPv6."""

    head, ethertypes, icmps, quotes = 20, ETHERTYPES, ICMPS, (8, 20, 27, 28, 40, 92)
    outer_values = ("id", BORDERS16), ("df", (0,)), ("ipwant", HEADER_SUMS)
    outer_picked = {"o_opt": "94040000"}, {"o_ipsum": ["xor", 1]}
    bad_sources, other_targets = BAD_SOURCES + ("192.0.2.7", "198.51.100.7"), OTHER_TARGETS
    bad_version = 6

    def __init__(self, rng, variant, conns):
        self.rng, self.variant, self.conns = rng, variant, conns
        self.count = 0
        self.outside = self  # the one of a tunnel's outer family (same_gen6.generator())

    def plain(self, conn, direction):
        self.count += 1
        return {"conn": conn.index, "dir": direction, "idx": self.count, "len": 64, "seed": self.rng.getrandbits(32)}

    def random(self, conn=None):
        """A random recipe that leaves its connection open."""
        rng = self.rng
        conn = conn or rng.choice(self.conns)
        recipe = self.plain(conn, rng.choice("or"))
        self._benign(recipe, conn)
        for _ in range(rng.choices((0, 1, 2, 3), (50, 36, 10, 4))[0]):
            self._odd(recipe, conn)
        if any(first == 0 and last >= recipe["len"] for first, last in recipe.get("frags", ())):
            del recipe["frags"]  # it has become shorter than its first fragment
        if "frags" in recipe:
            self.whole(recipe)
        return self._allowed(recipe)

    def closing(self, count):
        """Random recipes, among them one SYN, FIN or RST for each TCP connection. Not more: window
        tracking has seen less of a fast connection, so that of several the last might count
        in one run and not in the other."""
        recipes = [self.random() for _ in range(count)]
        for conn in self.conns:
            if conn.proto == TCP:
                recipe = self.random(conn)
                recipe["flags"] = self.rng.choice(CLOSERS)
                recipes.insert(self.rng.randrange(count // 2), recipe)
        return recipes

    def _allowed(self, recipe):
        """The recipe, or a plain one for a packet the fast path may take although its L4 checksum
        is wrong: with nf_conntrack_checksum the slow path is documented to differ."""
        conn = self.conns[recipe["conn"]]
        recipe = {key: value for key, value in recipe.items() if key not in self.variant.without}
        if (self.variant.l4_checks and fast(recipe, conn, self.variant) != "never"
                and not l4_right(recipe, conn)[1]):
            return {key: recipe[key] for key in ("conn", "dir", "idx", "len", "seed")}
        return recipe

    def _len_for(self, conn, direction, total):
        overhead = self.head + (20 if conn.proto == TCP else 8)
        limit = (self.variant.lan_mtu if conn.sender(direction) == "L" else self.variant.out_mtu("W")) + 4
        return max(0, min(total, limit) - overhead)

    def _benign(self, recipe, conn):
        """What any packet may have: lengths, TOS, ids, TTLs, numbers and flags."""
        rng = self.rng
        mtu = self.variant.out_mtu("W" if conn.sender(recipe["dir"]) == "L" else "L")
        total = rng.choice((rng.randint(20, 100), rng.randint(20, mtu), rng.randint(20, mtu), mtu - rng.randint(0, 2),
                            mtu if rng.random() < 0.7 else mtu + rng.randint(1, 40)))
        recipe["len"] = self._len_for(conn, recipe["dir"], total)
        if rng.random() < 0.5:
            recipe["tos"] = rng.getrandbits(8)
        if rng.random() < 0.5:
            recipe["ttl"] = rng.choice((rng.randint(2, 255), 2, 3, 128, 255))
        self.ip_benign(recipe)
        if rng.random() < 0.1 and recipe["len"] >= 8:
            recipe[rng.choice(("want", "post"))] = rng.choice((0, 0, 0xFFFF, 0xFFFE, 1))
        if conn.proto == TCP:
            recipe["seq"] = rng.choice((rng.getrandbits(32), rng.choice(BORDERS32)))
            recipe["ack"] = rng.choice((rng.getrandbits(32), rng.choice(BORDERS32)))
            recipe["win"] = rng.choice((rng.getrandbits(16), rng.choice(BORDERS16)))
            recipe["flags"] = ACK | rng.choice((0, PSH, PSH, ECE, CWR, URG, URG | PSH, ECE | CWR | PSH))
            if rng.random() < 0.2:
                recipe["urg"] = rng.getrandbits(16)
            if rng.random() < 0.3:
                recipe["topt"] = rng.choice(("0101080a" + rng.randbytes(8).hex(), "0101050a" + rng.randbytes(8).hex(),
                                             rng.randbytes(rng.randint(1, 40)).hex()))
                recipe["len"] = max(0, recipe["len"] - 40)
        if self.variant.tunnel and conn.sender(recipe["dir"]) == "W":
            for key, values in (("tos", (rng.getrandbits(8), rng.randint(0, 3))), ("ttl", (64, 2, 255)),
                                *self.outside.outer_values):
                if rng.random() < 0.3:
                    recipe["o_" + key] = rng.choice(values)

    def ip_benign(self, recipe):
        rng = self.rng
        if rng.random() < 0.1:
            recipe["id"] = rng.choice(BORDERS16)
        if rng.random() < 0.15:
            recipe["ipwant"] = rng.choice(HEADER_SUMS)
        if rng.random() < 0.2:
            recipe["df"] = 0

    def _odd(self, recipe, conn):
        """One thing that is not in order (or at least rare)."""
        rng = self.rng
        table = [self.ip_odd] * 6 + [self._frame_odd] * 3 + [self._l4_odd] * 5 + [self._fragment_odd]
        if self.variant.tunnel and conn.sender(recipe["dir"]) == "W":
            table += [self._outer_odd] * 8
        rng.choice(table)(recipe, conn)

    def _frame_odd(self, recipe, conn):
        rng = self.rng
        kind = rng.randrange(8)
        if kind == 0:
            recipe["edst"] = rng.choice(tuple(EDST))
        elif kind == 1:
            recipe["esrc"] = rng.choice(tuple(ESRC))
        elif kind == 2:
            recipe["etype"] = rng.choice(self.ethertypes)
        elif kind == 3:
            recipe["vlan"] = rng.choice((0, 1, 0x2001, 0x0FFF, rng.getrandbits(16)))
        elif kind == 4:
            recipe["cut"] = rng.choice((1, 2, rng.randint(1, 60), rng.randint(1, 1500)))
        elif kind == 5:
            recipe["pad"] = rng.choice((1, 2, 4, rng.randint(1, 100)))
            recipe["len"] = max(0, recipe["len"] - 120)
        else:  # what Ethernet itself adds to short packets
            recipe["len"] = rng.randint(0, 17)
            recipe.pop("topt", None)
            recipe["pad"] = max(0, 46 - self.head - (20 if conn.proto == TCP else 8) - recipe["len"])

    def ip_odd(self, recipe, conn, prefix=""):
        """One of five things that any header has, or of the others of its family."""
        rng = self.rng
        kind = rng.randrange(14)
        if kind <= 1:
            recipe[prefix + "ttl"] = rng.choice((0, 1, 1, 2))
        elif kind == 3:
            recipe[prefix + "ver"] = rng.randrange(16)
        elif 5 <= kind <= 6:
            recipe[prefix + "totlen"] = rng.choice((-1, 1, -2, 2, -8, 8, -20, -21, 100, -rng.randint(1, 1600),
                                                    rng.randint(1, 1600)))
        elif kind == 12:
            recipe[prefix + "proto"] = rng.choice(PROTOCOLS)
        elif kind == 13 and rng.random() < 0.5:
            recipe[prefix + "dst"] = rng.choice(self.targets(conn, recipe["dir"]))
        elif kind == 13:
            recipe[prefix + "src"] = rng.choice(self.bad_sources)
            if not prefix:  # else NAT might have to find another port, at random
                recipe["sport"] = rng.randint(1024, 19999)
        else:
            self.ip_rare(recipe, kind, prefix)

    def targets(self, _conn, _direction):
        return self.other_targets

    def ip_rare(self, recipe, kind, prefix):
        rng = self.rng
        if kind == 2:
            recipe[prefix + "opt"] = rng.choice(OPTIONS + (self._random_options(),))
            recipe["len"] = max(0, recipe["len"] - 40)
        elif kind == 4:
            recipe[prefix + "ihl"] = rng.randrange(16)
        elif kind <= 8:
            recipe[prefix + "ipsum"] = rng.choice((0, 0xFFFF, ["xor", 1 << rng.randrange(16)],
                                                   ["xor", rng.randint(1, 0xFFFF)]))
        elif kind == 9:
            recipe[prefix + "rsv"] = 1
        elif kind == 10:
            recipe[prefix + "mf"] = 1
        elif kind == 11:
            recipe[prefix + "off"] = rng.choice((1, 2, 5, 0x1FFF, rng.getrandbits(13)))
            recipe[prefix + "df"] = rng.getrandbits(1)

    def _l4_odd(self, recipe, conn):
        rng = self.rng
        kind = rng.randrange(6)
        if kind <= 1:
            recipe["sum"] = rng.choice((0, 0xFFFF, 1, ["xor", 1 << rng.randrange(16)], ["xor", rng.randint(1, 0xFFFF)]))
        elif kind == 2:
            recipe["dport"] = rng.randint(1024, 19999)
        elif kind == 3:
            recipe["icmp"] = rng.choice(self.icmps)
            recipe["qlen"] = rng.choice(self.quotes)
        elif conn.proto == UDP:
            recipe["ulen"] = rng.choice((-1, 1, -8, 8, -rng.randint(1, 1500), rng.randint(1, 1500)))
        elif kind == 4:
            recipe["doff"] = rng.randrange(16)
        else:
            if rng.random() < 0.3:
                recipe["res"] = rng.randrange(16)
            else:
                recipe["flags"] = rng.getrandbits(8) & ~CLOSING

    def _fragment_odd(self, recipe, conn):
        """A whole datagram in fragments, in any order."""
        rng = self.rng
        size = recipe["len"] = max(recipe["len"], 100)
        points = [0] + sorted({rng.randrange(8, size, 8) for _ in range(rng.randint(1, 3))}) + [None]
        recipe.pop("topt", None)
        self.whole(recipe)
        recipe["frags"] = [[a, b] for a, b in zip(points, points[1:])]
        if rng.random() < 0.5:
            rng.shuffle(recipe["frags"])

    def whole(self, recipe):
        """May be cut in fragments."""
        recipe["df"] = 0

    def _outer_odd(self, recipe, conn):
        rng = self.rng
        kind = rng.randrange(10)
        if kind == 0:
            recipe["bare"] = 1
        elif kind == 1:
            recipe["nest"] = 1
        elif kind == 2:
            recipe["itrunc"] = rng.choice((1, 4, 12, 20, rng.randint(1, 1500)))
        elif kind == 3:
            recipe["tos"], recipe["o_tos"] = rng.randrange(4), 3
        else:
            self.outside.ip_odd(recipe, conn, "o_")
            if recipe.get("o_proto") not in (None, conn.ip.number) or "o_dst" in recipe:
                # An answer of the router itself then goes by a host of its own.
                recipe["o_src"] = self.variant.outer.wan + "7"

    def _random_options(self):
        # A timestamp option would be filled in with the time of day.
        return self.rng.randbytes(self.rng.choice((4, 8, 40))).replace(b"\x44", b"\x01").hex()

    # ------------------------------------------------------------- hand-picked

    def picked(self):
        """Every rule of the contract at least once, for each connection and direction."""
        for conn in self.conns:
            for direction in "or":
                for extra in self._picked_for(conn, direction):
                    yield self._allowed({**self.plain(conn, direction), **extra})

    def _picked_for(self, conn, direction):
        v, tup = self.variant, conn.sent(direction)
        mtu = v.out_mtu("W" if conn.sender(direction) == "L" else "L")
        for ttl in (0, 1, 2, 3, 255):
            yield {"ttl": ttl}
        for total in (mtu - 1, mtu, mtu + 1, mtu + 2, mtu + 4, mtu + 5):
            for more in self.any_size():
                yield {"len": self._len_for(conn, direction, total), **more}
        for length in range(0, 10):
            yield {"len": length}
            yield {"len": length, "pad": max(2, 46 - 20 - self.head - length)}
        for value in (0, 1, 0xFFFE, 0xFFFF):
            yield {"want": value}
            yield {"post": value}
            yield {"sum": value}
        yield {"want": 0, "sum": 0xFFFF}
        yield {"sum": ["xor", 0x0100]}
        yield from self.ip_picked(struct.pack("!HH", tup.sport, tup.dport).hex())
        for proto in (1, 4, 47, 50, 132, 136):
            yield {"proto": proto}
        for name in EDST:
            yield {"edst": name}
        for name in ESRC:
            yield {"esrc": name}
        for cut in (1, 30, 70):
            yield {"cut": cut}
        yield {"ver": self.bad_version}
        for change in (-1, 1, -20, -60, 2000):
            yield {"totlen": change}
        # Data behind the UDP datagram, but in the packet: conntrack sums it up as well.
        yield {"totlen": 2, "pad": 2}
        yield {"totlen": 8, "pad": 20}
        for cuts in ([[0, 296], [296, None]], [[296, None], [0, 296]], [[0, 8], [8, 296], [296, None]]):
            cut = {"len": 600, "frags": cuts}
            self.whole(cut)
            yield cut
        for kind in self.icmps[:4]:
            yield {"icmp": kind}
        yield {"arp": conn.ip.r_lan if conn.sender(direction) == "L" else conn.ip.r_wan}
        if conn.proto == TCP:
            for doff in (0, 4, 6, 15):
                yield {"doff": doff, "len": 8}
            for flags in (0, PSH, URG, ACK, ACK | URG, 0xF8, 0xE8):
                yield {"flags": flags, "urg": 7}
        else:
            for change in (-1, 1, -64, -65, -72):
                yield {"ulen": change}
        if v.tunnel:
            for tos in range(4):
                yield {"tos": tos | 0xB8}
                for outer in range(4) if conn.sender(direction) == "W" else ():
                    yield {"tos": tos | 0x28, "o_tos": outer | 0x48}
            if conn.sender(direction) == "W":
                outer = v.outer
                yield from ({"o_src": outer.wan + "3"}, {"o_dst": outer.r_lan}, {"bare": 1}, {"nest": 1}, {"o_ttl": 1},
                            {"itrunc": 1}, {"itrunc": 90}, {"o_totlen": 8}, {"o_totlen": -8}, {"pad": 20},
                            {"o_ver": 10 - outer.version}, *self.outside.outer_picked)

    def any_size(self):
        return {"df": 0}, {"df": 1}

    def ip_picked(self, ports):
        for value in HEADER_SUMS:
            yield {"ipwant": value}
        yield {"ipwant": 0, "ipsum": 0xFFFF}
        for options in OPTIONS + (ports * 2,):
            yield {"opt": options}
        for ihl in (0, 4, 6, 15):
            yield {"ihl": ihl}
