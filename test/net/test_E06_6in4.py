# SPDX-License-Identifier: GPL-2.0-only
"""E06: flows through a 6in4 tunnel, with inherited and with fixed TOS and TTL."""
from labs import V4, V6, Tunnel
from tunnels6 import run as run_tunnels


def run():
    run_tunnels((Tunnel("6in4", V6, V4, 20), ("tos", "inherit")),
                (Tunnel("6in4", V6, V4, 20), ("tos", "0xb8", "ttl", "44")))
