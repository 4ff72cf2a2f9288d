# SPDX-License-Identifier: GPL-2.0-only
"""The scenarios of the kernel's own flowtable test, with ftctl in the place of `flow add`.

usage: upstream.py [--list] [--seed N] [ROW...]     rows by name (* and ? match); all when none is given

In a virtual machine: FTCTL_UPSTREAM="ROW..." and FTCTL_SEED=N do the same.
Exit code 0: no row failed; 77: every row skipped.
"""
import os
import random
import sys

VM = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(VM, "upstream"), os.path.join(os.path.dirname(VM), "net")]

import rows  # noqa: E402
from lab import Failure, exit_on_signals, sweep  # noqa: E402
from runner import run  # noqa: E402

LIMIT_S = 1800  # ends what nobody else has ended


def main(arguments):
    names = os.environ.get("FTCTL_UPSTREAM", "").split()
    seed = int(os.environ.get("FTCTL_SEED") or random.SystemRandom().randrange(1 << 32))
    while arguments:
        word = arguments.pop(0)
        if word in ("-h", "--help"):
            print(__doc__)
            return 0
        if word == "--list":
            for row in rows.ROWS:
                print(f"{row.name:26} {row.expect}")
            for row in rows.rerun(seed):
                print(f"{row.name:26} {row.expect}, MTUs {row.mtus} (seed {seed})")
            return 0
        if word == "--seed" and arguments:
            seed = int(arguments.pop(0))
        elif word.startswith("-"):
            print(__doc__, file=sys.stderr)
            return 2
        else:
            names.append(word)
    if os.geteuid() != 0:
        print("SKIP: needs root (namespaces and BPF)")
        return 77
    exit_on_signals(LIMIT_S)
    sweep()
    try:
        return run(names, seed)
    except Failure as failure:
        print(f"FAIL: {failure}")
        return 1


sys.exit(main(sys.argv[1:]))
