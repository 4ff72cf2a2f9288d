# SPDX-License-Identifier: GPL-2.0-only
"""Recipes: a packet as a small dict of what is not plain about it, and how to build it.

A recipe survives a change of the connection it belongs to (ports change when a connection is
made again), goes through JSON for --replay, and is easy to minimise: delete keys. Keys:

  conn dir len seed idx     connection, "o" or "r", payload length and content, number in the run
  edst esrc etype vlan      Ethernet: names of EDST/ESRC, EtherType, TCI of an 802.1Q tag
  pad cut                   random bytes added to, bytes cut off the end of the frame
  tos id df mf rsv off ttl opt ver ihl totlen ipsum ipwant proto src dst   IPv4 (totlen: difference)
  tos ttl ver totlen proto src dst label ext          IPv6 (ext: extension headers, see frames.ipv6)
  sport dport seq ack flags win urg topt doff res     TCP
  ulen                      UDP length (difference)
  sum want post             L4 checksum; payload made so that the checksum is `want` as sent,
                            `post` as it leaves the router
  frags                     fragment cuts, in the order of sending
  icmp qlen                 an ICMP error [type, code] quoting the connection, with qlen bytes
  arp                       a question for this address's MAC (ARP, ND) instead of all that
  o_*                       the same keys for a tunnel's outer header
  bare nest itrunc          no outer header; one more header of the inner family; inner packet cut by n bytes
"""
import random

import frames
from frames import ACK, PSH, TCP, UDP, ones_sum
from same_ip import LIMIT, fill, how
from same_lab import MACS

TAG = b"\xf7\x5e"
EDST = {"other": frames.mac("02:00:00:00:0c:07"), "bcast": b"\xff" * 6, "mcast": frames.mac("01:00:5e:00:00:01"),
        "zero": bytes(6)}
ESRC = {"bcast": b"\xff" * 6, "mcast": frames.mac("01:00:5e:00:00:05"), "zero": bytes(6), "router": MACS["ra"]}
CLOSING = frames.FIN | frames.SYN | frames.RST


def _payload(recipe):
    length = recipe.get("len", 0)
    body = random.Random(recipe.get("seed", 0)).randbytes(length)
    tag = TAG + recipe.get("idx", 0).to_bytes(4, "big")
    return tag + body[len(tag):] if length >= len(tag) else body


def _l4_once(recipe, proto, tup, payload, check):
    if proto == TCP:
        return frames.tcp(tup.src, tup.dst, tup.sport, tup.dport, payload, seq=recipe.get("seq", 1000),
                          ack=recipe.get("ack", 2000), flags=recipe.get("flags", ACK | PSH),
                          window=recipe.get("win", 1024), urgent=recipe.get("urg", 0),
                          options=bytes.fromhex(recipe.get("topt", "")), doff=recipe.get("doff"),
                          reserved=recipe.get("res", 0), check=check)
    length = 8 + len(payload) + recipe["ulen"] if "ulen" in recipe else None
    return frames.udp(tup.src, tup.dst, tup.sport, tup.dport, payload, length=length, check=check)


def _l4(recipe, conn, tup):
    payload = _payload(recipe)
    for key, view in (("want", tup), ("post", conn.arriving(recipe["dir"]))):
        if key in recipe and len(payload) >= 8:
            at = (len(payload) - 2) & ~1
            payload = payload[:at] + b"\0\0" + payload[at + 2:]
            segment = _l4_once(recipe, conn.proto, view, payload, 0)
            word = fill(recipe[key], ones_sum(segment, frames.pseudo(view.src, view.dst, conn.proto, len(segment))))
            payload = payload[:at] + word.to_bytes(2, "big") + payload[at + 2:]
    segment = _l4_once(recipe, conn.proto, tup, payload, how(recipe.get("sum")))
    if not {"want", "post"} & recipe.keys() and len(payload) > 6 and _looks_unfinished(segment, conn.proto, tup):
        payload = payload[:-1] + bytes([payload[-1] ^ 1])
        segment = _l4_once(recipe, conn.proto, tup, payload, how(recipe.get("sum")))
    return segment


def _looks_unfinished(segment, proto, tup):
    """One random checksum in 65536 is the sum of the pseudo header as well. A tunnel in user space takes it for one
    that the device is to finish; the wire would see no difference, but the end of this one does."""
    at = 16 if proto == TCP else 6
    return int.from_bytes(segment[at:at + 2], "big") == frames.pseudo(tup.src, tup.dst, proto, len(segment))


def inner_packet(recipe, conn):
    """The packet of a recipe without tunnel header and fragmentation."""
    sent, ip = conn.sent(recipe["dir"]), conn.ip
    tup = type(sent)(sent.src, recipe.get("sport", sent.sport), sent.dst, recipe.get("dport", sent.dport))
    if "icmp" in recipe:
        # About what the sender of this direction received from the other end.
        seen = conn.arriving("r" if recipe["dir"] == "o" else "o")
        proto, l4 = ip.icmp(recipe, tup, seen, (conn.proto, _l4_once({}, conn.proto, seen, bytes(64), None)))
    else:
        proto, l4 = conn.proto, _l4(recipe, conn, tup)
    packet = ip.packet(recipe, "", tup.src, tup.dst, proto, l4)
    if recipe.get("nest"):
        packet = ip.packet({}, "", sent.src, sent.dst, ip.number, packet)
    return packet


def _padding(recipe):
    return random.Random(recipe.get("seed", 0) + 1).randbytes(recipe.get("pad", 0))


