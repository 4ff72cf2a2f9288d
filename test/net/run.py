# SPDX-License-Identifier: GPL-2.0-only
"""Runs scenarios: run.py U01 [U02...] | all | --list. Exit 0 passed, 1 failed, 77 skipped."""
import glob
import importlib
import os
import re
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import lab  # noqa: E402

LIMIT_S = 100  # a scenario that takes longer is ended from inside, so that it still cleans up


def scenarios():
    found = {}
    for path in sorted(glob.glob(os.path.join(HERE, "test_*.py"))):
        name = os.path.basename(path)[:-3]
        match = re.fullmatch(r"test_([A-Z]\d+)_\w+", name)
        if match:
            found[match.group(1)] = name
    return found


def run_one(module_name):
    """0, 1 or 77."""
    module = importlib.import_module(module_name)
    print(f"{module_name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
    start = time.monotonic()
    try:
        module.run()
    except lab.Skip as reason:
        print(f"SKIP: {reason}")
        return 77
    except lab.Failure as failure:
        where = traceback.extract_tb(failure.__traceback__)
        steps = [f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in where[1:]]
        print(f"FAIL after {time.monotonic() - start:.1f} s at {' > '.join(steps)}: {failure}")
        return 1
    except Exception:  # an error of the test itself: also a failure
        traceback.print_exc(file=sys.stdout)
        print("FAIL: the test itself ended with an error")
        return 1
    print(f"ok, {time.monotonic() - start:.1f} s")
    return 0


def main(arguments):
    known = scenarios()
    if arguments in ([], ["-h"], ["--help"]):
        print(__doc__)
        return 0 if arguments else 2
    if arguments == ["--list"]:
        for name, module in known.items():
            print(f"{name:6} {module}")
        return 0
    names = list(known) if arguments == ["all"] else arguments
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such scenario: {' '.join(unknown)}", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("SKIP: needs root (namespaces and BPF)")
        return 77
    lab.exit_on_signals(LIMIT_S * len(names))
    lab.sweep()
    results = {name: run_one(known[name]) for name in names}
    if len(results) > 1:
        failed = [name for name, code in results.items() if code == 1]
        print(f"{len(results)} scenarios, failed: {' '.join(failed) or 'none'}")
    if 1 in results.values():
        return 1
    return 77 if set(results.values()) == {77} else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
