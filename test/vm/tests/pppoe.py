# SPDX-License-Identifier: GPL-2.0-only
"""U46 and U47 with a real pppd at both ends: PPPoE over a VLAN, fast in both directions; what is not its session's data
is left alone; a new session is followed; two sessions are told apart."""
import os
import struct
import sys

VM = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [VM, os.path.join(os.path.dirname(VM), "net")]

# pylint: disable=wrong-import-position
import sessions  # noqa: E402
from lab import CONVERGE_S, Failure, check, check_equal, command, wait_until  # noqa: E402
from labs import lab_a  # noqa: E402
from raw import Sniffer  # noqa: E402
from traffic import MAGIC, UdpFlow, UdpPeer, check_fast  # noqa: E402

VID = 7
OTHER = 0x4000  # of a session number: not the flow's
TAG = struct.pack("!HH", 0x8100, VID)


def is_session(frame):
    """Session data of IPv4, the tag stripped by the receiver's kernel or not."""
    at = 16 if frame[12:14] == b"\x81\x00" else 12
    return frame[at:at + 2] == b"\x88\x64" and frame[at + 8:at + 10] == b"\x00\x21"


def session_of(frame):
    at = 16 if frame[12:14] == b"\x81\x00" else 12
    return struct.unpack_from("!H", frame, at + 4)[0]


def fast_flow(lab, unit, sport):
    """A UDP flow from L to the far end of ppp<unit>."""
    far = sessions.addresses(lab, "R", unit)["inet"][1]
    dev = next(link["ifname"] for link in lab["W"].ip_json("addr show")
               if any(addr.get("local") == far for addr in link["addr_info"]))
    lab["W"].ip(f"route replace 192.0.2.0/24 dev {dev}")
    peer = UdpPeer(lab["W"], far, 9)
    flow = UdpFlow(lab["L"], ("0.0.0.0", sport), (far, 9)).start(50)
    live = lab.wait_live(40, proto="udp", sport=sport)
    return flow, peer, live


def strays(session, mac_r, mac_w, data):
    """(what, frame) that must go to the stack as it came. `data`: a frame of the session's, without tag."""
    def sent(ether, body):
        return mac_r + mac_w + TAG + struct.pack("!H", ether) + body

    def ppp(head=0x11, code=0, number=session, length=None, proto=b"\x00\x21", body=data[22:]):
        size = len(proto) + len(body) if length is None else length
        return sent(0x8864, struct.pack("!BBHH", head, code, number, size) + proto + body)

    yield "PADI", sent(0x8863, b"\x11\x09\x00\x00\x00\x04\x01\x01\x00\x00".ljust(46, b"\0"))
    padt = struct.pack("!BBHH", 0x11, 0xA7, session ^ OTHER, 0)
    yield "PADT of another session", sent(0x8863, padt.ljust(46, b"\0"))
    echo = b"\x09\x01\x00\x08".ljust(40, b"\0")
    yield "LCP echo", ppp(proto=b"\xc0\x21", body=echo, number=session ^ OTHER)
    yield "IPCP", ppp(proto=b"\x80\x21", body=b"\x05\x01\x00\x04".ljust(40, b"\0"), number=session ^ OTHER)
    yield "compressed protocol", ppp(proto=b"\x21", number=session ^ OTHER)
    yield "another session", ppp(number=session ^ OTHER)
    yield "code", ppp(code=1)
    yield "version", ppp(head=0x21)
    yield "type", ppp(head=0x12)
    yield "length beyond the frame", ppp(length=len(data))
    yield "length within the packet", ppp(length=20)


