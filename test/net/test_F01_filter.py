# SPDX-License-Identifier: GPL-2.0-only
"""F01: the early filter: order, live flows, replacement under traffic, a killed daemon, errors that name the word."""
import json
import os
import signal
import time

from lab import check, check_equal, wait_until
from labs import L_ADDR, W_ADDR, lab_a
from traffic import UdpFlow, UdpPeer, check_fast, fast_udp

MATCH = {"proto": "udp", "sport": 40000, "dport": 9}
MEMBERS, OTHERS = 100_000, 3


def rule(lab, number):
    return next(item for item in lab.ftctl("filter", "list") if item["id"] == number)


def arrives(flow, yes, what):
    """Whether the next datagrams are answered: all of them, or none."""
    first = flow.send(20)
    lost = flow.lost(first, 1.0 if yes else 0.3)
    check_equal(lost, 0 if yes else 20, f"datagrams lost {what}")


def refused(lab, *words, says, code=1):
    result = lab.ftctl_raw(*words)
    check_equal(result.returncode, code, f"ftctl {' '.join(words)}: {result.stderr}")
    for text in says:
        check(text in result.stderr, f"ftctl {' '.join(words)} does not say {text!r}: {result.stderr}")


def one_rule_after_another(lab, flow):
    added = lab.ftctl("filter", "add", "src", f"{L_ADDR}/24", "drop", "id", "10", "comment", "the whole lan")
    check_equal(added, {"id": 10}, "answer")
    arrives(flow, False, "with a rule that drops them")
    check(rule(lab, 10)["packets"] >= 20, f"counters: {rule(lab, 10)}")
    check_equal(lab.reason("ra", "filter"), rule(lab, 10)["packets"], "counter of the device and of the rule")
    lab.ftctl("filter", "add", "proto", "udp", "dport", "9", "src", L_ADDR, "accept", "id", "5")
    arrives(flow, True, "with an earlier rule that accepts them")
    check(rule(lab, 5)["packets"] >= 20, f"counters: {rule(lab, 5)}")
    lab.ftctl("filter", "del", "5")
    arrives(flow, False, "after that rule went")
    text = lab.ftctl_raw("filter").stdout
    check("the whole lan" in text and "192.0.2.0/24" in text and "drop" in text, f"as text: {text}")
    explained = lab.ftctl("explain", "udp", f"{L_ADDR}:40000", f"{W_ADDR}:9", "dev", "ra")
    check_equal((explained["verdict"], explained["reason"]), ("drop", "filter"), "explain")
    lab.ftctl("filter", "add", "dev", "rb", "drop", "id", "3")
    lab.ftctl("filter", "del", "10")
    arrives(flow, False, "with a rule for the other device, where the answers come in")
    lab.ftctl("filter", "flush")
    check_equal(lab.ftctl("filter", "list"), [], "rules after flush")
    arrives(flow, True, "without rules")


def replaced_under_traffic(lab, flow):
    """Two rule sets that say the same in other words, in turns: whoever sees half of one would let the wrong flow
    through or stop the right one."""
    paths = []
    for number, (first, second) in enumerate(((1, 2), (7, 3))):
        # the rule that decides is a general one in one set, a prefix in the other
        accept = ("proto udp dport 9 accept id {}", "src 192.0.2.0/24 dport 9 accept id {}")[number].format(
            min(first, second))
        drop = ("src 192.0.2.0/24 drop id {}", "dst 198.51.100.0/24 dport 10 drop id {}")[number].format(
            max(first, second))
        paths.append(os.path.join(lab.tmp, f"rules{number}"))
        with open(paths[-1], "w", encoding="ascii") as file:
            file.write(f"# set {number}\n{drop}\n\n{accept}  # first\n")
    wrong_peer = UdpPeer(lab["W"], W_ADDR, 10)
    lab.ftctl("filter", "load", paths[0])
    wrong = UdpFlow(lab["L"], ("0.0.0.0", 40001), (W_ADDR, 10), 2).start(400)
    first = flow.sent
    flow.start(400)
    for turn in range(30):
        lab.ftctl("filter", "load", paths[(turn + 1) % 2])
        time.sleep(0.02)
    wrong.stop()
    flow.stop()
    check(flow.sent - first > 200 and wrong.sent > 200, f"sent: {flow.sent - first}, {wrong.sent}")
    check_equal(flow.lost(first), 0, "datagrams lost that both rule sets accept")
    check_equal(wrong_peer.received(2), 0, "datagrams let through that both rule sets drop")


