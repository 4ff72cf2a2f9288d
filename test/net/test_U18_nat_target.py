# SPDX-License-Identifier: GPL-2.0-only
"""U18: the target of a DNAT rule moves; the old server gets nothing more once conntrack forgot it."""
import time

from lab import check, check_equal, wait_until
from labs import RB_ADDR, lab_a
from traffic import UdpFlow, UdpPeer


def dnat(lab, target):
    rule = f'iifname "rb" udp dport 53 dnat to {target}' if target else ""
    lab["R"].nft(f"""table ip d {{ chain pre {{ type nat hook prerouting priority dstnat; }} }}
        flush chain ip d pre
        table ip d {{ chain pre {{ {rule}
        }} }}""")


def scenario(attached):
    """How long each move took."""
    with lab_a(watch={"up": "udp dport 53", "down": "udp sport 53"}) as lab:
        lab["L"].ip("addr add 192.0.2.10/24 dev la\naddr add 192.0.2.20/24 dev la")
        old, new = (UdpPeer(lab["L"], f"192.0.2.{host}", 53) for host in (10, 20))
        dnat(lab, "192.0.2.10")
        if attached:
            lab.attach("ra", "rb")
        flow = UdpFlow(lab["W"], ("0.0.0.0", 40000), (RB_ADDR, 53)).start(100)
        if attached:
            lab.wait_live(proto="udp", sport=40000, dport=53)
        else:
            wait_until(lambda: flow.answered() > 100, 4, "datagrams flow")

        def forget(reached=True):
            # No answer may be under way: it would open a connection of its own, in plain Linux as well,
            # which then catches what the client sends.
            for peer in (old, new):
                peer.echo = False
            if reached:  # once one more has arrived, what a peer was answering before has been sent
                seen = old.received(1) + new.received(1)
                wait_until(lambda: old.received(1) + new.received(1) > seen, 2, "a datagram arrives", 0.005)
            wait_until(lambda: sum(flow.answers.values()) >= old.echoed + new.echoed, 2, "all answers came", 0.005)
            lab["R"].run("conntrack", "-D", "-p", "udp", "--orig-port-dst", "53", ok=False)
            seen = time.monotonic(), old.received(1), new.received(1)
            for peer in (old, new):
                peer.echo = True
            return seen

        dnat(lab, "192.0.2.20")
        start, to_old, to_new = forget()
        wait_until(lambda: new.received(1) > to_new, 2, "the new server is reached", 0.005)
        moved = time.monotonic() - start
        time.sleep(0.5)
        late = old.received(1) - to_old
        check(late <= 10, f"{late} datagrams to the old server after the delete")

        # No server for a while: the packets are for R itself.
        if attached:
            lab.wait_live(proto="udp", sport=40000, dport=53)
        dnat(lab, None)
        start, _to_old, to_new = forget()
        time.sleep(1.5)
        check(new.received(1) - to_new <= 10, f"{new.received(1) - to_new} datagrams to a server that has no rule")
        if attached:
            check(not lab.live(proto="udp", sport=40000, dport=53), "a flow to R itself is live")
        dnat(lab, "192.0.2.20")
        start, _to_old, to_new = forget(reached=False)
        wait_until(lambda: new.received(1) > to_new, 2, "the server is reached again", 0.005)
        back = time.monotonic() - start
        if attached:
            lab.wait_live(proto="udp", sport=40000, dport=53)
        # The socket is connected: an answer from any other address than the VIP is not counted.
        first = flow.sent
        flow.stop()
        flow.send(50)
        check_equal(flow.lost(first), 0, "answers that did not come from the VIP")
        return moved, back


def run():
    plain, fast = scenario(False), scenario(True)
    print("moved after, back after: plain", plain, "with ftctl", fast)
    for text, before, after in zip(("moved", "back"), plain, fast):
        check(after <= before + 0.15, f"{text} after {after:.2f} s, {before:.2f} s without ftctl")