def leave_alone(lab, flow, session):
    """Frames that are not data of the given PPPoE session: neither taken nor changed."""
    at_w, at_r = Sniffer(lab["W"], f"wa.{VID}", is_session), Sniffer(lab["R"], "rb", outgoing=False)
    back = Sniffer(lab["R"], "rb", is_session)
    flow.send(3)
    flow.lost()
    data = back.settle()[-1]
    data = data if data[12:14] != b"\x81\x00" else data[:12] + data[16:]
    data = data.replace(MAGIC, b"more")  # not a datagram that L would count
    wire = at_w.settle()[-1]
    at = 16 if wire[12:14] == b"\x81\x00" else 12
    kind, head, code, number, length = struct.unpack_from("!HBBHH", wire, at)
    check_equal((kind, head, code, number, length), (0x8864, 0x11, 0, session, len(wire) - at - 8),
                "PPPoE header of a fast packet on the wire")
    mac_r, mac_w = (bytes.fromhex(lab[side].mac(dev).replace(":", "")) for side, dev in (("R", "rb"), ("W", "wa")))
    before, passed = lab.flow(proto="udp", sport=flow.sport)["reply"]["packets"], lab.stats("rb")
    sender = lab["W"].socket(17, 3)  # AF_PACKET, SOCK_RAW
    sender.bind(("wa", 0))
    frames = list(strays(session, mac_r, mac_w, data))
    at_r.clear()
    for _what, frame in frames:
        sender.send(frame)
    wait_until(lambda: lab.stats("rb")["rx_packets"] >= passed["rx_packets"] + len(frames), 5, "rb has seen the strays")
    check_equal(lab.flow(proto="udp", sport=flow.sport)["reply"]["packets"], before, "strays that the flow has counted")
    seen = [frame if frame[12:14] == b"\x81\x00" else frame[:12] + TAG + frame[12:] for frame in at_r.settle()]
    for what, frame in frames:
        check(frame in seen, f"{what}: the stack did not get {frame.hex()}")
    check(len(sessions.listed(lab, "R")) > 0, "the session has survived")


def run():
    with lab_a(nat=False, watch={"up": "udp dport 9", "down": "udp sport 9"}) as lab:
        for role, dev in (("R", "rb"), ("W", "wa")):
            lab[role].ip(f"link add link {dev} name {dev}.{VID} type vlan id {VID}\nlink set {dev}.{VID} up")
        # A ppp device finishes checksums, so what comes from a veth with unfinished ones is left to the stack.
        lab["L"].run("ethtool", "-K", "la", "tx", "off")
        sessions.serve(lab, "W", f"wa.{VID}")
        client = sessions.dial(lab, "R", f"rb.{VID}")
        lab.start()
        done = lab.ftctl("attach", "ra", "ppp0")
        check_equal(done["uppers"], {"ppp0": ["rb"]}, "what ppp0 was resolved to")

        flow, _peer, live = fast_flow(lab, 0, 40000)
        first = next(iter(sessions.listed(lab, "R")))
        for side, key in (("orig", "push"), ("reply", "match")):
            check_equal((live[side][key]["vlan"], live[side][key]["pppoe"]["session"]),
                        ([{"proto": "802.1Q", "id": VID}], first), f"{side}: {key}")
        check_equal(live["orig"]["mtu"], 1492, "MTU of the way out")
        check_fast(lab, flow)
        leave_alone(lab, flow, first)
        check_fast(lab, flow)

        # The session ends and another one begins, under the same device name.
        flow.start(50)
        client.terminate()
        wait_until(lambda: not sessions.listed(lab, "R"), 20, "the first session is over")
        old = Sniffer(lab["W"], "wa", lambda frame: is_session(frame) and session_of(frame) == first)
        sessions.dial(lab, "R", f"rb.{VID}")
        second = next(iter(sessions.listed(lab, "R")))
        flow.stop()
        check(second != first, f"the server has given out session {first} again")
        again, _peer, live = fast_flow(lab, 0, 40001)
        check_equal(live["orig"]["push"]["pppoe"]["session"], second, "the new session")
        check_fast(lab, again)
        check_equal(len(old.frames()), 0, "frames of the session that is over")
        print("ok: fast over PPPoE and VLAN, strays left alone, the new session followed")

        # A second one beside it: which is whose, nobody tells.
        sessions.dial(lab, "R", f"rb.{VID}", unit=1)
        (third,) = set(sessions.listed(lab, "R")) - {second}
        other, _peer, live = fast_flow(lab, 1, 40002)
        check_equal(live["orig"]["push"]["pppoe"]["session"], third, "the session of ppp1")
        check_fast(lab, other)
        # A new daemon knows of neither: where it assumes the wrong one, nothing is seen to leave, and it tries another.
        lab.stop()
        lab.start()
        for unit, sport, session in ((1, 40003, third), (0, 40004, second)):
            late, _peer, live = fast_flow(lab, unit, sport)
            check_equal(live["orig"]["push"]["pppoe"]["session"], session, f"after a restart: the session of ppp{unit}")
            check_fast(lab, late)
        check(lab.alive(), "the daemon ended")
        print("ok: two sessions told apart")
        lab.detach()
    check(not lab.left_behind, f"left behind: {lab.left_behind}")
    return 0


def main():
    command(["modprobe", "-a", *"8021q pppoe nf_conntrack nf_conntrack_netlink nf_tables nft_ct".split()], ok=False)
    try:
        return run()
    except Failure as failure:
        print(f"FAIL: {failure}")
        return 1


sys.exit(main())
