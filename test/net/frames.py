# SPDX-License-Identifier: GPL-2.0-only
"""Raw frames: building, dissecting and comparing them.

Written from the RFCs, on purpose without a look at the datapath: a test that shares its
code with what it tests proves little. Only the standard library is used.

Checksums are given as None (correct), an int (this value) or ("xor", v) (correct, then
changed by v). Addresses are strings, dotted or with colons, MACs are 6 bytes.
"""
import socket
import struct

ETH_IP = 0x0800
ETH_ARP = 0x0806
ETH_VLAN = 0x8100
ETH_IPV6 = 0x86DD
ICMP, IPIP, TCP, UDP, IPV6, ICMPV6 = 1, 4, 6, 17, 41, 58
HOP_BY_HOP, ROUTING, FRAGMENT, DEST_OPTIONS = 0, 43, 44, 60  # IPv6 extension headers
FIN, SYN, RST, PSH, ACK, URG, ECE, CWR = (1 << bit for bit in range(8))


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


def addr(text):
    return socket.inet_pton(socket.AF_INET6, text) if ":" in text else socket.inet_aton(text)


def ones_sum(data, start=0):
    """The one's-complement sum of RFC 1071, folded to 16 bits, not inverted."""
    if len(data) & 1:
        data += b"\0"
    total = start + sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def checksum(data, start=0):
    return ~ones_sum(data, start) & 0xFFFF


def apply_checksum(correct, how):
    if how is None:
        return correct
    if isinstance(how, int):
        return how
    return correct ^ how[1]


def pseudo(src, dst, proto, length):
    """Sum of the pseudo header, to start an L4 checksum with. That of IPv6 (RFC 8200, 8.1) has
    the same fields in other places, which a sum does not tell."""
    return ones_sum(addr(src) + addr(dst) + struct.pack("!BBH", 0, proto, length & 0xFFFF))


def ethernet(dst, src, ethertype, payload, vlan=None):
    tag = b"" if vlan is None else struct.pack("!HH", ETH_VLAN, vlan)
    return dst + src + tag + struct.pack("!H", ethertype) + payload


def ipv4(src, dst, proto, payload, *, tos=0, ident=0, flags=2, offset=0, ttl=64, options=b"", version=4,
         ihl=None, length=None, check=None):
    """An IPv4 packet. flags: 4 reserved, 2 DF, 1 MF; offset in units of 8 bytes; ihl in words
    and length in bytes override what would be right. options are padded with zeros."""
    options += b"\0" * (-len(options) % 4)
    if ihl is None:
        ihl = 5 + len(options) // 4
    if length is None:
        length = 20 + len(options) + len(payload)
    head = struct.pack("!BBHHHBBH4s4s", (version << 4 | ihl) & 0xFF, tos, length & 0xFFFF, ident,
                       flags << 13 | offset, ttl, proto, 0, addr(src), addr(dst)) + options
    value = apply_checksum(checksum(head), check)
    return head[:10] + struct.pack("!H", value) + head[12:] + payload


def ipv6(src, dst, proto, payload, *, tclass=0, label=0, hop=64, version=6, length=None, ext=()):
    """An IPv6 packet. length overrides what would be right. ext: extension headers in order, as
    (type, bytes after its next-header byte)."""
    chain = [kind for kind, _ in ext] + [proto]
    headers = b"".join(bytes([follows]) + body for (_, body), follows in zip(ext, chain[1:]))
    if length is None:
        length = len(headers) + len(payload)
    return struct.pack("!IHBB", version << 28 | tclass << 20 | label, length & 0xFFFF, chain[0], hop) \
        + addr(src) + addr(dst) + headers + payload


def tcp(src, dst, sport, dport, payload=b"", *, seq=0, ack=0, flags=ACK, window=1024, urgent=0, options=b"",
        doff=None, reserved=0, check=None):
    """A TCP segment for the addresses given. doff in words overrides what would be right."""
    options += b"\0" * (-len(options) % 4)
    if doff is None:
        doff = 5 + len(options) // 4
    segment = struct.pack("!HHIIBBHHH", sport, dport, seq, ack, doff << 4 | reserved, flags, window, 0,
                          urgent) + options + payload
    value = apply_checksum(checksum(segment, pseudo(src, dst, TCP, len(segment))), check)
    return segment[:16] + struct.pack("!H", value) + segment[18:]


def udp(src, dst, sport, dport, payload=b"", *, length=None, check=None):
    """A UDP datagram. A correct checksum of zero is sent as 0xffff (RFC 768)."""
    if length is None:
        length = 8 + len(payload)
    datagram = struct.pack("!HHHH", sport, dport, length & 0xFFFF, 0) + payload
    correct = checksum(datagram, pseudo(src, dst, UDP, length)) or 0xFFFF
    return datagram[:6] + struct.pack("!H", apply_checksum(correct, check)) + datagram[8:]


