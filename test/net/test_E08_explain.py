# SPDX-License-Identifier: GPL-2.0-only
"""E08: `ftctl explain` about flows of IPv6 and of tunnels: verdict, rewriting, encapsulation, as text and JSON."""
from lab import check, check_equal
from labs import L6, TUNNELS, W6, lab_6, lab_tunnel, open_tunnel
from traffic import UdpFlow, UdpPeer, fast_udp


def explain(lab, proto, source, target, *words):
    """The answer as JSON; the same as text must say the verdict and every line of it."""
    answer = lab.ftctl("explain", proto, source, target, *words)
    text = lab.ftctl_raw("explain", proto, source, target, *words).stdout
    lines = [line.split() for line in text.splitlines()]
    check(["verdict:", answer["verdict"]] in lines, f"no verdict {answer['verdict']} in: {text}")
    for line in answer["text"]:
        check(line.split() in lines, f"not in the text: {line}")
    return answer


def fast(lab, source, target, dev, rewrite, lines):
    """The packet is taken at dev and leaves as the pair `rewrite`; the last lines tell what is around it."""
    answer = explain(lab, "udp", *(f"[{address}]:{port}" for address, port in (source, target)))
    want = dict(zip(("src", "sport", "dst", "dport"), (*rewrite[0], *rewrite[1])))
    check_equal((answer["verdict"], answer["reason"], answer["dev"], answer["hook"], answer["rewrite"],
                 answer["connection"]["state"]), ("fast", None, dev, "tc", want, "live"), f"explain {source} {target}")
    check_equal(answer["text"][2:], lines, f"encapsulation of {source} -> {target}")


def run():
    with lab_6() as lab:
        lab.attach("ra", "rb")
        ends = (L6, 40000), (W6, 9)
        words = "udp", *(f"[{address}]:{port}" for address, port in ends)
        unknown = explain(lab, *words)
        check_equal((unknown["verdict"], unknown["reason"], unknown["dev"], unknown["connection"]),
                    ("stack", "no-flow", "ra", None), "a connection that is not there")
        fast_udp(lab, target=ends[1])
        fast(lab, *ends, "ra", ends, [])
        fast(lab, *reversed(ends), "rb", tuple(reversed(ends)), [])
        check_equal(explain(lab, *words, "dev", "rb")["reason"], "no-flow", "the same by another device")
        check_equal(explain(lab, *words, "dev", "lo")["reason"], "device", "the same by a device that is not attached")
    for mode in "ip6ip6", "6in4":
        tunnelled(TUNNELS[mode])


def tunnelled(tunnel):
    with lab_tunnel(tunnel, {"up": "udp dport 9"}) as lab:
        open_tunnel(lab, tunnel)
        UdpPeer(lab["server"], tunnel.server, 9)
        UdpFlow(lab["client"], ("::", 40000), (tunnel.server, 9)).start(50)
        for role in "router", "remote":
            lab.at(role).attach("wan0", "lan0")
            lab.wait_live(proto="udp", sport=40000)
        client, near, server = (tunnel.client, 40000), (tunnel.near, 40000), (tunnel.server, 9)
        out = f"{tunnel.mode} tunnel {tunnel.wan_near} -> {tunnel.wan_far}"
        back = f"{tunnel.mode} tunnel {tunnel.wan_far} -> {tunnel.wan_near}"
        lab.at("router")
        fast(lab, client, server, "lan0", (near, server), ["leaves in: " + out])
        fast(lab, server, near, "wan0", (server, client), ["arrives in: " + back])
        # What nobody knows would arrive in the tunnel as well.
        unknown = explain(lab, "udp", f"[{tunnel.server}]:9", f"[{tunnel.near}]:40001")
        check_equal((unknown["verdict"], unknown["reason"], unknown["dev"]), ("stack", "no-flow", "wan0"),
                    "another packet from the tunnel")
        lab.at("remote")
        fast(lab, near, server, "wan0", (near, server), ["arrives in: " + out])
        fast(lab, server, near, "lan0", (server, near), ["leaves in: " + back])
