#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The differential test: random and hand-picked packets through plain Linux and through the fast
path; what arrives, and every ICMP that comes back, must be the same to the byte.

Exit: 0 the same, 1 a difference (shrunk and printed), 2 the harness failed, 77 cannot run here.
"""
import argparse
import itertools
import json
import os
import random
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# pylint: disable=wrong-import-position
import lab
from same_gen6 import generator
from same_lab import HarnessError
from same_pair import DifferenceFound, NotFast, Pair
from same_shrink import Shrinker, report
from same_variants import VARIANTS

BATCH = 64
ROUND = 320  # random packets on one set of TCP connections
# Faults of the second router, to see that the test finds them (--break).
FAULTS = {
    "dscp": "{ip} dscp set cs1",
    "ttl": "{ip} length 300-400 {ip} {ttl} set 9",
    "drop": "udp length 200-220 drop",
    "byte": "",  # not in R: of some frames that it sends one bit changes
    "rare": "tcp flags & (ack|urg) == ack|urg tcp urgptr > 60000 drop",
}


def parse_args(argv):
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=os.path.join(here, "..", "..", "build"), help="where the programs are")
    parser.add_argument("--hook", choices=("tc", "xdp"), default="tc")
    parser.add_argument("--variant", action="append", choices=sorted(VARIANTS), help="only this one (repeatable)")
    parser.add_argument("--family", type=int, choices=(4, 6), help="only variants of this one")
    parser.add_argument("--packets", type=int, default=10000, help="random packets in all, beside the hand-picked ones")
    parser.add_argument("--seed", type=int, help="repeat a run")
    parser.add_argument("--plain", action="store_true", help="both routers plain Linux: must find nothing")
    parser.add_argument("--break", dest="fault", choices=sorted(FAULTS), help="a fault for the second router")
    parser.add_argument("--self-test", action="store_true", help="of the harness: --plain, then every --break")
    parser.add_argument("--replay", metavar="JSON", help="send only these recipes")
    parser.add_argument("--no-shrink", action="store_true")
    args = parser.parse_args(argv)
    args.build = os.path.abspath(args.build)
    args.seed = random.randrange(1 << 32) if args.seed is None else args.seed
    return args


def cannot_run(args, variants):
    if os.geteuid() != 0:
        return "needs root (network namespaces, packet sockets)"
    for tool in ("ip", "nft", "nsenter") + (("ethtool",) if args.hook == "xdp" else ()):
        if not shutil.which(tool):
            return tool + " is not installed"
    if not args.plain or any(v.tunnel for v in variants):
        for program in ("ftctl", "ftctld"):
            if not os.path.exists(os.path.join(args.build, program)):
                return "%s is not in %s (see --build)" % (program, args.build)
    return None


def batches(recipes):
    for at in range(0, len(recipes), BATCH):
        yield recipes[at:at + BATCH]


class VariantRun:
    def __init__(self, args, variant, packets):
        self.args, self.variant, self.packets = args, variant, packets
        self.rng = random.Random("%d %s" % (args.seed, variant.name))
        self.pair = Pair(variant, args)
        self.least = self.most = self.carried = self.sent = 0
        self.problems = []
        self.pair.test.flip = args.fault == "byte"
        if args.fault and FAULTS[args.fault]:
            rule = FAULTS[args.fault].format(ip=variant.ip.nft, ttl="ttl" if variant.ip.version == 4 else "hoplimit")
            self.pair.test["R"].nft("table inet fault { chain f { type filter hook forward priority 10; %s; }; }\n"
                                    % rule)

    def _exchange(self, recipes):
        for batch in batches(recipes):
            found = self.pair.try_recipes(batch)
            if found:
                raise DifferenceFound(batch, found)
        self.sent += len(recipes)

    def _counted(self, recipes):
        """Exchanges recipes and checks the flows' counters against what must, and what may, be fast."""
        pair = self.pair
        if not pair.test.attached:
            self._exchange(recipes)
            return
        before, held = pair.carried(), pair.held_back()
        self._exchange(recipes)
        after, held = pair.carried(), pair.held_back() - held
        least, most = pair.expected(recipes)
        short = 0
        for key in sorted(set(most) | set(after)):
            count = after[key] - before[key]
            short += max(0, least[key] - count)
            if count > most[key]:
                self.problems.append("connection %s: the fast path counts %d packets, at most %d were for it: %s"
                                     % (key, count, most[key], self._taken(key, recipes)))
        if short > held:
            self.problems.append("%d plain packets were not carried by the fast path (%d held back for a reason); "
                                 "expected at least %s, counted %s" % (short, held, dict(least), dict(after - before)))
        self.least += sum(least.values())
        self.most += sum(most.values())
        self.carried += sum((after - before).values())

    def _taken(self, key, recipes):
        """Those of the recipes that the fast path takes although it never should."""
        taken = []
        for recipe in recipes:
            if (recipe["conn"], recipe["dir"]) == key and not self.pair.expected([recipe])[1][key]:
                before = self.pair.carried()[key]
                self._exchange([recipe])
                if self.pair.carried()[key] > before:
                    taken.append(recipe)
        return json.dumps(taken)

    def run(self):
        pair = self.pair
        pair.new_round()
        if self.args.replay:
            self._exchange(json.loads(self.args.replay))
            return
        source = generator(self.rng, self.variant, pair.conns)
        self._counted(list(source.picked()))
        left = self.packets
        while left > 0:
            if not pair.all_live():
                pair.new_round()
            source.conns = pair.conns
            size = min(left, ROUND)
            self._counted([source.random() for _ in range(size)])
            left -= size
            # Then the connections end, and go on as the stack lets them.
            self._exchange(source.closing(BATCH - 4))
            pair.new_round()
        self._totals()
        self._notices()

    def _notices(self):
        """The comparison can fail: one bit of one frame is enough."""
        self.pair.test.flip = True
        if not self.pair.try_recipes([{"conn": 0, "dir": "o", "len": 300}], patience=0):
            raise HarnessError("a changed bit was not noticed")

    def _totals(self):
        for lab in self.pair.labs:
            if lab.drops():
                raise HarnessError("%s: the packet sockets lost %d frames" % (lab.tag, lab.drops()))
        if not self.pair.test.attached:
            return
        for device in self.pair.test.stats()["devices"]:
            told = device["fast_packets"] + sum(device["reasons"].values())
            if told != device["rx_packets"]:
                self.problems.append("%s: rx_packets %d, but fast_packets + reasons = %d: %r"
                                     % (device["name"], device["rx_packets"], told, device))
        missed, taken = self.pair.bypass()
        if missed != taken:
            self.problems.append("the fast path says that it took %d packets, but the forward chains differ by %d"
                                 % (taken, missed))
        if self.variant.fast and self.carried * 4 < self.sent:
            self.problems.append("only %d of %d packets went the fast way: this proves little"
                                 % (self.carried, self.sent))

    def explain(self, found):
        """Shrinks a difference and prints it."""
        pair, recipes, difference = self.pair, found.recipes, found.difference
        command = "python3 test/net/same.py --build %s --hook %s --variant %s --packets %d --seed %d%s%s" % (
            self.args.build, self.args.hook, self.variant.name, self.packets, self.args.seed,
            " --plain" if self.args.plain else "", " --break " + self.args.fault if self.args.fault else "")
        print("DIFFERENT: variant %s, %d frames missing, %d unexpected; looking for the packet"
              % (self.variant.name, len(difference.missing), len(difference.extra)), flush=True)
        if not self.args.no_shrink:
            try:
                shrinker = Shrinker(pair)
                small = shrinker.find(recipes, difference)
                again = shrinker.differs(small) if small else None
                if again:
                    recipes, difference = small, again
                else:
                    print("(it does not show when sent again; what the batch of %d packets showed:)" % len(recipes))
            except (HarnessError, NotFast, DifferenceFound) as error:
                print("(shrinking stopped: %s)" % str(error).splitlines()[0])
        print("\n".join(report(pair, recipes, difference, command)), flush=True)


