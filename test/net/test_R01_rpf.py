# SPDX-License-Identifier: GPL-2.0-only
"""R01: the reverse path filter: what nft_fib.sh asks of the kernel's, sockets that skip it, counting only."""
import json
import os
import signal
import socket
import time

import frames
from lab import BIN, Lab, check, check_equal, wait_until
from raw import Injector, Sniffer, parse
from traffic import TcpServer, connect

NS1, NS2, R1, R2 = "192.0.2.2", "198.51.100.2", "192.0.2.1", "198.51.100.1"
NS1_6, NS2_6, R1_6, R2_6 = "2001:db8:1::2", "2001:db8:2::2", "2001:db8:1::1", "2001:db8:2::1"
ETH_P_IPV6 = 0x86dd
PORT = 7000


def laboratory():
    lab = Lab("ns1", "R", "ns2", ipv6=True)
    try:
        for role, dev, near, far, near6, far6 in (("ns1", "veth0", R1, NS1, R1_6, NS1_6),
                                                  ("ns2", "veth1", R2, NS2, R2_6, NS2_6)):
            lab.veth(role, "eth0", "R", dev)
            lab["R"].ip(f"addr add {near}/24 dev {dev}\naddr add {near6}/64 dev {dev} nodad")
            lab[role].ip(f"""addr add {far}/24 dev eth0
                addr add {far6}/64 dev eth0 nodad
                route add default via {near}""")
            lab[role].ip(f"-6 route add default via {near6}")
        lab["R"].sysctl(net_ipv4_ip_forward=1)
        lab["R"].sysctl_set("net/ipv6/conf/all/forwarding", 1)
    except BaseException:
        lab.close()
        raise
    return lab


def ping(netns, *targets, source=None, wait=1.0):
    """The first of the targets that does not answer, or None."""
    for target in targets:
        six = ":" in target
        made = netns.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_RAW, 58 if six else 1)
        if source:
            made.bind((source, 0))
        made.connect((target, 0))
        made.settimeout(wait)
        request = frames.icmp(128 if six else 8, 0, b"ping", b"ping")  # the kernel sums ICMPv6 itself
        made.send(request)
        answer = bytes([129 if six else 0])
        end = time.monotonic() + wait
        while time.monotonic() < end:
            try:
                data = made.recv(2048)[0 if six else 20:]
            except TimeoutError:
                continue
            if data[:1] == answer and data[4:8] == b"ping":
                break
        else:
            return target
    return None


def dropped(lab, dev="veth0", name="rpf"):
    return lab.reason(dev, name)


def harmless(lab):
    """nft_fib.sh, tests 1 and 2."""
    check_equal(ping(lab["ns1"], R1, NS2, R2, R1_6, NS2_6, R2_6), None, "no answer")
    check_equal(ping(lab["ns2"], R2, NS1, R2_6, NS1_6), None, "no answer")
    check_equal(ping(lab["R"], "127.0.0.1", "::1", R1, R2, R1_6, R2_6, NS1, NS2_6), None, "no answer")
    for dev in ("veth0", "veth1"):
        check_equal((dropped(lab, dev), dropped(lab, dev, "rpf-log")), (0, 0), f"drops at {dev}")


def spoofed(lab):
    """nft_fib.sh, test 3: ns1 uses addresses of ns2's networks."""
    lab["ns1"].ip("addr add 198.51.100.3/32 dev lo\naddr add 2001:db8:2::3/128 dev lo nodad")
    for target, source in (("1.1.1.1", "198.51.100.3"), ("1c3::c01d", "2001:db8:2::3")):
        before = dropped(lab)
        check_equal(ping(lab["ns1"], target, source=source, wait=0.3), target, "unanswered")
        wait_until(lambda before=before: dropped(lab) == before + 1, 2, f"one packet from {source} is dropped")
    check_equal(ping(lab["ns1"], NS2, NS2_6), None, "no answer")


def policy_routing(lab):
    """nft_fib.sh, test 4: routes in tables by input device. In prerouting nft asks without one and misses: so do we."""
    router = lab["R"]
    router.nft("""table inet back { chain pre { type filter hook prerouting priority raw;
        meta l4proto { icmp, icmpv6 } iifname { "veth0", "veth1" } fib saddr . iif oif missing counter
    } }""")
    router.ip(f"""route add {NS1} dev veth0 table 129
        route add {NS2} dev veth1 table 128
        rule add iif veth1 lookup 129
        rule add iif veth0 lookup 128
        route del 192.0.2.0/24
        route del 198.51.100.0/24""")
    lab.ftctl("rpf", "veth0", "strict,log")
    lab.ftctl("rpf", "veth1", "strict,log")
    before = {dev: dropped(lab, dev, "rpf-log") for dev in ("veth0", "veth1")}
    check_equal(ping(lab["ns1"], NS2), None, "no answer")
    counted = json.loads(router.run("nft", "-j", "list", "chain", "inet", "back", "pre").stdout)
    expected = next(expr["counter"]["packets"] for item in counted["nftables"] if "rule" in item
                    for expr in item["rule"]["expr"] if "counter" in expr)
    check_equal(sum(dropped(lab, dev, "rpf-log") - before[dev] for dev in before), expected, "as nft counts them")
    check(expected > 0, "nft has counted nothing")
    router.ip(f"""rule del iif veth1 lookup 129
        rule del iif veth0 lookup 128
        route add 192.0.2.0/24 dev veth0 src {R1}
        route add 198.51.100.0/24 dev veth1 src {R2}""")
    router.run("nft", "delete", "table", "inet", "back")
    for dev in before:
        lab.ftctl("rpf", dev, "strict")


