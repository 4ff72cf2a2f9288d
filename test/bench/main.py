# SPDX-License-Identifier: GPL-2.0-only
"""test/bench/run.sh: arguments, rounds, results."""
import argparse
import contextlib
import dataclasses
import datetime
import functools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "net")]

from cases import CASES, PATHS, QUICK, SMOKE, Cell, full  # noqa: E402
from figures import needed, small_difference, text, title  # noqa: E402
from lab import BIN, Failure, check, exit_on_signals, sweep  # noqa: E402
from machine import conntrack_sizes, no_device, stolen  # noqa: E402
from plots import draw  # noqa: E402
from profiles import by_function  # noqa: E402
from rig import CPU, FRAMEGEN, Rig  # noqa: E402
from secondary import SECONDARY  # noqa: E402
from tables import document, splice  # noqa: E402

BATCH = 64
WARM = 20000  # frames before something is timed
CACHED = 131072  # flows: of more, what was just visited is not in a cache any more
ATTEMPTS = 4
CALM_SHARE = 0.1  # of a visit's slices at least, or the processor was not this machine's own
DIFFERENCE_ROUNDS = 15  # or more, where a difference of some ten nanoseconds is a figure
VISITS, QUICK_VISITS = 4, 3  # at most: of a path for each calm one; with --quick for both of them
USER_TUNNEL_FLOWS = 1024
SEARCH_S = 5  # for a moment in which nobody disturbs the processor
BUSY = 0.02  # of the time or more the hypervisor had the processor: the figures say little
BROKEN = (Failure, subprocess.TimeoutExpired, OSError)  # a daemon that does not answer among them
DESCRIPTION = """\
How long does a router take for a packet? Nanoseconds on this machine, for the same traffic on each of these paths:

""" + "\n".join(f"  {path.name:15} {path.text}" for path in PATHS.values()) + """

ftctl is the real product: daemon, admission through conntrack and witness, trickle and counters. Frames are XDP live
frames, as drivers make them. All paths of a scenario are set up at once, each with a router of its own, and are
measured in turn, round by round, so that what disturbs the machine disturbs all of them. One processor does
everything, generator and end included; `drop` shows what these two take.
"""
EPILOG = """\
Every row has proved that all its frames arrived and that they went by the path that it names. The exit code does not
depend on any figure. Uses the programs of build/, or $FTCTL_BIN_DIR.

examples:
  test/bench/run.sh --quick                       within three minutes
  test/bench/run.sh --json out.json               everything, about an hour
  test/bench/run.sh --flows 1024 nat4 ipip-encap
  test/bench/run.sh --from out.json --plots docs/img --table docs/performance.md

exit code: 0 all rows measured, 1 frames were lost or something failed, 2 usage, 77 this machine cannot do it
"""


