# SPDX-License-Identifier: GPL-2.0-only
"""What the differential test has to know of IPv4 and of IPv6: addresses, headers, R's settings.

V4 and V6 have the same names; everything else in same_*.py asks the variant's `ip` for them, or its `outer` for the
outside of a tunnel.
"""
import frames
from frames import ICMP, ICMPV6, ones_sum

DONE = None, 0
LIMIT = [frames.DEST_OPTIONS, "00040104010100"]  # the tunnel encapsulation limit, as the kernel lays it out (RFC 2473)


def how(value):
    """A checksum specification as it comes out of JSON."""
    return tuple(value) if isinstance(value, list) else value


def fill(value, total):
    """The word that, added to a sum of `total`, makes its checksum `value`."""
    return ones_sum(((~value & 0xFFFF) + (~total & 0xFFFF)).to_bytes(4, "big"))


def normalise(frame, variant):
    """The frame without what the kernel draws at random, for headers inside of one another. None: it is not compared,
    since it comes when it comes."""
    out, at = bytearray(frame), 14
    ip = {frames.ETH_IP: V4, frames.ETH_IPV6: V6}.get(int.from_bytes(frame[12:14], "big"))
    while ip:
        inside = ip.blank(out, frame, at, variant)
        if not inside:
            return None
        ip, at = inside
    return bytes(out)


