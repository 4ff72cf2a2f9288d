# SPDX-License-Identifier: GPL-2.0-only
"""The part of test/vm/bench.sh that runs on this machine: virtual machines, results, tables."""
import argparse
import datetime
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
VM = os.path.dirname(HERE)
REPO = os.path.dirname(os.path.dirname(VM))
sys.path[:0] = [HERE] + [os.path.join(os.path.dirname(VM), name) for name in ("bench", "net")]

from report import profile_table, rewrite, text_table  # noqa: E402
from scenarios import SCENARIOS  # noqa: E402

PATHS = ("conntrack", "flowtable", "ftctl-tc", "ftctl-xdp", "redirect")
SKIPPED = 77
DESCRIPTION = """\
How many instructions does a router spend on a packet? Measured in a virtual machine with a Debian kernel whose clock
counts instructions, for the same traffic on each of these paths, all in one boot:

  conntrack  the kernel's forwarding, connections tracked
  flowtable  the kernel's flowtable (nft `flow add`)
  ftctl-tc   ftctl at TC; the real product: daemon, admission, witness, trickle and counters
  ftctl-xdp  ftctl at XDP
  redirect   frames handed from device to device as they are: the floor

The figures repeat to about one in a hundred from boot to boot, and do not depend on this machine or its load. They are
costs in instructions, not speeds: a cache miss or an atomic operation costs no more than an addition. Read the ratios.
"""
EPILOG = """\
An `insns` is the least of the rounds, less a calibration (generator, one reception and the drop at the end). 20 000
frames of 114 bytes (and tunnel headers) a round, as XDP live frames, --batch of them between two flushes. Each row has
proved that every packet arrived, and by the forward chain's counter that it took the path in question; a row that
cannot is marked failed, and the exit code is 1. Beside it, without --quick: the same with pktgen (socket buffers, one
at a time), calibrated alike, and iperf3 TCP in Mbit/s, at 1000 million instructions a second for everything, hosts
included.

Uses the programs of build/, or $FTCTL_BIN_DIR. One scenario takes three minutes on an idle machine.

examples:
  test/vm/bench.sh --quick plain                       is it all right?
  test/vm/bench.sh --json out.json                     everything
  test/vm/bench.sh --table docs/performance.md         ... and renews the table in the documentation
  test/vm/bench.sh --kernel 6.12 nat ipip-encap

exit code: 0 all rows measured, 1 some failed, 2 usage, 77 no QEMU or no such kernel
"""


def say(text):
    print(text, file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser("test/vm/bench.sh", description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", metavar="SCENARIO", help="default: all (--list)")
    parser.add_argument("--kernel", default="newest", help="newest (default) or the beginning of a version: 6.1, 6.12")
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--table", metavar="FILE", help="renew the tables in this Markdown file (- prints them)")
    parser.add_argument("--from", metavar="FILE", dest="source", help="measure nothing: take this JSON file's rows")
    parser.add_argument("--quick", action="store_true", help="fewer frames, no pktgen, no TCP")
    parser.add_argument("--batch", type=int, default=64, help="frames between two flushes, 1 to 256 (64)")
    parser.add_argument("--path", action="append", choices=PATHS, help="only this path; may be repeated")
    parser.add_argument("--profile", action="store_true", help="also show in which functions instructions are spent")
    parser.add_argument("--list", action="store_true", help="the scenarios")
    args = parser.parse_args()
    for name in args.scenario:
        if name not in SCENARIOS:
            parser.error(f"no scenario {name}; there are: {' '.join(SCENARIOS)}")
    if not 1 <= args.batch <= 256:
        parser.error("--batch: 1 to 256")
    return args


def kernel_package(name):
    found = subprocess.run([os.path.join(VM, "kernels.sh"), name], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        print(f"SKIP: kernel {name}: {found.stderr.strip().removeprefix('SKIP: ')}")
        sys.exit(SKIPPED)
    return found.stdout.splitlines()[-1]


def commit():
    """What the sources are; a plus: with changes that are not committed."""
    def git(*words):
        return subprocess.run(["git", "-C", REPO, *words], capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "bpf", "ctl", "include")
    return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")


def command(args):
    """What gives these figures again; not where they were written to."""
    words = ["test/vm/bench.sh"]
    if args.kernel != "newest":
        words += ["--kernel", args.kernel]
    if args.quick:
        words.append("--quick")
    if args.batch != 64:
        words += ["--batch", str(args.batch)]
    for path in args.path or ():
        words += ["--path", path]
    return " ".join(words + args.scenario)


def run_scenario(name, package, args):
    """The rows of one virtual machine; a path of which nothing came is a row that failed."""
    paths = args.path or PATHS
    options = {"frames": 5000 if args.quick else 20000, "rounds": 2 if args.quick else 3, "batch": args.batch,
               "quick": args.quick, "profile": args.profile, "paths": paths}
    argv = ["setpriv", "--pdeathsig", "TERM", os.path.join(VM, "vm"), "--icount", "--append", "preempt=full",
            "--timeout", "1800", package, "--", "python3", os.path.join(HERE, "measure.py"), name,
            json.dumps(options)]
    rows, lines = [], []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=REPO) as guest:
        for line in guest.stdout:
            if line.startswith('{"scenario"'):
                rows.append(json.loads(line))
            else:
                lines.append(line)
    if guest.returncode != 0 or any("failed" in row for row in rows):
        say("".join(lines))
    seen = {row["path"] for row in rows}
    return rows + [{"scenario": name, "path": path, "insns": None, "batch": args.batch,
                    "failed": f"the virtual machine ended with {guest.returncode} before this"}
                   for path in paths if path not in seen]


def save(path, result):
    """After each scenario: what was measured stays when a later one is interrupted."""
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


def measure(args):
    os.environ["FTCTL_BIN_DIR"] = build = os.path.realpath(os.environ.get("FTCTL_BIN_DIR", os.path.join(REPO, "build")))
    for program in ("ftctld", os.environ.get("FTCTL_FRAMEGEN", "test/framegen")):
        if not os.access(os.path.join(build, program), os.X_OK):
            sys.exit(f"bench.sh: {program} is not built in {build} (test/run.sh builds it)")
    package = kernel_package(args.kernel)
    with open(os.path.join(package, "package"), encoding="utf-8") as file:
        image = file.readline().split()[0]
    result = {"kernel": image.removeprefix("linux-image-").removesuffix("-unsigned"),
              "date": datetime.date.today().isoformat(), "commit": commit(),
              "command": command(args), "frame_bytes": 114, "rows": []}
    say(f"kernel {result['kernel']}, commit {result['commit']}")
    for name in args.scenario or SCENARIOS:
        began = time.monotonic()
        say(f"{name}: {SCENARIOS[name].text}")
        result["rows"] += run_scenario(name, package, args)
        save(args.json, result)
        say(f"  {time.monotonic() - began:.0f} s")
    return result


def main():
    args = arguments()
    if args.list:
        for each in SCENARIOS.values():
            print(f"{each.name:14} {each.text}")
        return 0
    if args.source:
        with open(args.source, encoding="utf-8") as file:
            result = json.load(file)
    else:
        result = measure(args)
    print(text_table(result))
    for row in result["rows"]:
        if "profile" in row:
            print(profile_table(row))
    if args.table:
        rewrite(args.table, result)
    failed = [row for row in result["rows"] if "failed" in row]
    for row in failed:
        print(f"FAILED: {row['scenario']} {row['path']}: {row['failed']}")
    return 1 if failed or not result["rows"] else 0


sys.exit(main())
