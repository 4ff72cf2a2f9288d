# SPDX-License-Identifier: GPL-2.0-only
"""R02: for random routes, rules and packets `--rpf strict` drops what nft's `fib saddr . iif oif missing drop` does."""
import os
import random

from frames import TCP, UDP
from lab import Lab, check, check_equal
from rpf_packets import TABLE, Ways, make, verdicts

DEVICES = ("r0", "r1", "r2", "r3")
PER_ROUND, MODES = 440, ("tc", "xdp", "tc", "xdp", "tc")
BROADCAST, IGMP_MAC = "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"


def address4(rng):
    return f"10.{rng.randrange(4)}.{rng.choice((0, 1, 128, 255))}.{rng.choice((0, 1, 2, 9, 255))}"


def address6(rng):
    return f"2001:db8:{rng.randrange(4)}:{rng.choice((0, 1, 0x8000)):x}::{rng.choice((1, 2, 9)):x}"


def sources(rng, six):
    pick = rng.randrange(20)
    if six:
        return {0: "::", 1: "fd00::1", 2: "2001:db8:99::1"}.get(pick) or address6(rng)
    return {0: "0.0.0.0", 1: "0.1.2.3", 2: "172.16.3.4", 3: "127.0.0.1", 4: "240.0.0.1", 5: "192.0.2.1",
            6: "192.0.2.255", 7: "192.0.2.9"}.get(pick) or address4(rng)


def destinations(rng, six):
    """(address, MAC or None: the router's)"""
    pick = rng.randrange(10)
    if six:
        if pick == 0:
            return "ff02::1", "33:33:00:00:00:01"
        if pick == 1:
            return "ff0e::7", "33:33:00:00:00:07"
        return ("2001:db8:ff::1" if pick < 6 else address6(rng)), None
    if pick == 0:
        return "255.255.255.255", BROADCAST
    if pick == 1:
        return rng.choice(("224.0.0.1", "224.0.0.251", "224.0.1.1", "239.1.1.1")), IGMP_MAC
    return ("192.0.2.1" if pick < 6 else address4(rng)), None


def network(rng, six):
    if six:
        length = rng.choice((32, 48, 64, 128))
        return f"{address6(rng)}/{length}" if length == 128 else f"2001:db8:{rng.randrange(4)}::/{max(length, 48)}"
    length = rng.choice((0, 8, 15, 16, 17, 24, 32))
    value = int.from_bytes(bytes(map(int, address4(rng).split("."))), "big") >> (32 - length) << (32 - length)
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0)) + f"/{length}"


def route(rng, six):
    kind = rng.randrange(10)
    table = rng.choice(("main", "main", "100", "101"))
    prefix = network(rng, six)
    if kind == 0:
        return f"{rng.choice(('unreachable', 'blackhole', 'prohibit'))} {prefix} table {table}"
    dev = rng.randrange(len(DEVICES))
    via = f"via {'fd00:%d::9' % dev if six else '192.168.%d.9' % dev} " if kind < 6 else ""
    return f"{prefix} {via}dev {DEVICES[dev]} table {table}"


def rule(rng, six):
    table = rng.choice(("100", "101"))
    what = rng.randrange(6)
    if what == 0:
        return f"iif {rng.choice(DEVICES)} lookup {table}"
    if what == 1:
        return f"fwmark 7 lookup {table}"
    if what == 2 and not six:
        return f"tos 0x10 lookup {table}"
    if what == 3:
        return f"ipproto {rng.choice(('tcp', 'udp'))} lookup {table}"
    if what == 4:
        return f"from {network(rng, six)} lookup {table}"
    return f"to {network(rng, six)} {rng.choice((f'lookup {table}', 'unreachable'))}"


