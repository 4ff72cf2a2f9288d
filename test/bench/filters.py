# SPDX-License-Identifier: GPL-2.0-only
"""A benchmark's early filter and reverse path filter, ftctl's and nft's, and what both must drop."""
import os

BLOCKED = "198.18.0.7"  # in every list of prefixes, and without a route back
FIRST = "198.18.0.0/24"
STEP = 0x9E3779B1  # multiples of it, modulo 2**32, are spread evenly, no two in one /24 among 100 000
USED = ("10.255.0", "192.0.2", "198.18.0", "198.51.100", "203.0.113")  # the /24 of everybody here


def prefixes(count):
    """Distinct IPv4 prefixes of /24 to /32, spread as those of a blocklist: trees of them are as deep as they get."""
    found, number = [FIRST], 0
    while len(found) < count:
        number += 1
        address = number * STEP & 0xffffffff
        length = 24 + number * 5 % 9
        text = ".".join(str((address & -1 << 32 - length) >> shift & 255) for shift in (24, 16, 8, 0))
        if not text.startswith(tuple(net + "." for net in USED)):
            found.append(f"{text}/{length}")
    return found


def load(lab, count):
    """Into the daemon that `lab` is turned to."""
    path = os.path.join(lab.tmp, f"prefixes-{count}")
    if not os.path.exists(path):
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"src {prefix} drop\n" for prefix in prefixes(count))
    lab.ftctl("filter", "load", path)


def nft_prefixes(device, count):
    """The same in nft, as early as nft can."""
    return f"""table netdev bench {{
        set blocked {{ type ipv4_addr; flags interval; elements = {{ {", ".join(prefixes(count))} }} ; }}
        chain early {{ type filter hook ingress device "{device}" priority 0; ip saddr @blocked drop; }}
    }}"""


def nft_reverse_path(device):
    return f"""table inet back {{
        chain pre {{ type filter hook prerouting priority raw; iifname "{device}" fib saddr . iif oif missing drop; }}
    }}"""