def build(recipe, conn, variant):
    """(side to send from, frames in order)."""
    side = conn.sender(recipe["dir"])
    ours, router = ("la", "ra") if side == "L" else ("wa", "rb")
    dst = EDST[recipe["edst"]] if "edst" in recipe else MACS[router]
    src = ESRC[recipe["esrc"]] if "esrc" in recipe else MACS[ours]
    ip = conn.ip
    if "arp" in recipe:
        return side, ip.solicit(MACS[ours], ip.l_host if side == "L" else ip.w_host, recipe["arp"])
    packet = inner_packet(recipe, conn)
    packets = ip.fragments(recipe, packet) if "frags" in recipe else [packet]
    if variant.tunnel and side == "W" and not recipe.get("bare"):
        ip = variant.outer
        packets = [variant.wrap(recipe, packet[:len(packet) - recipe.get("itrunc", 0)]) for packet in packets]
    tail = _padding(recipe)
    result = []
    for packet in packets:
        frame = frames.ethernet(dst, src, recipe.get("etype", ip.ethertype), packet + tail, recipe.get("vlan"))
        result.append(frame[:max(14, len(frame) - recipe.get("cut", 0))])
    return side, result


# What the contract sends to the stack, whatever the value (and the family's own).
_STACK = {"edst", "etype", "vlan", "proto", "src", "dst", "sport", "dport", "frags", "icmp", "arp", "bare", "nest",
          "itrunc", "ver", "o_proto", "o_src", "o_dst", "o_ver"}
# Where both are right, to take it and to pass it on. Everything else must be fast.
_DOUBT = {"pad", "cut", "sum", "res", "esrc", "totlen", "ulen", "doff", "o_totlen"}


def _relevant(recipe, conn, variant):
    """The keys that make the packet other than plain: outer ones only where there is an outer
    header, and none that says what would be so anyway."""
    sent, outer = conn.sent(recipe["dir"]), variant.outer
    plain = {"ver": conn.ip.version, "proto": conn.proto, "src": sent.src, "dst": sent.dst, "sport": sent.sport,
             "dport": sent.dport, "pad": 0, "cut": 0, "totlen": 0, "ulen": 0, "itrunc": 0, **conn.ip.plain}
    plain.update({"o_" + key: value for key, value in outer.plain.items()}, o_ver=outer.version, o_proto=conn.ip.number,
                 o_src=outer.w_host, o_dst=outer.r_wan, o_totlen=0)
    if _only_limit(recipe.get("o_ext", ())):
        plain["o_ext"] = recipe.get("o_ext")
    wrapped = variant.tunnel and conn.sender(recipe["dir"]) == "W"
    plain["etype"] = (outer if wrapped and "bare" not in recipe else conn.ip).ethertype
    return {key for key, value in recipe.items() if plain.get(key, "") != value
            and (wrapped or not (key.startswith("o_") or key in ("itrunc", "bare")))}


def _only_limit(extensions):
    """None, or the encapsulation limit in the kernel's own layout; the receiver ignores which."""
    alike = [[kind, body[:6] + LIMIT[1][6:8] + body[8:]] == LIMIT for kind, body in extensions]
    return alike in ([], [True])


def l4_right(recipe, conn):
    """(lengths are consistent, checksum is right) of what follows the plain IP header of a
    recipe's packet, which may reach into the padding."""
    packet = inner_packet(recipe, conn) + _padding(recipe)
    proto, total, _ = conn.ip.read(packet)
    segment = packet[conn.ip.head:max(conn.ip.head, total)]
    if proto == TCP:
        sane = len(segment) >= 20 and 20 <= (segment[12] >> 4) * 4 <= len(segment)
        length = len(segment)
    else:
        length = int.from_bytes(segment[4:6], "big") if len(segment) >= 8 else 0
        sane = 8 <= length <= len(segment)
    if not sane:
        return False, False
    total = ones_sum(conn.ip.addresses(packet) + bytes([0, proto]) + length.to_bytes(2, "big") + segment[:length])
    return True, total == 0xFFFF or (proto == UDP and segment[6:8] == b"\0\0")


def fast(recipe, conn, variant):
    """What the fast path does with it when the flow is live: it "must" or "may" take it, or "never"
    does. Independent of the datapath: from the contract's list."""
    keys, ip, outer = _relevant(recipe, conn, variant), conn.ip, variant.outer
    stack = _STACK | ip.stack | {"o_" + key for key in outer.stack}
    if not variant.fast or keys & stack.difference(variant.doubt):
        return "never"
    packet = inner_packet(recipe, conn)
    (_, total, right), side = ip.read(packet), conn.sender(recipe["dir"])
    tail = recipe.get("pad", 0) - recipe.get("cut", 0)
    if not right or not l4_right(recipe, conn)[0] or total > len(packet) + tail:
        return "never"
    flags = recipe.get("flags", ACK)
    if recipe.get("ttl", 64) <= 1 or (conn.proto == TCP and (flags & CLOSING or not flags & ACK)):
        return "never"
    if total > variant.out_mtu("W" if side == "L" else "L"):
        return "never"
    if variant.tunnel and side == "W":
        wrapped = variant.wrap(recipe, packet)
        _, length, right = outer.read(wrapped)
        if variant.slow_in or not right or not len(wrapped) - len(packet) + total <= length <= len(wrapped) + tail:
            return "never"
        if recipe.get("o_tos", 0) & 3 == 3 and recipe.get("tos", 0) & 3 == 0:
            return "never"
        # With an option that the tunnel's MTU does not count on it may be longer than the link takes.
        if recipe.get("o_ttl", 64) <= 1 or len(wrapped) > variant.wan_mtu:
            return "may"
    if variant.tunnel and outer.version == 4 and not recipe.get("df", 1):
        return "may"
    doubt = _DOUBT | ip.doubt | {"o_" + key for key in outer.outer_doubt}
    return "may" if keys & doubt.union(variant.doubt) else "must"
