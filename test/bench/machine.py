# SPDX-License-Identifier: GPL-2.0-only
"""What a benchmark asks of the machine as a whole."""
import contextlib
import os
import shutil
import socket

from lab import Lab, command

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
    if not os.path.exists("/proc/sys/net/netfilter/nf_conntrack_max"):
        command(["modprobe", "nf_conntrack"])
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
    """Why there can be no device of that kind here; "" when there can."""
    if kind == "pppoe":
        try:
            socket.socket(AF_PPPOX, socket.SOCK_STREAM).close()
        except OSError as error:
            return f"this kernel has no such devices: {error.strerror}"
        return "" if shutil.which("pppd") else "pppd is not installed"
    with Lab("probe") as lab:
        lab.veth("probe", "probe0", "probe", "probe1")
        made = lab["probe"].run(*f"ip link add link probe0 name tag0 type {kind} id 10".split(), ok=False)
    return f"this kernel has no such devices: {made.stderr.strip()}" if made.returncode else ""