def say(line):
    print(line, file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser("test/bench/run.sh", description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", nargs="*", metavar="SCENARIO", help="default: all (--list)")
    parser.add_argument("--quick", action="store_true",
                        help="six scenarios, 1 and 1024 flows, two short rounds, and fixtures")
    parser.add_argument("--smoke", action="store_true",
                        help="does it work? nat4 and rpf with 16 flows, and fixtures, half a minute")
    parser.add_argument("--figures", action="store_true", help="only cells that a figure which is to hold needs")
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--table", metavar="FILE", help="renew the tables in this Markdown file (- prints them)")
    parser.add_argument("--plots", metavar="DIR", help="write bar charts there, bench-*.svg; --table links to them")
    parser.add_argument("--flows", type=int, action="append", help="only cells with so many flows; may be repeated")
    parser.add_argument("--path", action="append", choices=[path.name for path in PATHS.values() if not path.of],
                        help="only this path; may be repeated")
    parser.add_argument("--rounds", type=int, help="5; with --quick 2")
    parser.add_argument("--from", metavar="FILE", dest="source", help="measure nothing: take this JSON file's rows")
    parser.add_argument("--profile", action="store_true", help="also in which kernel functions the time is spent: "
                        "of cells of 64 bytes in random order, and of streams of TCP")
    parser.add_argument("--list", action="store_true", help="the scenarios")
    args = parser.parse_args()
    for name in args.scenario:
        if name not in {*CASES, *SECONDARY}:
            parser.error(f"no scenario {name}; there are: {' '.join([*CASES, *SECONDARY])}")
    if args.rounds is not None and args.rounds < 1:
        parser.error("--rounds: 1 or more")
    return args


def command(args):
    """What gives these figures again; not where they were written to."""
    flags = ("quick", "smoke", "figures", "profile")
    words = ["test/bench/run.sh"] + [f"--{name}" for name in flags if getattr(args, name)]
    for name in ("rounds", "flows", "path"):
        value = getattr(args, name)
        words += [f"--{name} {each}" for each in (value if isinstance(value, list) else [value] if value else [])]
    return " ".join(words + args.scenario)


def show(result, args):
    """As text, and what else is asked for."""
    print(text(result))
    if args.plots:
        draw(result, args.plots)
    if args.table:
        near = os.path.dirname(os.path.abspath(args.table)) if args.table != "-" else os.getcwd()
        splice(args.table, "test/bench/run.sh", document(result, args.plots and os.path.relpath(args.plots, near)))


def environment(args):
    def git(*words):
        return subprocess.run(["git", "-C", REPO, *words], capture_output=True, text=True, check=False).stdout.strip()

    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    changed = git("status", "--porcelain", "--untracked-files=no", "bpf", "ctl", "include")
    return {"kernel": platform.release(), "cpu": models[0] if models else platform.machine(), "cpus": os.cpu_count(),
            "commit": git("rev-parse", "--short=10", "HEAD") + ("+" if changed else ""),
            "date": datetime.datetime.now().isoformat(timespec="seconds"), "load": os.getloadavg()[0], "batch": BATCH,
            "rounds": args.rounds or (1 if args.smoke else 2 if args.quick else 5),
            "quick": args.quick, "command": command(args), "bulking": [], "secondary": [], "profiles": [], "notes": []}


def names_of(args):
    """Scenarios to measure."""
    if args.scenario:
        return list(dict.fromkeys(args.scenario))
    if args.smoke:
        return ["nat4", "rpf", "fixtures"]
    return [case.name for case in CASES.values() if case.quick or not args.quick] + (
        ["fixtures"] if args.quick else [*SECONDARY])


def cells_of(args, name):
    cells = SMOKE if args.smoke else QUICK if args.quick else full(name)
    return [cell for cell in cells if (not args.flows or cell.flows in args.flows) and
            (not args.figures or needed((name, *dataclasses.astuple(cell))))]


class Slow(Failure):
    """Packets took the stack's way, not ftctl's."""


class Run:
    def __init__(self, args, env):
        self.args, self.env = args, env
        self.rows, self.failed = [], []
        self.short = args.quick or args.smoke
        self.seconds = 0.1 if self.short else 0.25
        # Frames need no ksoftirqd, which must not starve, since 6.4.
        release = tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", env["kernel"]).groups())
        self.policy = ["-R"] if release >= (6, 4) else []
        self.disturbed = self.visits = 0
        self.began = stolen(CPU)

    @functools.cached_property
    def pause(self):
        """How long a pause of framegen's takes when no neighbour uses the same core."""
        done = subprocess.run([FRAMEGEN, "calm", str(CPU), str(SEARCH_S)], capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"framegen calm: {done.stderr.strip()}")
        return int(done.stdout)

    def note(self, line):
        if line not in self.env["notes"]:
            self.env["notes"].append(line)

    def fail(self, line):
        self.failed.append(line)
        say(f"  FAILED: {line}")

    def visit(self, router, cell):
        """All flows once, before some of many are timed: so that no trickle is due then."""
        if cell.flows > WARM and (router.fast or cell.flows <= CACHED):
            router.sweep(Cell(cell.flows, cell.size), router.case.up, *self.policy, "-b", str(BATCH))

    def once(self, router, cell):
        """Nanoseconds per packet of a path, with the proof that they are that path's, and whether nobody disturbed
        the processor."""
        for attempt in range(ATTEMPTS):
            before = router.reads()
            try:
                with router.turn():
                    self.visit(router, cell)
                    return self.timed(router, cell)
            except Slow:
                # So many flows that fall idle at once are many events; when some are lost, everything is slow until
                # the daemon has read conntrack. Or the trickle of many came due between visit and measurement.
                if not router.fast or attempt == ATTEMPTS - 1:
                    raise
                why = "their trickle was due" if router.reads() == before else "conntrack was read again meanwhile"
                self.note(f"{title((router.case.name, cell.flows, cell.size, cell.order))}: {router.path.name}: "
                          f"{why}; what was measured then does not count")
        raise AssertionError

    def timed(self, router, cell):
        before = router.forwarded()
        warm, timed = router.send(cell, router.case.up, WARM, *self.policy, "-b", str(BATCH), "-r", "2", "-d",
                                  str(self.seconds), "-q", str(self.pause))
        slow, total = router.forwarded() - before, warm.frames + timed.frames
        check(timed.arrived == timed.frames, f"{timed.arrived} of {timed.frames} frames arrived")
        if router.fast and slow > total // 100:  # the trickle was due
            raise Slow(f"the stack forwarded {slow} of {total} packets: not fast")
        if not router.fast and not router.path.bare:
            check(slow >= total, f"the stack forwarded only {slow} of {total} packets")
        self.visits += 1
        if not self.policy:  # without it frames may still be under way when the loop has ended
            return timed.whole, True
        calm = timed.share >= CALM_SHARE and timed.calm > 0
        self.disturbed += not calm
        return (timed.calm, True) if calm else (timed.loop, False)

    def bulking(self, router, cell):
        """How many frames the router's device takes at a time; not while something is timed."""
        sent = router.send(cell, router.case.up, WARM, "-F", "-r", "2")[-1]
        check(sent.arrived == sent.frames, f"{sent.arrived} of {sent.frames} frames arrived")
        check(sent.flushes > 0, "no flush of a device map was seen")
        self.env["bulking"].append({"scenario": router.case.name, "flows": cell.flows, "batch": BATCH,
                                    "frames_per_flush": round(sent.flushed / sent.flushes, 2),
                                    "dropped": sent.dropped})

    def profile(self, router, cell, per_packet):
        """The same again with samples taken, which costs: so it is not what is measured."""
        with router.turn(), tempfile.NamedTemporaryFile() as samples:
            self.visit(router, cell)
            router.send(cell, router.case.up, WARM, *self.policy, "-b", str(BATCH), "-r", "11", "-d", str(self.seconds),
                        "-n", "-s", samples.name)
            self.env["profiles"].append({
                "of": f"{title((router.case.name, *dataclasses.astuple(cell)))}, nanoseconds a packet",
                "path": router.path.name, "least": 6, "ns": by_function(samples.name, per_packet)})

    def rounds(self, rig, cell):
        """How many each router gets."""
        usual = self.env["rounds"]
        return {router: max(usual, DIFFERENCE_ROUNDS) if not self.short and small_difference(
            (router.case.name, *dataclasses.astuple(cell)), router.path.name) else usual for router in rig.routers}

    def cell(self, rig, cell):
        rounds, calm, loops = self.rounds(rig, cell), {router: [] for router in rig.routers}, {}
        most = max(self.env["rounds"] * VISITS, max(rounds.values()) * 2)
        for _visit in range(QUICK_VISITS if self.short else most):
            due = [router for router, values in calm.items() if values is not None and len(values) < rounds[router]]
            for router in due:
                try:
                    ns, undisturbed = self.once(router, cell)
                except BROKEN as error:
                    self.fail(f"{title((router.case.name, cell.flows, cell.size, cell.order))}: {router.path.name}: "
                              f"{error}")
                    calm[router] = None
                else:
                    (calm[router] if undisturbed else loops.setdefault(router, [])).append(ns)
            if not due:
                break
        for router, measured in calm.items():
            if router.path.name == "ftctl-xdp" and measured is not None and cell.flows <= 16 and not router.case.miss:
                try:
                    self.bulking(router, cell)
                except BROKEN as error:
                    self.note(f"frames per flush: not counted: {str(error).splitlines()[0]}")
            if measured is not None:
                undisturbed = bool(measured)
                measured = measured or loops[router]
                median = round(statistics.median(measured), 1)
                self.rows.append({
                    "scenario": router.case.name, "path": router.path.name, "flows": cell.flows, "size": cell.size,
                    "order": cell.order, "ns": median, "ns_min": round(min(measured), 1),
                    "ns_max": round(max(measured), 1), "delivered": 1.0, "calm": undisturbed})
                if self.args.profile and cell == Cell(cell.flows):
                    self.profile(router, cell, median)

    def scenarios(self, cases):
        """Those of one rig."""
        cells = cells_of(self.args, cases[0].name)
        pairs = [(case, path) for case in cases for path in case.paths()
                 if not self.args.path or (PATHS[path].of or path) in self.args.path]
        if not cells or not pairs:
            return
        with Rig(pairs, max(cell.flows for cell in cells), fetch=not self.short) as rig:
            case = rig.case
            for path, why in rig.left_out.items():
                self.note(f"no row {path}: {why}")
            if case.tunnel and not rig.kernel_tunnel:
                self.note(f"{case.tunnel}: this kernel has no such device. ftctl makes the tunnel; the kernel's rows "
                          "are of the same packets without one")
                if any(cell.flows > USER_TUNNEL_FLOWS for cell in cells):
                    self.note(f"{case.name}: no cell of more than {USER_TUNNEL_FLOWS} flows: a tunnel in user space "
                              "does not keep up with the trickle of so many at once")
                    cells = [cell for cell in cells if cell.flows <= USER_TUNNEL_FLOWS]
            admitted = 0
            for cell in cells:
                if cell.flows != admitted:
                    rig.admit(cell)
                    admitted = cell.flows
                self.cell(rig, cell)

    def measure(self, names):
        """One secondary, or scenarios that belong together."""
        for name in names:
            say(f"{name}: {SECONDARY[name].__doc__ if name in SECONDARY else CASES[name].text}")
        began = time.monotonic()
        try:
            if names[0] in SECONDARY:
                flows = max(self.args.flows or [1 << 20])
                self.env["secondary"] += SECONDARY[names[0]](
                    self.env["rounds"], flows, self.env["profiles"] if self.args.profile else None)
            else:
                self.scenarios([CASES[name] for name in names])
        except BROKEN as error:
            self.fail(f"{' '.join(names)}: {error}")
        say(f"  {time.monotonic() - began:.0f} s")
        self.save()

    def all(self):
        together = {}
        for name in names_of(self.args):
            kind = CASES[name].device if name in CASES else ""
            why = no_device(kind) if kind else ""
            if why:
                self.note(f"{name}: left out: {why}")
            else:
                together.setdefault(CASES[name].together if name in CASES else name, []).append(name)
        for names in together.values():
            self.measure(names)
        if self.disturbed:
            self.note(f"{self.disturbed} of {self.visits} visits of a path were disturbed by somebody else on the same "
                      "core. They do not count, unless all of a row were (~): such a row compares with no other")
        stole, passed = (now - before for now, before in zip(stolen(CPU), self.began))
        if stole > BUSY * passed:
            self.note(f"the hypervisor had processor {CPU} for {stole / passed:.0%} of the time: no figure is worth "
                      "much")
        if self.env["load"] > 0.5:
            self.note(f"when it began the load was {self.env['load']:.1f}: something else ran")

    def save(self):
        """After each scenario: what was measured stays when a later one is interrupted."""
        if self.args.json:
            with open(self.args.json, "w", encoding="utf-8") as file:
                json.dump({"env": self.env, "rows": self.rows}, file, indent=1)
                file.write("\n")


def main():
    args = arguments()
    if args.list:
        for case in CASES.values():
            print(f"{case.name:14} {case.text}")
        for name, function in SECONDARY.items():
            print(f"{name:14} {function.__doc__}")
        return 0
    if args.source:
        with open(args.source, encoding="utf-8") as file:
            show(json.load(file), args)
        return 0
    for program in (os.path.join(BIN, "ftctld"), FRAMEGEN):
        if not os.access(program, os.X_OK):
            sys.exit(f"run.sh: {program} is not built (test/run.sh builds it)")
    exit_on_signals()
    sweep()
    run = Run(args, environment(args))
    with contextlib.ExitStack() as stack:
        stack.enter_context(conntrack_sizes())
        run.all()
    run.save()
    show({"env": run.env, "rows": run.rows}, args)
    for failed in run.failed:
        print(f"FAILED: {failed}")
    return 1 if run.failed or not (run.rows or run.env["secondary"]) else 0


sys.exit(main())
