# SPDX-License-Identifier: GPL-2.0-only
"""L02: foreign XDP and TC programs are named, never replaced, and still see their packets after detach."""
import os

from lab import Skip, check, check_equal, command
from labs import lab_a
from traffic import check_fast, fast_udp

SOURCE = """
__attribute__((section("xdp"), used)) int foreign_xdp(void *ctx) { return 2; }
__attribute__((section("tc"), used)) int foreign_tc(void *ctx) { return -1; }
char licence[] __attribute__((section("license"), used)) = "GPL";
"""


def run():
    with lab_a() as lab:
        router = lab["R"]
        source, built = os.path.join(lab.tmp, "foreign.c"), os.path.join(lab.tmp, "foreign.o")
        with open(source, "w", encoding="ascii") as file:
            file.write(SOURCE)
        command(["clang", "-O2", "-target", "bpf", "-c", source, "-o", built])

        # Filters of somebody else before and behind ours, on a clsact that was there before.
        router.run("tc", "qdisc", "add", "dev", "ra", "clsact")
        for direction in ("ingress", "egress"):
            for prio in (1, 49000):
                router.run("tc", "filter", "add", "dev", "ra", direction, "prio", str(prio), "bpf", "da", "obj", built,
                           "sec", "tc")
        router.run("tc", "qdisc", "add", "dev", "rb", "ingress")

        def tc():
            return [router.run("tc", *words.split()).stdout for words in
                    ("qdisc show dev ra", "filter show dev ra ingress", "filter show dev ra egress",
                     "qdisc show dev rb", "filter show dev rb ingress")]

        before = tc()
        lab.attach("ra", "rb")
        flow, _peer = fast_udp(lab)
        check_fast(lab, flow)
        for line in before[1].splitlines() + before[2].splitlines():
            check(line in "\n".join(tc()), f"attach took away a foreign filter: {line}")
        lab.ftctl("attach", "ra", "rb")
        lab.detach()
        check_equal(tc(), before, "qdiscs and filters after detach")

        # A foreign XDP program: refused by name, nothing half done, and it stays.
        loaded = router.run("ip", "link", "set", "dev", "rb", "xdpdrv", "obj", built, "sec", "xdp", ok=False)
        if loaded.returncode != 0:
            raise Skip(f"ip cannot load an XDP program here: {loaded.stderr.strip()}")

        def xdp():
            return router.ip_json("link show dev rb")[0].get("xdp", {}).get("prog", {}).get("id")

        foreign = xdp()
        check(foreign, "the foreign program is not there")
        refused = lab.ftctl_raw("attach", "ra", "rb", "--mode", "xdp")
        check_equal(refused.returncode, 2,
                    f"attach --mode xdp over a foreign program: {refused.stdout}{refused.stderr}")
        check("rb" in refused.stderr and str(foreign) in refused.stderr, f"the error names neither: {refused.stderr}")
        check("hint:" in refused.stderr, f"no hint: {refused.stderr}")
        check_equal(xdp(), foreign, "XDP program of rb after the refused attach")
        check_equal(tc(), before, "ra after an attach that failed on rb")
        check("xdp" not in router.run("ip", "link", "show", "dev", "ra").stdout, "ra was left with a program")

        # TC works beside it.
        lab.attach("ra", "rb", mode="tc")
        check_equal(lab.stats("rb")["hook"], "tc", "hook of rb beside a foreign XDP program")
        flow.start(50)
        lab.wait_live(proto="udp", sport=40000)
        check_fast(lab, flow)
        lab.detach()
        check_equal(xdp(), foreign, "XDP program of rb after detach")
        check_equal(tc(), before, "qdiscs and filters after the last detach")
