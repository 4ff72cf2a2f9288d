# SPDX-License-Identifier: GPL-2.0-only
"""From a batch that came out differently to the one packet, and to its smallest form."""
import json

import frames
from frames import TCP
from same_packet import CLOSING, build

_KEEP = {"conn", "dir"}
_MAX_TRIES = 250


class Shrinker:
    def __init__(self, pair):
        self.pair, self.tries = pair, 0

    def differs(self, recipes):
        """Sends recipes on connections that are live, alone. The Difference or None."""
        self.tries += 1
        pair = self.pair
        closing = any(pair.conns[r["conn"]].proto == TCP and r.get("flags", 0) & CLOSING for r in recipes)
        if not pair.all_live() or closing:
            pair.new_round()
        return pair.try_recipes(recipes, patience=0.1)

    def find(self, recipes, difference):
        """The smallest list of recipes that still shows a difference, and that difference.
        Empty when it does not show again."""
        tags = difference.tags()
        suspects = [r for r in recipes if r.get("idx") in tags]
        for recipe in suspects + [r for r in recipes if r not in suspects]:
            if self.tries > _MAX_TRIES:
                break
            again = self.differs([recipe])
            if again:
                return [self.minimise(recipe)]
        if not self.differs(recipes):
            return []
        return self._halve(recipes)

    def _halve(self, recipes):
        """Removes parts of a sequence as long as the rest still shows it."""
        size = len(recipes) // 2
        while size and self.tries < _MAX_TRIES:
            for at in range(0, len(recipes), size):
                rest = recipes[:at] + recipes[at + size:]
                if rest and self.differs(rest):
                    recipes = rest
                    break
            else:
                size //= 2
        return recipes

    def minimise(self, recipe):
        changed = True
        while changed and self.tries < _MAX_TRIES:
            changed = False
            for smaller in self._smaller(recipe):
                if self.tries < _MAX_TRIES and self.differs([smaller]):
                    recipe, changed = smaller, True
                    break
        return recipe

    @staticmethod
    def _smaller(recipe):
        for key in sorted(set(recipe) - _KEEP, key=lambda key: key != "idx"):
            yield {k: v for k, v in recipe.items() if k != key}
        length = recipe.get("len", 0)
        for key in sorted({"ext", "topt"} & set(recipe)):  # it may be the length of the whole that matters
            filled = length + len(json.dumps(recipe[key])) // 2
            yield {**{k: v for k, v in recipe.items() if k != key}, "len": filled}
        if recipe.get("frags"):
            return
        for smaller in (length // 2, length - 1):
            if 0 < smaller < length:
                yield {**recipe, "len": smaller}


def report(pair, recipes, difference, command):
    """Lines for people: the packets sent, what came out of both routers, how to repeat it."""
    lines = []
    for recipe in recipes[:4]:
        conn = pair.conns[recipe["conn"]]
        side, packets = build(recipe, conn, pair.variant)
        lines.append("recipe: " + json.dumps(recipe))
        for frame in packets:
            lines.append("  sent from %s (%d bytes):" % (side, len(frame)))
            lines += frames.show(frame) + frames.hexdump(frame[:160])
    if len(recipes) > 4:
        lines.append("  ... and %d more" % (len(recipes) - 4))
    missing, extra = list(difference.missing), list(difference.extra)
    while missing and extra:
        want, got = missing.pop(0), extra.pop(0)
        lines.append("at %s plain Linux sent another frame than the fast path at %s:" % (want[0], got[0]))
        if want[2] != got[2]:
            lines.append("    frame state: expected %r, got %r" % (want[2], got[2]))
        lines += frames.diff(want[1], got[1])
    for what, rest in (("plain Linux sent, the fast path did not", missing),
                       ("the fast path sent, plain Linux did not", extra)):
        for side, frame, _ in rest[:4]:
            lines.append("%s, to %s:" % (what, side))
            lines += frames.show(frame) + frames.hexdump(frame[:160])
    lines.append("repeat: " + command)
    if len(recipes) <= 4:
        lines.append("   only: %s --replay '%s'" % (command, json.dumps(recipes)))
    return lines
