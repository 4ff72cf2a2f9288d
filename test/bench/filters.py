#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""What the early filter and the reverse path filter cost.

    test/bench/filters.py              nanoseconds a packet, by test runs of the attached programs (root, a build)
    test/bench/filters.py --iperf 7    TCP that ends on this machine: no rules, nft in prerouting, nft in input, ftctl

Each figure is the median of interleaved rounds; read the differences and ratios of one run. A packet that no flow knows
is run through the program; it is the same for all rows, so that a difference is what the filter costs.
"""
import argparse
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "net"))

import frames  # noqa: E402
from lab import exit_on_signals, wait_until  # noqa: E402
from labs import L_ADDR, RA_ADDR, W_ADDR, lab_a  # noqa: E402

REPEAT, ROUNDS = 200_000, 9


def program(lab, dev):
    return next(item for item in lab.ftctl("status")["devices"] if item["name"] == dev)["ingress_prog_id"]


def duration(lab, number, path):
    out = lab["R"].run("bpftool", "prog", "run", "id", str(number), "data_in", path, "repeat", str(REPEAT)).stdout
    return float(out.split("duration (average):")[1].split("ns")[0])


def rules_file(lab, prefixes, general, members=""):
    path = os.path.join(lab.tmp, f"rules-{prefixes}-{general}")
    with open(path, "w", encoding="ascii") as file:
        file.write(members)
        for number in range(prefixes):
            file.write(f"src 10.{number >> 8 & 255}.{number & 255}.{64 * (number >> 16)}/26 drop\n")
        for number in range(general):
            file.write(f"src 10.200.{number & 255}.0/24 proto udp dport {1000 + number} drop\n")
    return path


def by_test_runs(lab, mode):
    options = {"mode": mode, **({"force": None} if mode == "xdp" else {})}
    words = [text for key, value in options.items() for text in ([f"--{key}"] + ([value] if value else []))]
    lab.ftctl("attach", "ra", "rb", *words)
    number = program(lab, "ra")
    router_mac = lab["R"].mac("ra")

    def frame(src, name):
        path = os.path.join(lab.tmp, name)
        packet = frames.ipv4(src, W_ADDR, 17, frames.udp(src, W_ADDR, 4000, 5000, b"x" * 30))
        with open(path, "wb") as file:
            file.write(frames.ethernet(frames.mac(router_mac), frames.mac("02:00:00:00:00:99"), 0x0800, packet))
        return path

    miss = frame(L_ADDR, "miss")
    rows = [("no filter", None, "off"),
            ("filter, 1 prefix", (1, 0), "off"), ("filter, 1 000 prefixes", (1000, 0), "off"),
            ("filter, 100 000 prefixes", (100_000, 0), "off"),
            ("filter, 1 general rule", (0, 1), "off"), ("filter, 1 000 general rules", (0, 1000), "off"),
            ("filter, 100 000 prefixes and 1 000 general rules", (100_000, 1000), "off"),
            ("rpf strict", None, "strict")]
    results = {name: [] for name, _rules, _rpf in rows}
    for _round in range(ROUNDS):
        for name, rules, rpf in rows:
            lab.ftctl("rpf", "ra", rpf)
            if rules:
                done = lab.ftctl_raw("filter", "load", rules_file(lab, *rules), timeout=120)
                assert done.returncode == 0, done.stderr
            else:
                lab.ftctl("filter", "flush")
            results[name].append(duration(lab, number, miss))
    base = statistics.median(results["no filter"])
    for name, values in results.items():
        middle = statistics.median(values)
        print(f"{mode:4} {name:50} {middle:6.0f} ns  {middle - base:+5.0f}   ({min(values):.0f} to {max(values):.0f})")
    lab.ftctl("detach", "--all")


def by_iperf(lab, rounds):
    router = lab["R"]
    router.spawn("iperf3", "-s", "-B", RA_ADDR)
    table = "table inet back {{ chain c {{ type filter hook {} priority {}; {} fib saddr . iif oif missing drop; }} }}"

    def nothing():
        router.run("nft", "delete", "table", "inet", "back", ok=False)
        lab.ftctl_raw("detach", "--all")

    def nft(hook, priority, match=""):
        nothing()
        router.nft(table.format(hook, priority, match))

    def ours():
        nothing()
        lab.ftctl("attach", "ra", "--mode", "tc", "--rpf", "strict", "--no-track")

    configs = {"(a) no rules": nothing, "(b) nft in prerouting": lambda: nft("prerouting", "raw"),
               "(c) nft in input": lambda: nft("input", "filter"), "(d) ftctl rpf strict at TC": ours}
    results = {name: [] for name in configs}
    for _round in range(rounds):
        for name, prepare in configs.items():
            prepare()
            out = lab["L"].run("iperf3", "-c", RA_ADDR, "-t", "2", "-f", "m").stdout
            line = next(item for item in out.splitlines() if "receiver" in item)
            results[name].append(float(line.split("Mbits/sec")[0].split()[-1]))
    base = statistics.median(results["(a) no rules"])
    for name, values in results.items():
        middle = statistics.median(values)
        print(f"{name:30} {middle:8.0f} Mbit/s  {middle / base:.2f} of (a)  ({min(values):.0f} to {max(values):.0f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iperf", type=int, metavar="ROUNDS", help="TCP through veth instead of test runs")
    parser.add_argument("--mode", choices=("xdp", "tc"), action="append", help="only this hook")
    args = parser.parse_args()
    exit_on_signals(1800)
    with lab_a(nat=False) as lab:
        for role, dev in (("L", "la"), ("W", "wa")):
            lab[role].run("ethtool", "-K", dev, "gro", "on")  # XDP on a veth needs a peer with NAPI
        lab.start()
        wait_until(lambda: lab.ftctl("status"), 5, "the daemon answers")
        if args.iperf:
            by_iperf(lab, args.iperf)
            return
        for mode in args.mode or ("xdp", "tc"):
            by_test_runs(lab, mode)


if __name__ == "__main__":
    main()