def survives(lab, flow):
    lab.ftctl("filter", "load", os.path.join(lab.tmp, "rules0"))
    arrives(flow, True, "accepted")
    before = rule(lab, 1)["packets"]
    lab.stop(signal.SIGKILL)
    check_equal(len(json.loads(lab.ftctl_raw("filter", "list", as_json=True).stdout)), 2, "rules with no daemon")
    lost = UdpFlow(lab["L"], ("0.0.0.0", 40001), (W_ADDR, 10), 3)
    peer = UdpPeer(lab["W"], W_ADDR, 10)
    lost.send(20)
    time.sleep(6)  # the heartbeat has stopped: the fast path has, the filter has not
    lost.send(20)
    check_equal(peer.received(3), 0, "datagrams let through without a daemon")
    lab.start()
    check(rule(lab, 1)["packets"] >= before, "counters of a rule after a restart")
    arrives(flow, True, "after a restart")
    # a rule that stays the same keeps what it has counted, another one begins anew
    before = rule(lab, 2)["packets"]
    check(before >= 40, f"dropped before: {before}")
    lab.ftctl("filter", "add", "src", "203.0.113.0/24", "drop")
    check_equal(rule(lab, 2)["packets"], before, "counter after another rule came")
    saved = os.path.join(lab.tmp, "saved.json")
    with open(saved, "w", encoding="ascii") as file:
        file.write(lab.ftctl_raw("filter", "list", as_json=True).stdout.replace('"dport":9', '"dport":11'))
    lab.ftctl("filter", "load", saved)
    check_equal(rule(lab, 2)["packets"], before, "counter of a rule that a load kept")
    check_equal(rule(lab, 1)["packets"], 0, "counter of a rule that a load changed")


def a_blocklist(lab, flow):
    path = os.path.join(lab.tmp, "blocklist")
    with open(path, "w", encoding="ascii") as file:
        for number in range(MEMBERS):
            file.write(f"src 10.{number >> 8 & 255}.{number & 255}.{64 * (number >> 16)}/26 drop\n")
        file.write("dst 198.51.100.77 drop\n")
        file.write(f"src {L_ADDR} dport 10 drop\n" * 1 + "dport 4000-5000 drop\nproto gre drop\n")
    start = time.monotonic()
    loaded = lab.ftctl_raw("filter", "load", path, timeout=120)
    took = time.monotonic() - start
    check_equal(loaded.returncode, 0, f"load of {MEMBERS} rules: {loaded.stderr}")
    print(f"{MEMBERS} prefixes: loaded in {took:.1f} s")
    arrives(flow, True, "beside a blocklist")
    check_equal(len(lab.ftctl("filter", "list")), MEMBERS + 1 + OTHERS, "rules listed")
    lab["R"].ip("addr add 10.3.4.1/32 dev lo")
    explained = lab.ftctl("explain", "udp", "10.3.4.5:40000", f"{W_ADDR}:9", "dev", "ra")
    check_equal(explained["reason"], "filter", "a member of the blocklist")
    explained = lab.ftctl("explain", "udp", "11.3.4.5:40000", f"{W_ADDR}:9", "dev", "ra")
    check(explained["reason"] != "filter", f"no member of the blocklist: {explained}")
    lab.ftctl("filter", "flush")


def errors(lab):
    refused(lab, "filter", "add", "scr", "192.0.2.1", "drop", says=("'scr'", "did you mean 'src'"))
    refused(lab, "filter", "add", "src", "192.0.2.1/33", "drop", says=("'192.0.2.1/33'",))
    refused(lab, "filter", "add", "src", "192.0.2.1", says=("'accept'", "'drop'"))
    refused(lab, "filter", "add", "dport", "9-3", "drop", says=("'9-3'",))
    refused(lab, "filter", "add", "src", "192.0.2.1", "dst", "2001:db8::1", "drop", says=("families",))
    refused(lab, "filter", "del", "77", says=("77",), code=2)
    lab.ftctl("filter", "add", "drop", "dev", "nowhere", "id", "4")
    refused(lab, "filter", "add", "drop", "dev", "nowhere", "id", "4", says=("id 4",))
    for text, says in (("src 10.0.0.0/8 drop\n\nsrc 10.0.0.0/8 dorp\n", (":3", "'dorp'")),
                       ("drop id 3\naccept id 3\n", ("id 3",)),
                       ('[{"src": "10.0.0.0/8",\n "action": "drop"},\n {"sport": 70000, "action": "drop"}]',
                        (":3", "'70000'")),
                       ('[{"source": "10.0.0.0/8", "action": "drop"}]', ("'source'",))):
        path = os.path.join(lab.tmp, "bad")
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        refused(lab, "filter", "load", path, says=(path, *says))
    check_equal([item["id"] for item in lab.ftctl("filter", "list")], [4], "rules after refused loads")
    lab.ftctl("filter", "flush")


def run():
    with lab_a(nat=False) as lab:
        lab.attach("ra", "rb")
        flow, _peer = fast_udp(lab)
        flow.stop()
        wait_until(lambda: lab.live(**MATCH), 3, "the flow is live")
        one_rule_after_another(lab, flow)
        errors(lab)
        replaced_under_traffic(lab, flow)
        survives(lab, flow)
        a_blocklist(lab, flow)
        flow.start(50)
        lab.wait_live(**MATCH)
        check_fast(lab, flow)
        lab.ftctl("filter", "add", "src", "203.0.113.0/24", "drop")
        lab.detach()
        check_equal(len(lab.ftctl("filter", "list")), 1, "rules after the last detach")
        lab.ftctl("filter", "flush")