def configure(rng, router):
    """Other routes and rules than before. Some cannot be: a next hop that is not there, a rule that is there twice."""
    for six in (False, True):
        lines = ["route flush table 100", "route flush table 101", "route flush proto static"]
        lines += [f"rule del pref {pref}" for pref in range(900, 904)]
        lines += [f"route replace {route(rng, six)} proto static" for _number in range(14)]
        lines += [f"rule add pref {900 + number} {rule(rng, six)}" for number in range(rng.randrange(4))]
        family = ["-6"] if six else ["-4"]
        router.run("ip", *family, "-force", "-batch", "-", text="\n".join(lines) + "\n", ok=False)


def packets(rng):
    made = []
    for number in range(PER_ROUND):
        six = rng.randrange(3) == 0
        src, (dst, mac) = sources(rng, six), destinations(rng, six)
        dev = rng.choice(DEVICES)
        if rng.randrange(3) == 0:  # from the network that is behind the device
            src = ("fd00:{}::9" if six else "192.168.{}.9").format(DEVICES.index(dev))
        fields = {"tclass": rng.choice((0, 0x10))} if six else {"tos": rng.choice((0, 0x10))}
        made.append((dev, *make(src, dst, number, rng.choice((TCP, UDP)), **fields), mac))
    return made


def text(packet):
    dev, kind, data, _mac = packet
    at = (8, 24, 40) if kind == 0x86dd else (12, 16, 20)
    src, dst = data[at[0]:at[1]].hex(), data[at[1]:at[2]].hex()
    return f"{dev}: source {src}, destination {dst}, tos {data[1]:#x}"


def run():
    seed = int(os.environ.get("FTCTL_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"seed {seed} (FTCTL_SEED={seed} repeats it)")
    rng = random.Random(seed)
    with Lab("R", "H", ipv6=True) as lab:
        router = lab["R"]
        for number, dev in enumerate(DEVICES):
            lab.veth("H", f"h{number}", "R", dev)
            lab["H"].run("ethtool", "-K", f"h{number}", "gro", "on")  # XDP on a veth wants a peer with NAPI
            router.ip(f"addr add 192.168.{number}.1/24 dev {dev}\naddr add fd00:{number}::1/64 dev {dev} nodad")
        router.ip("addr add 192.0.2.1/24 dev r0\naddr add 2001:db8:ff::1/64 dev r0 nodad")
        router.sysctl(net_ipv4_ip_forward=1)
        router.sysctl_set("net/ipv6/conf/all/forwarding", 1)
        router.nft(TABLE)
        lab.start()
        ways = Ways(lab, {dev: ("H", f"h{number}") for number, dev in enumerate(DEVICES)})

        def set_filter(mode):
            for dev in DEVICES:
                lab.ask("rpf", device=dev, rpf=mode)

        dropped = total = 0
        for turn, mode in enumerate(MODES):
            if turn:
                lab.detach()
            lab.ftctl("attach", *DEVICES, "--mode", mode, "--force")
            configure(rng, router)
            sent = packets(rng)
            nft, ftctl, seen = verdicts(ways, sent, set_filter)
            for number in sorted(nft ^ ftctl)[:12]:
                print(("nft only: " if number in nft else "ftctl only: ") + text(sent[number]))
            if nft != ftctl:
                print(router.run("ip", "rule").stdout, router.run("ip", "route", "show", "table", "all").stdout)
            check_equal(len(nft ^ ftctl), 0, f"packets with different verdicts, round {turn} ({mode}), seed {seed}")
            for dev in DEVICES:
                reasons = lab.stats(dev)["reasons"]
                check(reasons["rpf"] > 0 and not reasons["rpf-unsure"], f"counters of {dev}: {reasons}")
            dropped += len(nft)
            total += len(seen)
        print(f"{total} packets, {dropped} dropped by either")
        check(total >= 2000, f"only {total} of {PER_ROUND * len(MODES)} packets reached prerouting")
        check(total / 10 < dropped < total * 9 / 10, f"{dropped} of {total}: too one-sided to tell anything")
