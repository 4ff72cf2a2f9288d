# SPDX-License-Identifier: GPL-2.0-only
"""What a benchmark asks of the machine as a whole."""
import contextlib
import socket

from lab import Lab

AF_PPPOX = 24


def global_sysctl(name, value=None):
    path = f"/proc/sys/net/netfilter/{name}"
    if value is not None:
        with open(path, "w", encoding="ascii") as file:
            file.write(str(value))
    with open(path, encoding="ascii") as file:
        return int(file.read())


@contextlib.contextmanager
def conntrack_sizes():
    """Puts nf_conntrack_max and nf_conntrack_buckets, which all namespaces share, back at the end."""
    names = ("nf_conntrack_max", "nf_conntrack_buckets")
    before = {name: global_sysctl(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            global_sysctl(name, value)


def stolen(cpu):
    """Ticks that the hypervisor has kept a processor for itself, and all ticks."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = next(line.split()[1:9] for line in file if line.startswith(f"cpu{cpu} "))
    return int(ticks[7]), sum(map(int, ticks))


def no_device(kind):
    """What the kernel says when it is asked for a device of that kind and has none; "" when it has them."""
    if kind == "pppoe":
        try:
            socket.socket(AF_PPPOX, socket.SOCK_STREAM).close()
        except OSError as error:
            return error.strerror
        return ""
    with Lab("probe") as lab:
        made = lab["probe"].run("ip", "link", "add", "link", "lo", "name", "probe0", "type", kind, "id", "10", ok=False)
    return made.stderr.strip() if made.returncode else ""