class V4:
    version, ethertype, head, nft, number = 4, frames.ETH_IP, 20, "ip", frames.IPIP
    lan, wan = "192.0.2.", "198.51.100."  # and a number below 10 for a host
    l_host, w_host, r_lan, r_wan = "192.0.2.2", "198.51.100.2", "192.0.2.1", "198.51.100.1"
    virtual = "203.0.113.10"  # what dnat rules listen on
    tun_r, tun_host = "10.9.0.1", "10.9.0.2"
    router = frozenset(map(frames.addr, (r_lan, r_wan, tun_r, virtual)))
    # What the contract sends to the stack, whatever the value; and what both may take or pass on.
    stack = frozenset(("mf", "off", "opt", "ihl"))
    doubt, outer_doubt = frozenset(("rsv", "ipsum")), frozenset(("df", "rsv", "ipwant", "ipsum"))
    plain = {"off": 0, "mf": 0, "ihl": 5}
    through = "addr add 10.9.0.1/32 dev tun0\nroute add 10.9.0.0/24 dev tun0"
    # Timers and limits that would make two equal routers answer differently.
    sysctls = """net/ipv4/ip_forward=1 net/ipv4/ipfrag_time=3600 net/ipv4/ipfrag_max_dist=0
        net/ipv4/conf/all/send_redirects=0 net/ipv4/conf/default/send_redirects=0
        net/ipv4/conf/ra/send_redirects=0 net/ipv4/conf/rb/send_redirects=0"""
    _answers = (0, 3, 4, 5, 11, 12, 14)  # ICMP types a router sends by itself, with an ID of its choice

    @staticmethod
    def configure(outside):
        """Lines for ip(8) in R."""
        return ["addr add 192.0.2.1/24 dev ra", "addr add 198.51.100.1/24 dev " + outside,
                # "No route" is answered at a rate that no namespace can set.
                "route add blackhole default"]

    @staticmethod
    def packet(recipe, prefix, src, dst, proto, payload):
        """From the recipe's keys that begin with prefix."""
        def get(name, default):
            return recipe.get(prefix + name, default)

        options = bytes.fromhex(get("opt", ""))
        flags = (4 if get("rsv", 0) else 0) | (2 if get("df", 1) else 0) | (1 if get("mf", 0) else 0)
        length = 20 + len(options) + -len(options) % 4 + len(payload) + get("totlen", 0)
        # Each packet has an ID of its own, as senders do it: the witness knows packets by it.
        ident = get("id", (recipe.get("idx", 0) * 7 + 0x1234) & 0xFFFF)
        fields = {"tos": get("tos", 0), "ident": ident, "flags": flags, "offset": get("off", 0),
                  "ttl": get("ttl", 64), "options": options, "version": get("ver", 4), "ihl": get("ihl", None),
                  "length": max(0, length), "check": how(get("ipsum", None))}
        src, dst, proto = get("src", src), get("dst", dst), get("proto", proto)
        if get("ipwant", None) is not None:
            fields["ident"] = 0
            head = frames.ipv4(src, dst, proto, payload, **{**fields, "check": 0})
            fields["ident"] = fill(get("ipwant", 0), ones_sum(head[:20 + len(options) + -len(options) % 4]))
        return frames.ipv4(src, dst, proto, payload, **fields)

    @staticmethod
    def icmp(recipe, tup, seen, l4):
        """(protocol, message): an error about a packet `seen` with this L4, or an echo."""
        quote = frames.ipv4(seen.src, seen.dst, l4[0], l4[1], ttl=60)
        rest = bytes(4)
        if recipe["icmp"] == [3, 4]:
            rest = (1300).to_bytes(4, "big")
        elif recipe["icmp"][0] in (0, 8, 13, 14):  # an ID of its own, else NAT may have to draw another one
            rest = (recipe.get("idx", 0) & 0xFFFF).to_bytes(2, "big") + bytes(2)
        return ICMP, frames.icmp(*recipe["icmp"], rest, quote[:recipe.get("qlen", 28)], check=how(recipe.get("sum")))

    @staticmethod
    def echo(src, dst, rest, payload):
        return frames.ipv4(src, dst, ICMP, frames.icmp(8, 0, rest, payload))

    @staticmethod
    def too_big(src, dst, mtu, packet):
        """A router's answer to the packet."""
        return frames.ipv4(src, dst, ICMP, frames.icmp(3, 4, mtu.to_bytes(4, "big"), packet))

    @staticmethod
    def fragments(recipe, packet):
        return frames.fragments(packet, recipe["frags"])

    @staticmethod
    def solicit(mac, asker, target):
        """Frames that ask for the MAC of an address."""
        return [frames.ethernet(b"\xff" * 6, mac, frames.ETH_ARP, frames.arp_request(mac, asker, target))]

    @staticmethod
    def read(packet):
        """(protocol, length that the header tells, it may be right) of a packet."""
        return packet[9], int.from_bytes(packet[2:4], "big"), not frames.checksum(packet[:20])

    @staticmethod
    def addresses(packet):
        return packet[12:20]

    @classmethod
    def blank(cls, out, frame, at, variant):
        """Takes out the ID (with its checksum) of outer headers and of ICMP messages R itself makes; a wrong header
        checksum stays visible. Returns the family and place of the packet inside of a tunnel, or DONE."""
        size = (frame[at] & 15) * 4 if len(frame) > at + 20 else 0
        head = frame[at:at + size]
        if size < 20 or len(frame) <= at + size or head[12:16] not in cls.router:
            return DONE
        outer = variant.tunnel and head[9] == variant.ip.number and head[12:16] == frames.addr(cls.r_wan)
        if (outer or (head[9] == ICMP and frame[at + size] in cls._answers)) and frames.checksum(head) == 0:
            out[at + 4:at + 6] = b"\0\0"
            out[at + 10:at + 12] = b"\0\0"
            if not outer and frame[at + size] == 14:  # a timestamp reply tells the time of day
                out[at + size + 2:at + size + 4] = b"\0\0"
                out[at + size + 12:at + size + 20] = bytes(len(out[at + size + 12:at + size + 20]))
        first = not int.from_bytes(head[6:8], "big") & 0x1FFF
        return (variant.ip, at + size) if outer and first else DONE


