# SPDX-License-Identifier: GPL-2.0-only
"""The oracle: the differential test (test/net/same.py) with this kernel's own devices, row by row of test/vm/rows.py.

FTCTL_VM_ROWS: quick (default), all, or names with commas (* and ? match). FTCTL_VM_PACKETS: random packets for each
row (beside the chosen ones). FTCTL_VM_SEED repeats a run."""
import dataclasses
import fnmatch
import multiprocessing
import os
import sys
import time
import traceback

VM = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [VM, os.path.join(os.path.dirname(VM), "net")]

# pylint: disable=wrong-import-position
import lab  # noqa: E402
import same  # noqa: E402
from rows import ROWS  # noqa: E402


MODULES = ("nf_conntrack nf_conntrack_netlink nf_nat nf_tables nft_ct nft_nat nft_masq nft_chain_nat veth ipip "
           "ip6_tunnel sit 8021q pppoe bridge bonding vrf sch_ingress cls_bpf").split()


def chosen():
    words = os.environ.get("FTCTL_VM_ROWS") or "quick"
    if words in ("quick", "all"):
        found = [row for row in ROWS.values() if row.quick or words == "all"]
    else:
        found = []
        for pattern in words.split(","):
            names = fnmatch.filter(ROWS, pattern)
            if not names:
                sys.exit(f"FTCTL_VM_ROWS: no row is called {pattern}; there are: {' '.join(ROWS)}")
            found += [ROWS[name] for name in names]
    return [for_this_kernel(row) for row in found]


def for_this_kernel(row):
    """Before 6.3 nobody can tell the stack at TC that a header of the other family was taken off (docs/kernels.md)."""
    version = tuple(int(part) for part in os.uname().release.split(".")[:2])
    other = row.tunnel and row.outer is not row.ip
    return dataclasses.replace(row, slow_in=True) if other and row.hook == "tc" and version < (6, 3) else row


def prepare_kernel():
    """Conntrack's settings are there from the start, and the limit of ICMP messages, which on older kernels is one for
    the machine, is lifted: else two routers would not be equal."""
    # Loaded here, one after the other, and not by the rows' programs, which would wait for one another for minutes.
    lab.command(["modprobe", "-a", *MODULES], ok=False)  # they may be built in
    for name, value in (("icmp_msgs_per_sec", 1000000), ("icmp_msgs_burst", 1000000)):
        with open(f"/proc/sys/net/ipv4/{name}", "w", encoding="ascii") as file:
            file.write(str(value))


def hold(args, row, packets):
    """(name, is everything as the row says)"""
    started = time.monotonic()
    good = False
    args.hook = row.hook
    try:
        good = same.run_variant(args, row, packets)
    except (same.HarnessError, lab.Failure) as failure:
        print(f"HARNESS: row {row.name}: {failure}", flush=True)
    except Exception:  # of this row; the others go on
        print(f"HARNESS: row {row.name}: {traceback.format_exc()}", flush=True)
    if not good:
        print(f"FAIL: row {row.name} after {time.monotonic() - started:.1f} s", flush=True)
    return row.name, good


def main():
    args = same.parse_args(["--build", lab.BIN, *sys.argv[1:]])
    if "FTCTL_VM_SEED" in os.environ:
        args.seed = int(os.environ["FTCTL_VM_SEED"])
    packets = int(os.environ.get("FTCTL_VM_PACKETS", "320"))
    rows = chosen()
    lab.exit_on_signals()
    prepare_kernel()
    print(f"seed {args.seed}, kernel {os.uname().release}", flush=True)
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        results = [pool.apply_async(hold, (args, row, packets)) for row in rows]
        failed = [name for name, good in (result.get() for result in results) if not good]
        pool.close()
        pool.join()
    print(f"{len(rows) - len(failed)} of {len(rows)} rows hold" + (f"; not: {' '.join(failed)}" if failed else ""))
    return 1 if failed else 0


sys.exit(main())
