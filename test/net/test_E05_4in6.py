# SPDX-License-Identifier: GPL-2.0-only
"""E05: flows through a 4in6 tunnel, with the encapsulation limit option (RFC 2473, eight bytes) and without."""
from labs import V4, V6, Tunnel
from tunnels6 import run as run_tunnels


def run():
    run_tunnels((Tunnel("4in6", V4, V6, 48), ()),
                (Tunnel("4in6", V4, V6, 40), ("encaplimit", "none", "tos", "inherit", "ttl", "33")))
