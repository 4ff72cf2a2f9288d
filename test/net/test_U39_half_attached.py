# SPDX-License-Identifier: GPL-2.0-only
"""U39: an attach that the kernel refuses for the third device takes the first two back; what is missing is named."""
import os

from lab import BIN, Skip, check, check_equal, command
from labs import lab_a
from test_L01_attach_detach import check_same, snapshot
from test_L02_foreign_programs import SOURCE
from traffic import UdpFlow, UdpPeer

# Capabilities taken away, and a word of what the daemon says then.
WITHOUT = {"-bpf,-sys_admin": "CAP_BPF", "-net_admin": "CAP_NET_ADMIN"}


def run():
    with lab_a() as lab:
        for host, dev in (("L", "la"), ("W", "wa")):
            lab[host].run("ethtool", "-K", dev, "gro", "on", "tx", "off")
        # --force would replace a foreign program, but the kernel has no native one beside a generic one.
        lab.veth("R", "rm", "W", "wm")
        lab["W"].run("ethtool", "-K", "wm", "gro", "on")
        source, built = os.path.join(lab.tmp, "foreign.c"), os.path.join(lab.tmp, "foreign.o")
        with open(source, "w", encoding="ascii") as file:
            file.write(SOURCE)
        command(["clang", "-O2", "-target", "bpf", "-c", source, "-o", built])
        loaded = lab["R"].run("ip", "link", "set", "dev", "rm", "xdpgeneric", "obj", built, "sec", "xdp", ok=False)
        if loaded.returncode != 0:
            raise Skip(f"ip cannot load an XDP program here: {loaded.stderr.strip()}")
        lab.start()
        UdpPeer(lab["W"], "198.51.100.2", 9)
        flow = UdpFlow(lab["L"], ("0.0.0.0", 40000), ("198.51.100.2", 9))
        before = snapshot(lab)
        flow.start(200)
        failed = lab.ftctl_raw("attach", "ra", "rb", "rm", "--mode", "xdp", "--force")
        flow.stop()
        check_equal(failed.returncode, 2, f"exit of the attach: {failed.stdout}{failed.stderr}")
        for word in "ftctl: ", "rm", "generic", "hint: ":
            check(word in failed.stderr, f"the error does not say {word!r}: {failed.stderr}")
        check_same(before, snapshot(lab), "after an attach that the kernel refused")
        check_equal(lab.stats()["devices"], [], "devices after it")
        check_equal(flow.lost(0, settle=3), 0, "datagrams lost meanwhile")

        lab["R"].sysctl_set("net/netfilter/nf_conntrack_events", 0)
        checks = {probe["name"]: probe for probe in lab.ftctl("doctor", ok=False)["kernel"]}
        events = checks["conntrack-events"]
        check(not events["ok"] and "nf_conntrack_events" in events["detail"] + events["hint"], f"doctor: {events}")
        lab.stop()
        for missing, word in WITHOUT.items():
            ended = lab["R"].run("timeout", "10", "setpriv", "--bounding-set", missing, f"{BIN}/ftctld", "-i",
                                 lab.instance, ok=False)
            check_equal(ended.returncode, 2, f"ftctld without {missing}: exit, {ended.stderr}")
            check(word in ended.stderr and "hint: " in ended.stderr, f"ftctld without {missing} says: {ended.stderr}")
