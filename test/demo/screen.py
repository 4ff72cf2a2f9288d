# SPDX-License-Identifier: GPL-2.0-only
"""How the demo speaks: headings, facts, a check mark for what held."""
import os
import sys
import time

_colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
_start = time.monotonic()


def _paint(code, text):
    return f"\033[{code}m{text}\033[0m" if _colour else text


def heading(text):
    print(f"\n{_paint('1', text)}  [{time.monotonic() - _start:.0f} s]\n{'-' * len(text)}", flush=True)


def say(text=""):
    print(text, flush=True)


def command(*words):
    say(_paint("36", "$ " + " ".join(words)))


def held(text, ok=True):
    """One line of proof; returns whether it held."""
    say(f"  {_paint('32', 'yes') if ok else _paint('31', ' NO')}  {text}")
    return ok
