# SPDX-License-Identifier: GPL-2.0-only
"""Where the time goes, or the instructions: addresses that `framegen send` sampled, by kernel function."""
import bisect
import collections
import re

PROGRAM = re.compile(r"bpf_prog_[0-9a-f]{16}_(.*)")


def kernel_symbols():
    """Sorted [(address, name)]; programs of BPF are there as well."""
    found = []
    with open("/proc/kallsyms", encoding="ascii") as file:
        for line in file:
            address, kind, name = line.split(maxsplit=2)
            if kind in "tTwW":
                name = name.split()[0]
                program = PROGRAM.fullmatch(name)
                found.append((int(address, 16), f"{program[1]} (BPF)" if program else name))
    return sorted(found)


def by_function(path, per_packet):
    """{function: its share of `per_packet` nanoseconds or instructions}, from a file of addresses.

    A function that runs with interrupts disabled is not seen; the one that enables them again is seen in its place.
    """
    symbols = kernel_symbols()
    addresses = [address for address, _name in symbols]
    counts = collections.Counter()
    with open(path, encoding="ascii") as file:
        for line in file:
            address = int(line, 16)
            at = bisect.bisect_right(addresses, address) - 1
            counts[symbols[at][1] if at >= 0 and address >> 63 else "(user)"] += 1
    total = sum(counts.values())
    return {name: round(count * per_packet / total, 1) for name, count in counts.most_common() if count > total / 2000}
