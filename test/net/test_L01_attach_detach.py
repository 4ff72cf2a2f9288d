# SPDX-License-Identifier: GPL-2.0-only
"""L01: attach is idempotent and all-or-nothing; detach leaves the machine as it was found."""
import os
import re

from lab import RUN_DIR, check, check_equal, wait_until
from labs import lab_a
from traffic import check_fast, fast_udp


def snapshot(lab):
    """All that ftctl could have changed in R."""
    router = lab["R"]
    taken = {"ip -d link": re.sub(r"(prog/xdp id|load_time) \d+", "", router.run("ip", "-d", "link").stdout)}
    for dev in ("ra", "rb"):
        for what in (("qdisc",), ("filter", "ingress"), ("filter", "egress")):
            line = ("tc", what[0], "show", "dev", dev, *what[1:])
            taken[" ".join(line)] = router.run(*line, ok=False).stdout
        taken[f"ethtool -k {dev}"] = router.run("ethtool", "-k", dev).stdout
    ruleset = router.run("nft", "-s", "list", "ruleset").stdout  # without counters
    taken["nft list ruleset"] = ruleset
    net = router.run("bpftool", "net", "show", ok=False).stdout
    taken["bpftool net"] = re.sub(r"id \d+", "id", net)
    with router.entered():
        for directory in ("ipv4/conf/all", "ipv4/conf/ra", "ipv4/conf/rb", "ipv4/neigh/ra", "netfilter", "core",
                          "ipv4"):
            base = f"/proc/sys/net/{directory}"
            for name in sorted(os.listdir(base)):
                path = os.path.join(base, name)
                if os.path.isfile(path) and name not in ("nf_conntrack_count", "flush"):
                    try:
                        with open(path, encoding="ascii") as file:
                            taken[path] = file.read()
                    except OSError:
                        continue
    return taken


def run():
    with lab_a() as lab:
        before = snapshot(lab)
        lab.start()
        first = lab.attach("ra", "rb")
        check(all(device["changed"] for device in first["devices"]), f"first attach: {first}")
        status = lab.ftctl("status")
        again = lab.ftctl_raw("attach", "ra", "rb", as_json=True)
        check_equal(again.returncode, 0, f"second attach: {again.stderr}")
        check('"changed":true' not in again.stdout.replace(" ", ""), f"second attach changed something: {again.stdout}")
        check_equal(again.stderr, "", "stderr of the second attach")
        strip = re.compile(r"uptime|heartbeat|age|packets|_s\b")

        def steady(value):
            if isinstance(value, dict):
                return {key: steady(part) for key, part in value.items() if not strip.search(key)}
            return [steady(part) for part in value] if isinstance(value, list) else value

        check_equal(steady(lab.ftctl("status")).get("devices"), steady(status).get("devices"),
                    "devices in status after the second attach")
        flow, _peer = fast_udp(lab)
        check_fast(lab, flow)

        # All or nothing: a device that does not exist spoils it for the others.
        lab.detach()
        clean = snapshot(lab)
        failed = lab.ftctl_raw("attach", "ra", "rb", "nonesuch")
        check(failed.returncode in (1, 2), f"attach of a missing device: exit {failed.returncode}")
        check("nonesuch" in failed.stderr, f"the error does not name the device: {failed.stderr}")
        check(failed.stderr.startswith("ftctl: "), f"form of the error: {failed.stderr!r}")
        check_same(clean, snapshot(lab), "after an attach that failed")
        check_same(before, clean, "after detach")

        # A dry run changes nothing and says what it would do.
        dry = lab.ftctl_raw("attach", "ra", "rb", "--dry-run")
        check_equal(dry.returncode, 0, f"attach --dry-run: {dry.stderr}")
        check("ra" in dry.stdout, f"attach --dry-run printed {dry.stdout!r}")
        check_same(before, snapshot(lab), "after attach --dry-run")

        # One of two.
        lab.attach("ra", "rb")
        lab.detach("ra")
        check_equal([device["name"] for device in lab.stats()["devices"]], ["rb"], "devices after `detach ra`")
        flow.stop()
        first = flow.send(20)
        check_equal(flow.lost(first), 0, "lost with one device attached")
        again = lab.ftctl_raw("detach", "ra")
        check(again.returncode in (0, 3), f"detach of what is not attached: exit {again.returncode}")
        lab.detach()
        check_same(before, snapshot(lab), "after the last detach")
        lab.stop()
        check_equal(lab.daemon.returncode, 0, "exit of the daemon after SIGTERM")
        check_same(before, snapshot(lab), "after the daemon ended")
        pins = os.path.join(RUN_DIR, "bpf", "ftctl", lab.instance)
        wait_until(lambda: not os.path.exists(pins) or not os.listdir(pins), 1, f"{pins} is empty")
        check(not os.path.exists(os.path.join(RUN_DIR, lab.instance + ".sock")), "the socket is left behind")

    tracking_table()


def tracking_table():
    """Where no rule tracks connections, attach adds its own table and the last detach removes it."""
    with lab_a() as lab:
        lab["R"].run("nft", "flush", "ruleset")
        lab["W"].ip("route add 192.0.2.0/24 via 198.51.100.1")
        lab.start()
        lab.attach("ra", "rb")
        check("table inet ftctl" in lab["R"].run("nft", "list", "ruleset").stdout, "no table keeps conntrack on")
        fast_udp(lab)
        lab.detach()
        check_equal(lab["R"].run("nft", "list", "ruleset").stdout.strip(), "", "ruleset after the last detach")


def check_same(before, after, when):
    for key in before.keys() | after.keys():
        check(before.get(key) == after.get(key),
              f"{when}: {key} was\n{before.get(key)}\nand is\n{after.get(key)}")
