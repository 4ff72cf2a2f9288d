# SPDX-License-Identifier: GPL-2.0-only
"""Where the time goes, or the instructions: addresses that `framegen send` sampled, by kernel function."""
import bisect
import collections
import re

PROGRAM = re.compile(r"bpf_prog_[0-9a-f]{16}_(.*)")


def symbol(line):
    """(Address, name) of a line of /proc/kallsyms, where programs of BPF are as well; None if it is no function."""
    address, kind, name = line.split(maxsplit=2)
    if kind not in "tTwW":
        return None
    name = name.split()[0]
    program = PROGRAM.fullmatch(name)
    return int(address, 16), f"{program[1]} (BPF)" if program else name


def kernel_symbols(more):
    """Sorted [(address, name)]."""
    with open("/proc/kallsyms", encoding="ascii") as file:
        return sorted(filter(None, map(symbol, [*file, *more])))


def counts_of(path):
    """Counter of samples by function, from a file of addresses and symbols.

    A function that runs with interrupts disabled is not seen; the one that enables them again is seen in its place.
    """
    with open(path, encoding="ascii") as file:
        lines = file.read().splitlines()
    symbols = kernel_symbols(line for line in lines if " " in line)
    addresses = [address for address, _name in symbols]
    counts = collections.Counter()
    for address in (int(line, 16) for line in lines if " " not in line):
        at = bisect.bisect_right(addresses, address) - 1
        counts[symbols[at][1] if at >= 0 and address >> 63 else "(user)"] += 1
    return counts


def by_function(path, per_packet):
    """{function: its share of `per_packet` nanoseconds or instructions}"""
    counts = counts_of(path)
    total = sum(counts.values())
    return {name: round(count * per_packet / total, 1) for name, count in counts.most_common() if count > total / 2000}
