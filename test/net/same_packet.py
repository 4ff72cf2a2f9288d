# SPDX-License-Identifier: GPL-2.0-only
"""Recipes: a packet as a small dict of what is not plain about it, and how to build it.

A recipe survives a change of the connection it belongs to (ports change when a connection is
made again), goes through JSON for --replay, and is easy to minimise: delete keys. Keys:

  conn dir len seed idx     connection, "o" or "r", payload length and content, number in the run
  edst esrc etype vlan      Ethernet: names of EDST/ESRC, EtherType, TCI of an 802.1Q tag
  pad cut                   random bytes added to, bytes cut off the end of the frame
  tos id df mf rsv off ttl opt ver ihl totlen ipsum ipwant proto src dst   IPv4 (totlen: difference)
  sport dport seq ack flags win urg topt doff res     TCP
  ulen                      UDP length (difference)
  sum want post             L4 checksum; payload made so that the checksum is `want` as sent,
                            `post` as it leaves the router
  frags                     fragment cuts, in the order of sending
  icmp qlen                 an ICMP error [type, code] quoting the connection, with qlen bytes
  arp                       an ARP request for this address instead of all that
  o_*                       outer header of IPIP: tos id df mf rsv off ttl opt ver ihl totlen ipsum proto src dst
  bare nest itrunc          no outer header; one more IPIP header; inner packet cut by n bytes
"""
import random

import frames
from frames import ACK, PSH, TCP, UDP, ones_sum
from same_lab import MACS
from same_variants import R_WAN, W_HOST

TAG = b"\xf7\x5e"
EDST = {"other": frames.mac("02:00:00:00:0c:07"), "bcast": b"\xff" * 6, "mcast": frames.mac("01:00:5e:00:00:01"),
        "zero": bytes(6)}
ESRC = {"bcast": b"\xff" * 6, "mcast": frames.mac("01:00:5e:00:00:05"), "zero": bytes(6), "router": MACS["ra"]}
CLOSING = frames.FIN | frames.SYN | frames.RST


def _how(value):
    """A checksum specification as it comes out of JSON."""
    return tuple(value) if isinstance(value, list) else value


def _payload(recipe):
    length = recipe.get("len", 0)
    body = random.Random(recipe.get("seed", 0)).randbytes(length)
    tag = TAG + recipe.get("idx", 0).to_bytes(4, "big")
    return tag + body[len(tag):] if length >= len(tag) else body


def _fill(value, total):
    """The word that, added to a sum of `total`, makes its checksum `value`."""
    return ones_sum(((~value & 0xFFFF) + (~total & 0xFFFF)).to_bytes(4, "big"))


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
            word = _fill(recipe[key], ones_sum(segment, frames.pseudo(view.src, view.dst, conn.proto, len(segment))))
            payload = payload[:at] + word.to_bytes(2, "big") + payload[at + 2:]
    return _l4_once(recipe, conn.proto, tup, payload, _how(recipe.get("sum")))


def _icmp(recipe, conn):
    """An error about what the sender of this direction received from the other end."""
    seen = conn.arriving("r" if recipe["dir"] == "o" else "o")
    quote = frames.ipv4(seen.src, seen.dst, conn.proto, _l4_once({}, conn.proto, seen, bytes(64), None), ttl=60)
    rest = bytes(4)
    if recipe["icmp"] == [3, 4]:
        rest = (1300).to_bytes(4, "big")
    elif recipe["icmp"][0] in (0, 8, 13, 14):  # an ID of its own, else NAT may have to draw another one
        rest = (recipe.get("idx", 0) & 0xFFFF).to_bytes(2, "big") + bytes(2)
    return frames.icmp(*recipe["icmp"], rest, quote[:recipe.get("qlen", 28)], check=_how(recipe.get("sum")))


def _header(recipe, prefix, src, dst, proto, payload):
    """An IPv4 packet from the recipe's keys that begin with prefix."""
    def get(name, default):
        return recipe.get(prefix + name, default)

    options = bytes.fromhex(get("opt", ""))
    flags = (4 if get("rsv", 0) else 0) | (2 if get("df", 1) else 0) | (1 if get("mf", 0) else 0)
    length = 20 + len(options) + -len(options) % 4 + len(payload) + get("totlen", 0)
    # Each packet has an ID of its own, as senders do it: the witness knows packets by it.
    ident = get("id", (recipe.get("idx", 0) * 7 + 0x1234) & 0xFFFF)
    fields = {"tos": get("tos", 0), "ident": ident, "flags": flags, "offset": get("off", 0), "ttl": get("ttl", 64),
              "options": options, "version": get("ver", 4), "ihl": get("ihl", None), "length": max(0, length),
              "check": _how(get("ipsum", None))}
    src, dst, proto = get("src", src), get("dst", dst), get("proto", proto)
    if get("ipwant", None) is not None:
        fields["ident"] = 0
        head = frames.ipv4(src, dst, proto, payload, **{**fields, "check": 0})[:20 + len(options) + -len(options) % 4]
        fields["ident"] = _fill(get("ipwant", 0), ones_sum(head))
    return frames.ipv4(src, dst, proto, payload, **fields)


def inner_packet(recipe, conn):
    """The packet of a recipe without tunnel header and fragmentation."""
    sent = conn.sent(recipe["dir"])
    tup = type(sent)(sent.src, recipe.get("sport", sent.sport), sent.dst, recipe.get("dport", sent.dport))
    if "icmp" in recipe:
        packet = _header(recipe, "", tup.src, tup.dst, frames.ICMP, _icmp(recipe, conn))
    else:
        packet = _header(recipe, "", tup.src, tup.dst, conn.proto, _l4(recipe, conn, tup))
    if recipe.get("nest"):
        packet = frames.ipv4(sent.src, sent.dst, frames.IPIP, packet)
    return packet


