# SPDX-License-Identifier: GPL-2.0-only
"""Runs rows, keeps the topology between them, reports one line for each."""
import contextlib
import fnmatch
import json
import os
import platform
import subprocess
import sys
import time
import traceback

import judge
import rows
import rules
import stages
import topology
from exchange import Exchange
from lab import Failure, Skip, check, check_equal
from nft import Nft

PATIENCE_S = 120  # for a program to start or to answer, on an emulated machine beside busy ones


class Bench:
    """The topology of the moment. It stays from row to row, and is built again after a failure."""

    def __init__(self):
        self.lab, self.attached = None, False
        self.hook, self.mtus = None, None
        self.router, self.far = None, None  # the nft of nsr1 and of ns2

    def ready(self, row):
        if self.lab is None:
            self.lab, self.hook, self.mtus = topology.build(), None, None
            self.router, self.far = Nft(self.lab["nsr1"]), Nft(self.lab["ns2"])
            self.far.run(rules.ARRIVED)
        if self.mtus != row.mtus:
            topology.set_mtus(self.lab, row.mtus)
            self.mtus = row.mtus
        topology.path_mtu_discovery(self.lab, row)
        if row.expect != "plain" and self.hook != row.hook:
            if not self.attached:
                self.lab.start(deadline=PATIENCE_S)
                self.attached = True
            if self.hook is not None:
                self.lab.detach()
            if row.hook == "xdp":
                topology.make_ready_for_xdp(self.lab)
            self.attach(row, "veth0", "veth1")
            self.hook = row.hook
        return self.lab

    def attach(self, row, *devices):
        force = ("--force",) if row.hook == "xdp" else ()
        done = self.lab.ftctl_raw("attach", *devices, "--mode", row.hook, *force, as_json=True, timeout=PATIENCE_S)
        check(done.returncode == 0, f"ftctl attach {' '.join(devices)}: {done.stderr.strip()}")
        answer = json.loads(done.stdout)
        hooks = {device["name"]: device["hook"] for device in answer["devices"]}
        below = [name for device in devices for name in answer["uppers"].get(device, [device])]
        check_equal(hooks, dict.fromkeys(below, row.hook), "hooks")

    @contextlib.contextmanager
    def attached_for(self, row):
        """row.attach only for the length of the block; veth0 and veth1 stay attached (see ready())."""
        if row.attach:
            self.attach(row, *row.attach)
        try:
            yield
        finally:
            if row.attach and self.lab.alive():
                self.lab.detach(*row.attach)

    def close(self):
        """Detaches, and checks that nothing of ftctl stays."""
        lab, attached, self.lab, self.attached = self.lab, self.attached, None, False
        if lab is None:
            return
        try:
            if attached:
                lab.detach()
                lab.stop()
                check_equal(lab.daemon.returncode, 0, "exit code of ftctld")
        finally:
            lab.close()
        check(not attached or not lab.left_behind, f"left behind: {lab.left_behind}")

    def discard(self):
        lab, self.lab, self.attached = self.lab, None, False
        if lab is not None:
            lab.close()


def explain(lab):
    """What a person would look at next, while everything is still as it was."""
    with contextlib.suppress(Exception):
        lab.explain_failure()
        print("---- nsr1's ruleset\n" + lab["nsr1"].run("nft", "list", "ruleset", ok=False).stdout[:4000])


def run_row(bench, row, seed):
    """Returns a few words about what was seen."""
    lab = bench.ready(row)
    with contextlib.ExitStack() as stack:
        stack.enter_context(stages.changed(lab, row))
        stack.enter_context(bench.attached_for(row))
        rules.load(bench.router, row)
        bench.far.counters("netdev arrived", reset=True)
        server = (topology.NS2[row.family], topology.PORT)
        by_dnat = (topology.DNAT_ADDR[row.family], topology.DNAT_PORT)
        target = by_dnat if row.nat in ("dnat", "both") else server
        try:
            exchange = Exchange(lab["ns1"], lab["ns2"], target, server, row.size, seed)
            stack.callback(exchange.abandon)
            judge.before(lab, row, exchange)
            took = exchange.files()
            said = judge.after(lab, row, exchange, bench.router.counters("inet acceptance"))
            exchange.close()
            judge.dscp(row, bench.far.counters("netdev arrived"))
        except Exception:
            explain(lab)
            raise
        return f"{said}; files {took:.2f} s"


def chosen(patterns, seed):
    # XDP last: veths are changed for it.
    table = sorted(list(rows.ROWS) + rows.rerun(seed), key=lambda row: row.hook)
    if not patterns:
        return table
    unknown = [word for word in patterns if not any(fnmatch.fnmatch(row.name, word) for row in table)]
    check(not unknown, f"no row is called {' '.join(unknown)} (--list names them)")
    return [row for row in table if any(fnmatch.fnmatch(row.name, word) for word in patterns)]


def attempt(bench, row, seed, again=False):
    """("ok", what was seen), ("SKIP", why) or ("FAIL", why)."""
    try:
        return "ok", run_row(bench, row, seed)
    except Skip as reason:
        return "SKIP", str(reason)
    except Failure as failure:
        why = str(failure)
    except subprocess.TimeoutExpired as hung:
        # ip(8) or the like, after a minute: a busy machine leaves an emulated one next to nothing. No word about ftctl.
        bench.discard()
        if not again:
            print(f"again: {row.name}: {hung}", flush=True)
            return attempt(bench, row, seed, again=True)
        why = str(hung)
    except Exception as error:  # of the test itself, or of a command: also a failure
        traceback.print_exc(file=sys.stdout)
        why = f"{type(error).__name__}: {error}"
    bench.discard()
    return "FAIL", why


def run(patterns, seed):
    """The rows whose names match one of `patterns` (all when there is none). Returns 0, 1 or 77."""
    table = chosen(patterns, seed)
    print(f"kernel {platform.release()}, ftctl of {os.environ.get('FTCTL_BIN_DIR', 'build')}, seed {seed}", flush=True)
    tally = {"ok": [], "FAIL": [], "SKIP": []}
    bench = Bench()
    try:
        for row in table:
            began = time.monotonic()
            result, said = attempt(bench, row, seed)
            tally[result].append(row.name)
            ends = "" if row.mtus == topology.Mtus() else f" [{row.hook}, MTUs {row.mtus}]"
            print(f"{result:5}{row.name}{ends}: {said} ({time.monotonic() - began:.1f} s)", flush=True)
        try:
            bench.close()
        except Failure as failure:
            tally["FAIL"].append("detach")
            print(f"FAIL detach: {failure}")
    finally:
        bench.discard()
    passed, failed, skipped = (len(tally[key]) for key in ("ok", "FAIL", "SKIP"))
    print(f"{passed} rows passed, {failed} failed, {skipped} skipped")
    for key, word in (("FAIL", "failed"), ("SKIP", "skipped")):
        if tally[key]:
            print(f"{word}: {' '.join(tally[key])}")
    if failed:
        return 1
    return 0 if passed else 77
