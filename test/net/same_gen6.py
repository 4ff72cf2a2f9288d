# SPDX-License-Identifier: GPL-2.0-only
"""Random and hand-picked recipes of IPv6: what same_gen does for IPv4."""
from frames import DEST_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING
from same_gen import Generator
from same_ip import LIMIT, V6

# Bodies of extension headers, from the length byte on (RFC 8200, 4.2 to 4.6).
PADDED = "00010400000000"
BODIES = {
    HOP_BY_HOP: (PADDED, "00050200000100", "00c20400010000", "001e0400000000", "005e0400000000", "009e0400000000",
                 "00de0400000000", "ff010400000000", "01010c" + "00" * 12, "00" * 7),
    DEST_OPTIONS: (PADDED, "00040104010100", "001e0400000000", "00de0400000000", "ff010400000000"),
    ROUTING: ("00000000000000", "02000100000000" + "20010db8000200000000000000000003",
              "02020100000000" + "20010db8000200000000000000000003",
              "02040000000000" + "20010db8000200000000000000000003", "00fe0000000000", "04000000000000"),
    FRAGMENT: ("00000000000001", "00000100000002", "00000900000003", "000008000000ff", "00fff800000004",
               "00fff900000005"),
    51: ("04" + "00" * 22, "01" + "00" * 10),  # authentication header
    135: (PADDED,),  # mobility: for conntrack a protocol
    139: (PADDED,),
    140: (PADDED,),
}
CHAINS = ([HOP_BY_HOP, DEST_OPTIONS], [DEST_OPTIONS, ROUTING, DEST_OPTIONS], [HOP_BY_HOP, ROUTING, FRAGMENT],
          [DEST_OPTIONS, HOP_BY_HOP], [ROUTING, ROUTING], [DEST_OPTIONS] * 4)
LABELS = (0, 1, 0xFFFFF, 0x80000, 0x12345)
# Hosts that have a static neighbour at R, or that nobody routes. R tells a sender of a better way (a
# redirect) once a second only, so none is on the side that it is sent from.
ANYBODY = ("::1", "::", "ff02::1", "ff02::5", "ff05::2", "ff0e::1", "2001:db8:9::5", "::ffff:198.51.100.3",
           "2001:db8:1::", "2001:db8:2::", V6.r_lan, V6.r_wan)


def _limit(value):
    return {"o_ext": [[DEST_OPTIONS, "000401%02x010100" % value]]}


class Generator6(Generator):
    head = 40
    outer_values = ("label", LABELS), ("ext", ([], [LIMIT], [[DEST_OPTIONS, "00040100010100"]]))
    # The limit is nothing to whoever receives it, and may be there or not; in another layout it is the stack's.
    outer_picked = {"o_ext": []}, _limit(0), _limit(4), _limit(255), {"o_ext": [LIMIT, LIMIT]}, {"o_label": 0xABCDE}, \
        *({"o_ext": [[DEST_OPTIONS, body]]} for body in ("00010004010400", "01040104010800" + "00" * 8, PADDED)), \
        *({"o_ext": [[kind, BODIES[kind][0]]]} for kind in (HOP_BY_HOP, ROUTING, FRAGMENT))
    ethertypes = (0x0800, 0x0806, 0x8863, 0x8864, 0x88CC, 0x0040, 0x86DC)
    icmps = ([1, 4], [2, 0], [1, 0], [3, 0], [4, 1], [128, 0], [129, 0], [1, 3], [135, 0], [200, 7])
    quotes = (8, 40, 44, 47, 48, 60, 112)
    bad_sources = ("::", "::1", "ff02::1", "ff0e::5", V6.r_lan, V6.r_wan, "fe80::7", "::ffff:192.0.2.2",
                   "2001:db8:1::7", "2001:db8:2::7")
    bad_version = 4

    def targets(self, conn, direction):
        return ANYBODY + ((V6.wan if conn.sender(direction) == "L" else V6.lan) + "3",)

    def ip_benign(self, recipe):
        if self.rng.random() < 0.4:
            recipe["label"] = self.rng.choice((self.rng.getrandbits(20),) + LABELS)

    def ip_rare(self, recipe, kind, prefix):
        if kind == 2 or kind >= 9:
            chain = self.rng.choice(CHAINS)
        else:
            chain = [self.rng.choice(tuple(BODIES))]
        recipe[prefix + "ext"] = [[each, self.rng.choice(BODIES[each])] for each in chain]
        recipe["len"] = max(0, recipe["len"] - 100)

    def whole(self, recipe):
        recipe.pop("ext", None)

    def any_size(self):
        return ({},)

    def ip_picked(self, ports):
        for label in LABELS:
            yield {"label": label}
        for tclass in (0, 1, 2, 3, 0xB8, 0xFF):
            yield {"tos": tclass}
            yield {"tos": tclass, "label": 0xABCDE}
        for kind, bodies in BODIES.items():
            for body in bodies:
                yield {"ext": [[kind, body]]}
        yield {"ext": [[DEST_OPTIONS, "00" + ports + "010100"]]}  # its bytes look like the flow's ports
        for chain in CHAINS:
            yield {"ext": [[kind, BODIES[kind][0]] for kind in chain]}
        for number, source in enumerate(self.bad_sources):
            # Ports of their own: else NAT would have to find others, at random.
            yield {"src": source, "sport": 1025 + number}
        for target in ANYBODY:
            yield {"dst": target}
        for mark in (0, 59, 58, 255):
            yield {"proto": mark}
        yield {"totlen": -10000}  # a payload length of zero


def generator(rng, variant, conns):
    """For the variant's families inside and outside."""
    def make(ip):
        return (Generator if ip.version == 4 else Generator6)(rng, variant, conns)

    made = make(variant.ip)
    if variant.tunnel and variant.outer is not variant.ip:
        made.outside = make(variant.outer)
    return made
