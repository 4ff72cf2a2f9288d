# SPDX-License-Identifier: GPL-2.0-only
"""U52: no UDP checksum stays none; a computed zero leaves as 0xffff; all others verify after NAT, or are still for the
device to finish, with the new addresses in the sum of the pseudo header."""
import random
import struct

import frames
from lab import check, check_equal
from labs import L_ADDR, RB_ADDR, W_ADDR, lab_a
from raw import Injector, Sniffer, is_flow, parse
from traffic import UdpFlow, UdpPeer, TcpStream, warm_up

MARK = b"u52:"


def ending_in(build, wanted):
    """A payload for which build(payload) has the checksum `wanted`, by its last two bytes."""
    empty = MARK + b"\0\0"
    word = ((~wanted & 0xffff) - (~build(empty) & 0xffff)) % 0xffff
    for value in (word, word ^ 0xffff):
        payload = MARK + struct.pack("!H", value)
        if build(payload) == wanted:
            return payload
    raise AssertionError("no payload gives this checksum")


def udp_sum(source):
    def build(payload):
        body = frames.udp(source, W_ADDR, 40000, 9, payload, check=0)
        return frames.checksum(body, frames.pseudo(source, W_ADDR, 17, len(body)))
    return build


def run():
    with lab_a() as lab:
        UdpPeer(lab["W"], W_ADDR, 9, echo=True)
        flow = UdpFlow(lab["L"], ("0.0.0.0", 40000), (W_ADDR, 9))
        warm_up(flow)
        stream = TcpStream(lab["L"], (W_ADDR, 8000), lab["W"])
        injector = Injector(lab["L"], "la", lab["R"], "ra")

        def marked(frame):
            packet = parse(frame)
            return bool(packet and packet.payload().startswith(MARK))

        udp, tcp = Sniffer(lab["W"], "wa", is_flow(17, dport=9)), Sniffer(lab["W"], "wa", marked)

        after_zero = ending_in(udp_sum(RB_ADDR), 0)
        before_zero = ending_in(udp_sum(L_ADDR), 0)
        around = [ending_in(udp_sum(RB_ADDR), value) for value in (1, 0xfffe, 0x00ff, 0xff00)]
        chance = random.Random(52)
        many = [MARK + chance.randbytes(chance.randrange(0, 200)) for _number in range(2000)]

        def datagrams():
            yield frames.udp(L_ADDR, W_ADDR, 40000, 9, MARK + b"none", check=0), 0
            for payload in (after_zero,):
                yield frames.udp(L_ADDR, W_ADDR, 40000, 9, payload), 0xffff
            for payload in [before_zero, *around, *many]:
                yield frames.udp(L_ADDR, W_ADDR, 40000, 9, payload), None

        def tcp_sum(payload):
            body = frames.tcp(RB_ADDR, W_ADDR, stream.sport, 8000, payload, seq=7)
            return struct.unpack_from("!H", body, 16)[0]

        segments = [ending_in(tcp_sum, value) for value in (0, 1, 0xfffe)]

        def unfinished(proto, source, length):
            """A packet as a sender with checksum offload hands it to its device, and its checksum field."""
            payload = MARK + b"partial".ljust(length, b".")
            size = (8 if proto == 17 else 20) + len(payload)
            field = frames.pseudo(source, W_ADDR, proto, size)
            body = (frames.udp(L_ADDR, W_ADDR, 40000, 9, payload, check=field) if proto == 17 else
                    frames.tcp(L_ADDR, W_ADDR, stream.sport, 8000, payload, seq=7, check=field))
            return frames.ipv4(L_ADDR, W_ADDR, proto, body, ident=length), field

        def exercise_unfinished(text):
            for proto, offset, sniffer in ((17, 6, udp), (6, 16, tcp)):
                sniffer.clear()
                lengths = range(10, 1400, 13)
                for length in lengths:
                    injector.send_unfinished(unfinished(proto, L_ADDR, length)[0], 20, offset)
                got = {packet.ident: packet for packet in map(parse, sniffer.settle())
                       if packet.payload().startswith(MARK)}
                check_equal(len(got), len(lengths), f"{text}: packets of {proto} with unfinished checksums at W")
                for length in lengths:
                    check_equal(got[length].src, RB_ADDR, f"{text}: source after NAT")
                    check_equal(got[length].l4_csum, unfinished(proto, RB_ADDR, length)[1],
                                f"{text}: unfinished checksum, protocol {proto}, {length} bytes")

        def exercise(text):
            for sniffer in (udp, tcp):
                sniffer.clear()
            sent = list(datagrams())
            for number, (body, _want) in enumerate(sent):
                injector.send(frames.ipv4(L_ADDR, W_ADDR, 17, body, ident=number))
            got = {packet.ident: packet for packet in map(parse, udp.settle()) if packet.payload().startswith(MARK)}
            check_equal(len(got), len(sent), f"{text}: datagrams at W")
            for number, (_body, want) in enumerate(sent):
                check_equal((got[number].src, got[number].sport), (RB_ADDR, 40000), f"{text}: source after NAT")
                if want is not None:
                    check_equal(got[number].l4_csum, want, f"{text}: UDP checksum of datagram {number}")
                if want != 0:
                    check(got[number].l4_csum != 0 and got[number].l4_ok(), f"{text}: checksum of datagram {number}")
            for number, payload in enumerate(segments):
                segment = frames.tcp(L_ADDR, W_ADDR, stream.sport, 8000, payload, seq=7)
                injector.send(frames.ipv4(L_ADDR, W_ADDR, 6, segment, ident=number))
            segments_at_w = [packet for packet in map(parse, tcp.settle()) if packet.proto == 6]
            check_equal(len(segments_at_w), len(segments), f"{text}: segments at W")
            check(all(packet.l4_ok() for packet in segments_at_w), f"{text}: TCP checksums")

        lab["R"].sysctl_set("net/netfilter/nf_conntrack_tcp_be_liberal", 1)  # segments of any sequence number get NAT
        exercise("without ftctl")
        exercise_unfinished("without ftctl")
        lab.attach("ra", "rb")
        flow.start(50)
        lab.wait_live(proto="udp", sport=40000)
        lab.wait_live(proto="tcp", sport=stream.sport)
        flow.stop()
        flow.lost()
        before = lab.flow(proto="udp", sport=40000)["orig"]["packets"]
        exercise("with ftctl")
        carried = lab.flow(proto="udp", sport=40000)["orig"]["packets"] - before
        check(carried >= len(many) - 10, f"only {carried} datagrams were fast")
        ports = (("udp", 9), ("tcp", 8000))
        before = {proto: lab.flow(proto=proto, dport=port)["orig"]["packets"] for proto, port in ports}
        exercise_unfinished("with ftctl")
        for proto, port in ports:
            carried = lab.flow(proto=proto, dport=port)["orig"]["packets"] - before[proto]
            check(carried >= 100, f"only {carried} packets of {proto} with unfinished checksums were fast")
        stream.stop()
