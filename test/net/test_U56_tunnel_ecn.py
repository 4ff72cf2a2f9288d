# SPDX-License-Identifier: GPL-2.0-only
"""U56: DSCP and ECN across tunnels (RFC 6040): every combination, slow and fast, both ways, in all four modes."""
import itertools
import time

from frames import ETH_IPV6
from lab import check, check_equal
from peers import PeerLab, tos_of
from raw import Injector, Packet, Sniffer
from labs import V4

NOT_ECT, ECT_1, ECT_0, CE = range(4)
DSCPS = (0, 0xB8)
SETTINGS = ((), ("tos", "0xb8"), ("tos", "inherit"))
# RFC 6040, figure 4, as Linux has it; None: dropped.
DECAP = {(NOT_ECT, CE): None, (ECT_0, ECT_1): ECT_1, (ECT_0, CE): CE, (ECT_1, CE): CE}
OUTER_DSCP = 0x28


def run():
    rows = [(mode, words) for mode in ("ipip", "ip6ip6", "4in6", "6in4") for words in SETTINGS]
    with PeerLab(*rows) as lab:
        lab.warm()
        at_client = Sniffer(lab["client"], "eth0", lambda frame: b"<<" in frame)
        inject = Injector(lab["client"], "eth0", lab["router"], "lan0")
        check_equal(decap(lab, at_client), expected_decap(lab), "out of the tunnels, slow")
        check_equal(encap(lab, inject), expected_encap(lab), "into the tunnels, slow")
        dropped = drops(lab)
        lab.go_fast()
        firsts = lab.tunnels[::len(SETTINGS)]
        before = [lab.carried(far, "reply") for far in firsts]
        chain, ecn = lab.count("down"), lab.reason("wan0", "ecn")
        check_equal(decap(lab, at_client), expected_decap(lab), "out of the tunnels, fast")
        count = sum(tos is not None for tos in expected_decap(lab).values())
        fast = sum(lab.carried(far, "reply") - old for far, old in zip(firsts, before))
        slow = lab.count("down") - chain
        check(fast + slow == count and slow <= len(firsts), f"{fast} fast and {slow} slow packets of {count}")
        lost = len(DSCPS) * len(firsts)
        check_equal((lab.reason("wan0", "ecn") - ecn, drops(lab) - dropped), (lost, lost),
                    "Not-ECT under CE: given to the stack, dropped there")

        before, chain = [lab.carried(far, "orig") for far in lab.tunnels], lab.count("up")
        check_equal(encap(lab, inject), expected_encap(lab), "into the tunnels, fast")
        fast = [lab.carried(far, "orig") - old for far, old in zip(lab.tunnels, before)]
        slow = lab.count("up") - chain
        check(sum(fast) + slow == 8 * len(rows) and min(fast) >= 7, f"{fast} fast and {slow} slow packets")


def drops(lab):
    return sum(tunnel["counters"]["dropped_ecn"] for tunnel in lab.ftctl("tunnel", "list"))


def combinations(lab):
    """(tunnel, inner TOS, outer ECN): what comes out does not depend on the settings."""
    for far in lab.tunnels[::len(SETTINGS)]:
        for dscp, inner, outer in itertools.product(DSCPS, range(4), range(4)):
            yield far, dscp | inner, outer


def decap(lab, at_client):
    """What arrives: the TOS by tunnel, inner TOS, outer ECN."""
    result = {}
    at_client.clear()
    sent = list(combinations(lab))
    for number, (far, tos, outer) in enumerate(sent):
        result[str(far), tos, outer] = None
        lab.send(far.wrap(far.udp(b"<<%d>>" % number, tos=tos, ttl=60), tos=OUTER_DSCP | outer))
        time.sleep(0.001)
    for frame in at_client.settle():
        number = int(frame[frame.index(b"<<") + 2:frame.index(b">>")])
        far, tos, outer = sent[number]
        data = frame[14:]
        if far.inner == V4:
            check(Packet(data).header_ok(), f"{far}: header checksum after inner {tos:#x}, outer ECN {outer}")
        check(result[str(far), tos, outer] is None, f"{far}: inner {tos:#x}, outer ECN {outer} came twice")
        result[str(far), tos, outer] = tos_of(data)
    return result


def expected_decap(lab):
    def after(tos, outer):
        ecn = DECAP.get((tos & 3, outer), tos & 3)
        return None if ecn is None else tos & 0xFC | ecn

    return {(str(far), tos, outer): after(tos, outer) for far, tos, outer in combinations(lab)}


def encap(lab, inject):
    """The outer TOS by tunnel and inner TOS. The inner one must be what it was."""
    for far in lab.tunnels:
        far.got.clear()
        for tos in (dscp | ecn for dscp in DSCPS for ecn in range(4)):
            data = far.udp(b"><%d<>" % tos, up=True, tos=tos)
            inject.send(data, kind=0x0800 if far.inner == V4 else ETH_IPV6)
            time.sleep(0.001)
    result = {}
    end = time.monotonic() + 3
    while time.monotonic() < end and any(len(far.got) < 8 for far in lab.tunnels):
        time.sleep(0.02)
    for far in lab.tunnels:
        for data, at in far.got:
            tos = tos_of(data[at:])
            check(b"><%d<>" % tos in data, f"{far}: the inner TOS became {tos:#x}")
            result[str(far), tos] = tos_of(data)
    return result


def expected_encap(lab):
    """DSCP as set or inherited; ECN of the packet inside, but CE becomes ECT(0) (RFC 3168, full functionality)."""
    result = {}
    for far in lab.tunnels:
        for dscp, ecn in itertools.product(DSCPS, range(4)):
            outer = {(): 0, SETTINGS[1]: 0xB8, SETTINGS[2]: dscp}[far.words]
            result[str(far), dscp | ecn] = outer | (ECT_0 if ecn == CE else ecn)
    return result
