# SPDX-License-Identifier: GPL-2.0-only
"""E02: flows through an IP6IP6 tunnel, with the encapsulation limit option (RFC 2473, eight bytes) and without."""
from labs import V6, Tunnel
from tunnels6 import run as run_tunnels


def run():
    run_tunnels((Tunnel("ip6ip6", V6, V6, 48), ()),
                (Tunnel("ip6ip6", V6, V6, 40), ("encaplimit", "none")))