def run_variant(args, variant, packets):
    """True when the variant is all right."""
    start = time.monotonic()
    trial = VariantRun(args, variant, packets)
    try:
        try:
            trial.run()
        except DifferenceFound as found:
            trial.explain(found)
            return False
        except NotFast as error:
            print("NOT FAST: variant %s: %s" % (variant.name, error))
            return False
        for problem in trial.problems:
            print("COUNTERS: variant %s: %s" % (variant.name, problem))
        print("%-12s %6d packets, %d frames out, the same; %d by the fast path (expected %d to %d), %.1f s" % (
            variant.name, trial.sent, trial.pair.arrived, trial.carried, trial.least, trial.most,
            time.monotonic() - start), flush=True)
        return not trial.problems
    finally:
        trial.pair.close()


def self_test(args):
    """Nothing found between equal routers, each fault found, shrunk to at most four keys."""
    args.plain = True
    variants = [v for v in VARIANTS.values() if not v.tunnel]
    good = all([run_variant(args, variant, args.packets // len(variants)) for variant in variants])
    for name, fault in itertools.product(("both", "both6"), sorted(FAULTS)):
        args.fault = fault
        trial = VariantRun(args, VARIANTS[name], args.packets)
        try:
            trial.run()
            print("%s, fault %s: not found" % (name, fault))
            good = False
        except DifferenceFound as found:
            small = Shrinker(trial.pair).find(found.recipes, found.difference)
            print("%s, fault %s: found after %d frames, shrunk to %s"
                  % (name, fault, trial.pair.arrived, json.dumps(small)), flush=True)
            good &= len(small) == 1 and len(small[0]) <= 4
        finally:
            trial.pair.close()
    return 0 if good else 1


def main(argv):
    args = parse_args(argv)
    if args.self_test:
        args.plain, args.variant = True, ["both"]
    variants = [VARIANTS[name] for name in args.variant or VARIANTS
                if args.family in (None, VARIANTS[name].ip.version)]
    why = cannot_run(args, variants)
    if why and args.plain and not args.variant and os.geteuid() == 0:
        variants = [v for v in variants if not v.tunnel]
        why = cannot_run(args, variants)
    if why:
        print("skipped: " + why)
        return 77
    print("seed %d, hook %s%s" % (args.seed, args.hook, ", both routers plain" if args.plain else ""), flush=True)
    lab.BIN = args.build
    lab.exit_on_signals()
    lab.sweep()
    if args.self_test:
        return self_test(args)
    share = -(-args.packets // len(variants))
    good = True
    for variant in variants:
        good &= run_variant(args, variant, share)
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (HarnessError, lab.Failure) as failure:
        print("harness: %s" % failure)
        sys.exit(2)