class V6:
    version, ethertype, head, nft, number = 6, frames.ETH_IPV6, 40, "ip6", frames.IPV6
    lan, wan = "2001:db8:1::", "2001:db8:2::"
    l_host, w_host, r_lan, r_wan = "2001:db8:1::2", "2001:db8:2::2", "2001:db8:1::1", "2001:db8:2::1"
    virtual = "2001:db8:3::10"
    tun_r, tun_host = "2001:db8:a::1", "2001:db8:a::2"
    # The link-local address of an ip6tnl device is drawn at random; R answers with it.
    through = "addr add fe80::a:1/64 dev tun0 nodad\naddr add 2001:db8:a::1/128 dev tun0 nodad\n" \
              "route add 2001:db8:a::/64 dev tun0"
    link_local = "fe80::"  # hosts of either side have one as well
    router = frozenset(map(frames.addr, (r_lan, r_wan, tun_r)))
    _reports = frames.addr("ff02::16")
    stack = frozenset(("ext",))
    doubt = outer_doubt = frozenset()
    plain = {"label": 0}
    # Labels that R makes up are hashes with a secret. Parameter problems and the like have a rate.
    sysctls = """net/ipv6/conf/all/forwarding=1 net/ipv6/auto_flowlabels=0 net/ipv6/icmp/ratelimit=0
        net/ipv6/ip6frag_time=3600 net/netfilter/nf_conntrack_frag6_timeout=3600
        net/netfilter/nf_conntrack_frag6_high_thresh=67108864"""

    @classmethod
    def configure(cls, outside):
        return ["addr add %s/64 dev ra nodad" % cls.r_lan, "addr add %s/64 dev %s nodad" % (cls.r_wan, outside),
                "route add blackhole ::/0"]

    @staticmethod
    def packet(recipe, prefix, src, dst, proto, payload):
        def get(name, default):
            return recipe.get(prefix + name, default)

        extensions = [(kind, bytes.fromhex(body)) for kind, body in get("ext", ())]
        length = sum(1 + len(body) for _, body in extensions) + len(payload) + get("totlen", 0)
        # Each packet has a label of its own unless told: nothing may depend on it.
        return frames.ipv6(get("src", src), get("dst", dst), get("proto", proto), payload, tclass=get("tos", 0),
                           label=get("label", 0), hop=get("ttl", 64), version=get("ver", 6), length=max(0, length),
                           ext=extensions)

    @staticmethod
    def icmp(recipe, tup, seen, l4):
        quote = frames.ipv6(seen.src, seen.dst, l4[0], l4[1], hop=60)
        rest = bytes(4)
        if recipe["icmp"][0] == 2:
            rest = (1300).to_bytes(4, "big")
        elif recipe["icmp"][0] in (128, 129):
            rest = (recipe.get("idx", 0) & 0xFFFF).to_bytes(2, "big") + bytes(2)
        return ICMPV6, frames.icmp6(tup.src, tup.dst, *recipe["icmp"], rest, quote[:recipe.get("qlen", 48)],
                                    check=how(recipe.get("sum")))

    @staticmethod
    def echo(src, dst, rest, payload):
        return frames.ipv6(src, dst, ICMPV6, frames.icmp6(src, dst, 128, 0, rest, payload))

    @staticmethod
    def too_big(src, dst, mtu, packet):
        return frames.ipv6(src, dst, ICMPV6, frames.icmp6(src, dst, 2, 0, mtu.to_bytes(4, "big"), packet))

    @staticmethod
    def fragments(recipe, packet):
        return frames.fragments6(packet, recipe["frags"], recipe.get("idx", 0) * 7 + 0x1234)

    @staticmethod
    def solicit(mac, asker, target):
        group = "ff02::1:ff00:" + target.rpartition(":")[2]
        option = b"\x01\x01" + mac
        ask = frames.icmp6(asker, group, 135, 0, bytes(4), frames.addr(target) + option)
        return [frames.ethernet(b"\x33\x33" + frames.addr(group)[12:], mac, frames.ETH_IPV6,
                                frames.ipv6(asker, group, ICMPV6, ask, hop=255))]

    @staticmethod
    def read(packet):
        return packet[6], 40 + int.from_bytes(packet[4:6], "big"), True

    @staticmethod
    def addresses(packet):
        return packet[8:40]

    @classmethod
    def blank(cls, out, frame, at, variant):
        """Takes out what fragments that R has put together and cut again have as their ID, and labels that R draws.
        None for reports of R's own multicast groups (RFC 3810)."""
        if len(frame) < at + 48:
            return DONE
        following, source, target = frame[at + 6], frame[at + 8:at + 24], frame[at + 24:at + 40]
        if target == cls._reports and following == frames.HOP_BY_HOP and frame[at + 48:at + 49] == b"\x8f":
            return None
        if variant.labels and source in cls.router:
            out[at + 1] &= 0xF0
            out[at + 2:at + 4] = b"\0\0"
        at += 40
        while following in (frames.HOP_BY_HOP, frames.ROUTING, frames.DEST_OPTIONS) and at + 8 <= len(frame):
            following, at = frame[at], at + 8 * (frame[at + 1] + 1)
        if following == frames.FRAGMENT and at + 8 <= len(frame):
            out[at + 4:at + 8] = bytes(4)
        if variant.tunnel and following == variant.ip.number and source == frames.addr(cls.r_wan):
            return variant.ip, at
        return DONE