def _padding(recipe):
    return random.Random(recipe.get("seed", 0) + 1).randbytes(recipe.get("pad", 0))


def build(recipe, conn, variant):
    """(side to send from, frames in order)."""
    side = conn.sender(recipe["dir"])
    ours, router = ("la", "ra") if side == "L" else ("wa", "rb")
    dst = EDST[recipe["edst"]] if "edst" in recipe else MACS[router]
    src = ESRC[recipe["esrc"]] if "esrc" in recipe else MACS[ours]
    if "arp" in recipe:
        asker = "192.0.2.2" if side == "L" else W_HOST
        return side, [frames.ethernet(EDST["bcast"], MACS[ours], frames.ETH_ARP,
                                      frames.arp_request(MACS[ours], asker, recipe["arp"]))]
    packet = inner_packet(recipe, conn)
    packets = frames.fragments(packet, recipe["frags"]) if "frags" in recipe else [packet]
    if variant.tunnel and side == "W" and not recipe.get("bare"):
        packets = [_header(recipe, "o_", W_HOST, R_WAN, frames.IPIP, packet[:len(packet) - recipe.get("itrunc", 0)])
                   for packet in packets]
    tail = _padding(recipe)
    result = []
    for packet in packets:
        frame = frames.ethernet(dst, src, recipe.get("etype", frames.ETH_IP), packet + tail, recipe.get("vlan"))
        result.append(frame[:max(14, len(frame) - recipe.get("cut", 0))])
    return side, result


# What the contract sends to the stack, whatever the value.
_STACK = {"edst", "etype", "vlan", "mf", "off", "opt", "proto", "src", "dst", "sport", "dport", "frags", "icmp",
          "arp", "bare", "nest", "itrunc", "ver", "ihl", "o_mf", "o_off", "o_opt", "o_proto", "o_src", "o_dst",
          "o_ver", "o_ihl"}
# Where both are right, to take it and to pass it on. Everything else must be fast.
_DOUBT = {"pad", "cut", "sum", "rsv", "res", "esrc", "totlen", "ulen", "doff", "ipsum", "o_df", "o_rsv", "o_ipwant",
          "o_ipsum", "o_totlen"}


def _relevant(recipe, conn, variant):
    """The keys that make the packet other than plain: outer ones only where there is an outer
    header, and none that says what would be so anyway."""
    sent = conn.sent(recipe["dir"])
    plain = {"off": 0, "mf": 0, "ver": 4, "ihl": 5, "proto": conn.proto, "src": sent.src, "dst": sent.dst,
             "sport": sent.sport, "dport": sent.dport, "pad": 0, "cut": 0, "totlen": 0, "ulen": 0, "o_off": 0,
             "o_ver": 4, "o_ihl": 5, "o_proto": 4, "o_src": W_HOST, "o_dst": R_WAN, "o_totlen": 0, "itrunc": 0}
    wrapped = variant.tunnel and conn.sender(recipe["dir"]) == "W"
    return {key for key, value in recipe.items() if plain.get(key, "") != value
            and (wrapped or not (key.startswith("o_") or key in ("itrunc", "bare")))}


def l4_right(recipe, conn):
    """(lengths are consistent, checksum is right) of what follows the 20-byte IPv4 header of a
    recipe's packet, which may reach into the padding."""
    packet = inner_packet(recipe, conn) + _padding(recipe)
    total = int.from_bytes(packet[2:4], "big")
    segment = packet[20:max(20, total)]
    if packet[9] == TCP:
        sane = len(segment) >= 20 and 20 <= (segment[12] >> 4) * 4 <= len(segment)
        length = len(segment)
    else:
        length = int.from_bytes(segment[4:6], "big") if len(segment) >= 8 else 0
        sane = 8 <= length <= len(segment)
    if not sane:
        return False, False
    total = ones_sum(packet[12:20] + bytes([0, packet[9]]) + length.to_bytes(2, "big") + segment[:length])
    return True, total == 0xFFFF or (packet[9] == UDP and segment[6:8] == b"\0\0")


def fast(recipe, conn, variant):
    """What the fast path does with it when the flow is live: it "must" or "may" take it, or "never"
    does. Independent of the datapath: from the contract's list."""
    keys = _relevant(recipe, conn, variant)
    if not variant.fast or keys & _STACK.difference(variant.doubt):
        return "never"
    packet = inner_packet(recipe, conn)
    total, side = int.from_bytes(packet[2:4], "big"), conn.sender(recipe["dir"])
    tail = recipe.get("pad", 0) - recipe.get("cut", 0)
    if frames.checksum(packet[:20]) or not l4_right(recipe, conn)[0] or total > len(packet) + tail:
        return "never"
    flags = recipe.get("flags", ACK)
    if recipe.get("ttl", 64) <= 1 or (conn.proto == TCP and (flags & CLOSING or not flags & ACK)):
        return "never"
    if total > variant.out_mtu("W" if side == "L" else "L"):
        return "never"
    if variant.tunnel and side == "W":
        outer = _header(recipe, "o_", W_HOST, R_WAN, frames.IPIP, packet)
        length = int.from_bytes(outer[2:4], "big")
        if frames.checksum(outer[:20]) or not 20 + total <= length <= len(outer) + tail:
            return "never"
        if recipe.get("o_tos", 0) & 3 == 3 and recipe.get("tos", 0) & 3 == 0:
            return "never"
        if recipe.get("o_ttl", 64) <= 1:
            return "may"
    if variant.tunnel and not recipe.get("df", 1):
        return "may"
    return "may" if keys & _DOUBT.union(variant.doubt) else "must"