def icmp(kind, code, rest, payload, *, check=None):
    """rest: the four bytes after the checksum."""
    message = struct.pack("!BBH", kind, code, 0) + rest + payload
    return message[:2] + struct.pack("!H", apply_checksum(checksum(message), check)) + message[4:]


def icmp6(src, dst, kind, code, rest, payload, *, check=None):
    """rest: the four bytes after the checksum."""
    message = struct.pack("!BBH", kind, code, 0) + rest + payload
    correct = checksum(message, pseudo(src, dst, ICMPV6, len(message)))
    return message[:2] + struct.pack("!H", apply_checksum(correct, check)) + message[4:]


def arp_request(sha, spa, tpa):
    return struct.pack("!HHBBH6s4s6s4s", 1, ETH_IP, 6, 4, 1, sha, addr(spa), bytes(6), addr(tpa))


def fragments(packet, cuts):
    """Fragments of an IPv4 packet without options. cuts: (first, last) byte offsets into its
    payload, first a multiple of 8; last None for the end."""
    head, body = packet[:20], packet[20:]
    flags = struct.unpack("!H", head[6:8])[0] & 0xC000
    parts = []
    for first, last in cuts:
        piece = body[first:last]
        more = 0x2000 if last is not None and last < len(body) else 0
        new = head[:2] + struct.pack("!HHH", 20 + len(piece), int.from_bytes(head[4:6], "big"),
                                     flags | more | first // 8) + head[8:10] + b"\0\0" + head[12:]
        parts.append(new[:10] + struct.pack("!H", checksum(new)) + new[12:] + piece)
    return parts


def fragments6(packet, cuts, ident):
    """Fragments of an IPv6 packet without extension headers; cuts as for fragments()."""
    head, body = packet[:40], packet[40:]
    parts = []
    for first, last in cuts:
        piece = body[first:last]
        more = 1 if last is not None and last < len(body) else 0
        parts.append(head[:4] + struct.pack("!HB", 8 + len(piece), FRAGMENT) + head[7:]
                     + struct.pack("!BBHI", head[6], 0, first | more, ident) + piece)
    return parts


# ------------------------------------------------------------------ dissecting

class _Fields:
    """Fields of a frame in order: (offset, length, name, text)."""

    def __init__(self, data):
        self.data, self.at, self.list = data, 0, []

    def left(self):
        return len(self.data) - self.at

    def take(self, name, length, show=None):
        raw = self.data[self.at:self.at + length]
        if raw:
            text = show(raw) if show and len(raw) == length else raw.hex()
            self.list.append((self.at, len(raw), name, text))
        self.at += len(raw)
        return raw

    def number(self, name, length, form="%d"):
        return int.from_bytes(self.take(name, length, lambda raw: form % int.from_bytes(raw, "big")), "big")


def _mac_text(raw):
    return ":".join("%02x" % byte for byte in raw)


def _flag_text(raw):
    names = "FIN SYN RST PSH ACK URG ECE CWR".split()
    return "0x%02x %s" % (raw[0], "|".join(name for bit, name in enumerate(names) if raw[0] >> bit & 1))


def _l4_fields(fields, proto, depth):
    pre = "inner " * depth
    if proto == TCP and fields.left() >= 4:
        for name in ("tcp sport", "tcp dport"):
            fields.number(pre + name, 2)
        for name in ("tcp seq", "tcp ack"):
            fields.number(pre + name, 4)
        doff = fields.number(pre + "tcp doff|reserved", 1, "0x%02x") >> 4
        fields.take(pre + "tcp flags", 1, _flag_text)
        fields.number(pre + "tcp window", 2)
        fields.number(pre + "tcp checksum", 2, "0x%04x")
        fields.number(pre + "tcp urgent", 2)
        if doff > 5:
            fields.take(pre + "tcp options", doff * 4 - 20)
    elif proto == UDP and fields.left() >= 4:
        for name in ("udp sport", "udp dport", "udp length"):
            fields.number(pre + name, 2)
        fields.number(pre + "udp checksum", 2, "0x%04x")
    elif proto == ICMP and fields.left() >= 4:
        kind = fields.number(pre + "icmp type", 1)
        fields.number(pre + "icmp code", 1)
        fields.number(pre + "icmp checksum", 2, "0x%04x")
        fields.take(pre + "icmp rest", 4)
        if kind in (3, 4, 5, 11, 12):
            _ip_fields(fields, depth + 1)


def _ip_fields(fields, depth):
    pre = "inner " * depth
    if fields.left() < 20:
        return
    begin = fields.at
    first = fields.number(pre + "ip version|ihl", 1, "0x%02x")
    fields.number(pre + "ip tos", 1, "0x%02x")
    length = fields.number(pre + "ip total length", 2)
    fields.number(pre + "ip id", 2, "0x%04x")
    frag = fields.number(pre + "ip flags|offset", 2, "0x%04x")
    fields.number(pre + "ip ttl", 1)
    proto = fields.number(pre + "ip protocol", 1)
    fields.number(pre + "ip checksum", 2, "0x%04x")
    fields.take(pre + "ip src", 4, socket.inet_ntoa)
    fields.take(pre + "ip dst", 4, socket.inet_ntoa)
    if (first & 15) > 5:
        fields.take(pre + "ip options", (first & 15) * 4 - 20)
    if not frag & 0x1FFF:
        if proto == IPIP and depth < 3:
            _ip_fields(fields, depth + 1)
        elif proto == IPV6 and depth < 3:
            _ip6_fields(fields, depth + 1)
        else:
            _l4_fields(fields, proto, depth)
    if begin + length < len(fields.data) and begin + length > fields.at:
        fields.take(pre + "payload", begin + length - fields.at)
        fields.take("trailing bytes", fields.left())


def _ip6_fields(fields, depth):
    pre = "inner " * depth
    if fields.left() < 40:
        return
    begin = fields.at
    fields.take(pre + "ipv6 version|class|label", 4)
    length = fields.number(pre + "ipv6 payload length", 2)
    proto = fields.number(pre + "ipv6 next header", 1)
    fields.number(pre + "ipv6 hop limit", 1)
    for name in ("ipv6 src", "ipv6 dst"):
        fields.take(pre + name, 16, lambda raw: socket.inet_ntop(socket.AF_INET6, raw))
    while proto in (HOP_BY_HOP, ROUTING, FRAGMENT, DEST_OPTIONS) and fields.left() >= 8:
        name = "%sextension %d " % (pre, proto)
        proto = fields.number(name + "next header", 1)
        size = 8 if name.endswith("44 ") else 8 + 8 * fields.data[fields.at]
        fields.take(name + "rest", size - 1)
    if proto == IPIP and depth < 3:
        _ip_fields(fields, depth + 1)
    elif proto == IPV6 and depth < 3:
        _ip6_fields(fields, depth + 1)
    elif proto == ICMPV6 and fields.left() >= 8:
        kind = fields.number(pre + "icmpv6 type", 1)
        fields.number(pre + "icmpv6 code", 1)
        fields.number(pre + "icmpv6 checksum", 2, "0x%04x")
        fields.take(pre + "icmpv6 rest", 4)
        if kind < 128:
            _ip6_fields(fields, depth + 1)
    else:
        _l4_fields(fields, proto, depth)
    if begin + 40 + length < len(fields.data) and begin + 40 + length > fields.at:
        fields.take(pre + "payload", begin + 40 + length - fields.at)
        fields.take("trailing bytes", fields.left())


def dissect(frame):
    """List of (offset, length, name, text), in order, that covers the whole frame."""
    fields = _Fields(frame)
    fields.take("eth dst", 6, _mac_text)
    fields.take("eth src", 6, _mac_text)
    kind = fields.number("ethertype", 2, "0x%04x")
    if kind == ETH_VLAN:
        fields.number("vlan tci", 2, "0x%04x")
        kind = fields.number("ethertype", 2, "0x%04x")
    if kind == ETH_IP:
        _ip_fields(fields, 0)
    elif kind == ETH_IPV6:
        _ip6_fields(fields, 0)
    fields.take("payload", fields.left())
    return fields.list


def hexdump(data, marks=()):
    """Lines of 16 bytes; bytes whose offset is in marks get a star."""
    lines = []
    for at in range(0, len(data), 16):
        cells = ["%02x%s" % (byte, "*" if at + i in marks else " ") for i, byte in enumerate(data[at:at + 16])]
        lines.append("    %04x  %s" % (at, "".join(cells)))
    return lines


def show(frame, limit=48):
    """One line a field, long ones cut."""
    return ["    %-24s %s" % (name, text if len(text) <= limit else text[:limit] + "... (%d bytes)" % size)
            for _, size, name, text in dissect(frame)]


def diff(want, got):
    """Lines that tell how two frames differ: by field, then as bytes."""
    lines = []
    ours = {(name, at): text for at, _, name, text in dissect(got)}
    for at, _, name, text in dissect(want):
        other = ours.pop((name, at), None)
        if other != text:
            lines.append("    %-24s expected %s, got %s" % (name, text[:64], other[:64] if other else "nothing"))
    lines += ["    %-24s unexpected: %s" % (name, text[:64]) for (name, _), text in ours.items()]
    if len(want) != len(got):
        lines.append("    %-24s expected %d bytes, got %d" % ("frame length", len(want), len(got)))
    marks = {i for i in range(max(len(want), len(got))) if want[i:i + 1] != got[i:i + 1]}
    return lines + ["  expected:"] + hexdump(want, marks) + ["  got:"] + hexdump(got, marks)