def sockets(lab):
    """An established connection of this machine goes on when the route back moves; new ones do not come in, and its
    packets do not come in by another device."""
    router, got = lab["R"], []

    def handler(connection, _address):
        while data := connection.recv(4096):
            got.append(data)

    TcpServer(router, R1, PORT, handler)
    client = connect(lab["ns1"], (R1, PORT))
    client.sendall(b"before ")
    wait_until(lambda: b"".join(got) == b"before ", 2, "data before the route moved")
    router.ip(f"route add {NS1}/32 via {NS2} dev veth1")
    time.sleep(0.2)
    before = dropped(lab)
    client.sendall(b"after")
    wait_until(lambda: b"".join(got) == b"before after", 3, "data of an established socket")
    check_equal(dropped(lab), before, "packets of an established socket that were dropped")
    # a listening socket does not count
    sport, dport = 4321, PORT
    inject = Injector(lab["ns1"], "eth0", router, "veth0")
    inject.send(frames.ipv4(NS1, R1, 6, frames.tcp(NS1, R1, sport, dport, flags=2)))
    wait_until(lambda: dropped(lab) == before + 1, 2, "a SYN is dropped")
    # nor does a socket that received by another device
    router.ip(f"route replace {NS1}/32 dev veth0")
    before = dropped(lab, "veth1")
    other = Injector(lab["ns2"], "eth0", router, "veth1")
    other.send(frames.ipv4(NS1, R1, 6, frames.tcp(NS1, R1, client.getsockname()[1], PORT, b"forged", flags=0x18)))
    wait_until(lambda: dropped(lab, "veth1") == before + 1, 2, "a packet by another device is dropped")
    router.ip(f"route del {NS1}/32")
    check_equal(b"".join(got), b"before after", "what the server got")


def counting(lab):
    """`log` drops nothing; monitors are told."""
    check_equal(lab.ftctl("rpf", "veth0", "log"), {"name": "veth0", "rpf": "strict,log"}, "answer")
    monitor = lab["R"].spawn(os.path.join(BIN, "ftctl"), "-i", lab.instance, "monitor", log="monitor.log")
    time.sleep(0.5)
    seen = Sniffer(lab["ns2"], "eth0", lambda frame: bool(parse(frame) and parse(frame).src == "10.9.9.9"))
    inject = Injector(lab["ns1"], "eth0", lab["R"], "veth0")
    before = (dropped(lab), dropped(lab, name="rpf-log"))
    for _number in range(5):
        inject.send(frames.ipv4("10.9.9.9", NS2, 17, frames.udp("10.9.9.9", NS2, 1, 2, b"x")))
    wait_until(lambda: len(seen.frames()) == 5, 3, "packets that are only counted")
    check_equal((dropped(lab), dropped(lab, name="rpf-log")), (before[0], before[1] + 5), "counters rpf and rpf-log")

    def told():
        with open(monitor.log, encoding="utf-8") as file:
            events = [json.loads(line) for line in file if line.startswith("{")]
        return [event for event in events if event.get("reason") == "rpf-log" and event["device"] == "veth0"]

    wait_until(lambda: told() and told()[-1]["total"] == before[1] + 5, 4, "events of ftctl monitor")
    lab.stop(signal.SIGKILL)
    lab.start()
    modes = {device["name"]: device["rpf"] for device in lab.ftctl("status")["devices"]}
    check_equal(modes, {"veth0": "strict,log", "veth1": "strict"}, "modes after a restart")
    wrong = lab.ftctl_raw("rpf", "veth0", "strikt")
    check(wrong.returncode == 1 and "did you mean 'strict'" in wrong.stderr, f"error: {wrong.stderr}")
    check_equal(lab.ftctl_raw("rpf", "veth9", "strict").returncode, 3, "exit code for a device that is not attached")
    lab.ftctl("rpf", "veth0", "off")
    before = dropped(lab, name="rpf-log")
    inject.send(frames.ipv4("10.9.9.9", NS2, 17, frames.udp("10.9.9.9", NS2, 1, 2, b"x")))
    wait_until(lambda: len(seen.frames()) == 6, 3, "a packet without the filter")
    check_equal(dropped(lab, name="rpf-log"), before, "counter rpf-log without the filter")


def vrf(lab):
    """nft_fib.sh, test 6: a device that is enslaved receives packets for another one: nothing is dropped on a guess."""
    router = lab["R"]
    if router.run("ip", "link", "add", "tvrf", "type", "vrf", "table", "9876", ok=False).returncode != 0:
        return False
    router.ip("link set tvrf up\nlink set veth1 master tvrf")
    wait_until(lambda: lab.ftctl("status") is not None, 2, "the daemon answers")
    time.sleep(0.3)
    before = dropped(lab, "veth1")
    Injector(lab["ns2"], "eth0", router, "veth1").send(
        frames.ipv4(NS1, R2, 17, frames.udp(NS1, R2, 1, 2, b"x")))
    wait_until(lambda: dropped(lab, "veth1", "rpf-unsure") > 0, 2, "counted as unsure")
    check_equal(dropped(lab, "veth1"), before, "drops at an enslaved device")
    return True


def run():
    with laboratory() as lab:
        lab.start()
        attached = lab.ftctl("attach", "veth0", "veth1", "--rpf", "strict")
        check_equal(sorted(device["name"] for device in attached["devices"]), ["veth0", "veth1"], "attached")
        harmless(lab)
        spoofed(lab)
        policy_routing(lab)
        sockets(lab)
        harmless_again = dropped(lab)
        check_equal(ping(lab["ns1"], R1, NS2, NS2_6), None, "no answer")
        check_equal(dropped(lab), harmless_again, "drops of harmless packets")
        counting(lab)
        if not vrf(lab):
            print("this kernel has no VRF: that part was left out")
