# SPDX-License-Identifier: GPL-2.0-only
"""Tables of test/bench/run.sh, and the figures that are to hold. Rows are those of --json."""
import dataclasses

from cases import CASES, PATHS

COST, MOST, FIXTURE = "cost", "most", "fixture "
ORDER = {name: number for number, name in enumerate(CASES)}
KERNELS = ("kernel", "kernel-ct", "kernel-ct-masq")


@dataclasses.dataclass(frozen=True)
class Must:
    """How many times slower `against` is to be at least; or (MOST) how many times slower `path` may be, (COST) how
    many nanoseconds. Between medians."""
    scenarios: tuple
    path: str
    against: str
    must: float
    aim: float
    flows: tuple = (1, 16, 1024)
    order: str = "random"
    kind: str = ""
    base: str = ""  # scenario of `against`; the same

    def of(self, cell):
        """Is it of such a cell: (scenario, flows, size, order)?"""
        return cell[0] in self.scenarios and cell[1] in self.flows and cell[2:] == (64, self.order)

    def text(self, cell):
        words = "against" if self.kind != COST else "over"
        return f"{title(cell)}: {self.path} {words} {self.against}" + (f" of {self.base}" if self.base else "")

    def verdict(self, mine, theirs):
        """Cells of the table: measured, must, aim, missed."""
        aim = f"{self.aim:g}" if self.aim is not None else "-"
        if self.kind == COST:
            return [f"{mine - theirs:.0f} ns", f"<= {self.must:g}", aim, held(mine - theirs <= self.must)]
        if self.kind == MOST:
            return [f"{mine / theirs:.2f}", f"<= {self.must:g}", aim, held(mine / theirs <= self.must)]
        return [f"{theirs / mine:.2f}", f">= {self.must:g}", aim, held(theirs / mine >= self.must)]


def held(value):
    return "" if value else "missed"


NAT, MASQUERADE = ("nat4",), "kernel-ct-masq"
IPIP = ("ipip-encap", "ipip-decap")
OTHERS = tuple(name for name, case in CASES.items() if case.ip.version == 6 or case.outer.version == 6)
MUSTS = (
    Must(NAT, "ftctl-xdp", MASQUERADE, 4.0, 5),
    Must(NAT, "ftctl-xdp", "redirect", 0.60, 0.72),
    Must(IPIP, "ftctl-xdp", "redirect", 0.55, 0.65),
    Must(OTHERS, "ftctl-xdp", "redirect", 0.50, 0.62),
    Must(NAT, "ftctl-xdp", MASQUERADE, 3.0, 3.5, (131072,)),
    Must(NAT, "ftctl-xdp", "kernel", 1.0, 1.2, (131072,)),
    Must(NAT, "ftctl-xdp", MASQUERADE, 4.0, 4.5, (131072,), "train8"),
    Must(NAT, "ftctl-xdp", MASQUERADE, 1.8, 2.5, (1048576,)),
    Must(NAT, "ftctl-tc", MASQUERADE, 1.7, 2),
    Must(IPIP, "ftctl-tc", MASQUERADE, 1.35, 1.6),
    Must(("miss",), "ftctl-xdp", "detached-xdp", 45, 25, kind=COST),
    Must(("miss",), "ftctl-tc", "detached-tc", 85, 50, kind=COST),
    Must(("filter-100000",), "ftctl-xdp", "ftctl-xdp", 1.3, 1.1, kind=MOST, base="filter-1"),
    Must(("filter-100000",), "ftctl-tc", "ftctl-tc", 1.3, 1.1, kind=MOST, base="filter-1"),
    Must(("rpf",), "ftctl-xdp", "ftctl-xdp", 50, None, kind=COST, base="miss"),
    Must(("rpf",), "ftctl-tc", "ftctl-tc", 60, None, kind=COST, base="miss"),
)

# (what, path, against path): the ratio that must be reached, and is aimed at.
STREAMS = {("tcp", "ftctl-tc", "kernel"): (0.97, 1.0), ("udp", "ftctl-tc", "kernel-ct-masq"): (1.15, 1.3),
           ("tcp-local", "attached", "none"): (0.97, 1.0),
           ("tcp-local", "attached", "tracked"): (0.97, 1.0), ("rpf-tcp", "ftctl rpf strict", "none"): (0.97, 1.0),
           ("rpf-tcp", "ftctl rpf strict", "nft in input"): (1.0, 1.0)}
# Fixtures, less what nothing takes: in a loop. The least of all rounds, which are disturbed or not.
PROGRAMS = (("filter-100000", "filter-1", MOST, {"xdp": 1.3, "tc": 1.3}, 1.1),
            ("rpf", "miss", COST, {"xdp": 50, "tc": 60}, None),
            ("rpf-first", "miss", COST, {"xdp": 50, "tc": 60}, None))
# what: at least (1) or at most (-1). Nothing is said of more events than must be coped with, and of memory and resync
# with fewer connections than these.
ADMITTED, LIVE = "60000 a second", "1048576 connections"
CONNECTIONS = {"admitted": (1, 50000, 150000), "overruns": (-1, 0, 0), "maps": (-1, 300, 240),
               "daemon's memory": (-1, 500, 300), "resync": (-1, 10, 3)}


class Rows:
    def __init__(self, rows):
        self.rows = {self.key(row): row for row in rows}
        self.cells = sorted(dict.fromkeys(self.key(row)[:1] + self.key(row)[2:] for row in rows),
                            key=lambda cell: ORDER.get(cell[0], 0))

    @staticmethod
    def key(row):
        return row["scenario"], row["path"], row["flows"], row["size"], row["order"]

    def ns(self, cell, path):
        row = self.rows.get((cell[0], path, *cell[1:]))
        return row["ns"] if row else None

    def calm(self, cell, path):
        """Was the processor this machine's own?"""
        return self.rows[(cell[0], path, *cell[1:])].get("calm", True)

    def text(self, cell, path):
        """The median, or -."""
        ns = self.ns(cell, path)
        return "-" if ns is None else f"{ns:.0f}" if self.calm(cell, path) else f"~{ns:.0f}"

    def ratio(self, cell, theirs, mine):
        if self.ns(cell, theirs) is None or self.ns(cell, mine) is None:
            return "-"
        mark = "" if self.calm(cell, theirs) and self.calm(cell, mine) else "~"
        return f"{mark}{self.ns(cell, theirs) / self.ns(cell, mine):.2f}"


def aligned(table):
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in table]


def cell_table(rows, cell):
    """One cell: nanoseconds, and how many times slower the others are."""
    table = [["path", "ns", "min-max", "Mpps", "x masq", "x ct", "x kernel", "of floor"]]
    for path in PATHS:
        row = rows.rows.get((cell[0], path, *cell[1:]))
        if row:
            table.append([path, rows.text(cell, path), f"{row['ns_min']:.0f}-{row['ns_max']:.0f}",
                          f"{1000 / row['ns']:.2f}", *(rows.ratio(cell, other, path) for other in reversed(KERNELS)),
                          rows.ratio(cell, "redirect", path)])
    return table


def title(cell):
    scenario, flows, size, order = cell
    return f"{scenario}: {flows} flow{'s' if flows > 1 else ''}, {size} bytes" + (f", {order}" if flows > 1 else "")


def needed(cell):
    """Does one of the figures that are to hold need it?"""
    return any(must.of((scenario, *cell[1:])) for must in MUSTS for scenario in must.scenarios
               if cell[0] in (scenario, must.base))


def small_difference(cell, path):
    """Is a figure the difference between that row and another one? Then it takes many rounds."""
    return any(must.of((scenario, *cell[1:])) for must in MUSTS if must.kind == COST for scenario in must.scenarios
               if (cell[0], path) in ((scenario, must.path), (must.base or scenario, must.against)))


def musts(rows):
    table = [["figure", "measured", "must", "aim", ""]]
    for must in MUSTS:
        for cell in rows.cells:
            base = (must.base or cell[0], *cell[1:])
            mine, theirs = rows.ns(cell, must.path), rows.ns(base, must.against)
            if must.of(cell) and mine and theirs:
                verdict = must.verdict(mine, theirs)
                if not (rows.calm(cell, must.path) and rows.calm(base, must.against)):
                    verdict[-1] = "disturbed"
                table.append([must.text(cell), *verdict])
    return table


def secondary_musts(rows):
    medians = {(row["what"], row["path"]): row["min" if row["what"].startswith(FIXTURE) else "median"] for row in rows}
    table = []
    for (what, path, against), (must, aim) in STREAMS.items():
        mine, theirs = medians.get((what, path)), medians.get((what, against))
        if mine and theirs:
            table.append([f"{what}: {path} against {against}", f"{mine / theirs:.2f}", f">= {must:g}", f"{aim:g}",
                          held(mine / theirs >= must)])
    for what, base, kind, limits, aim in PROGRAMS:
        for hook, limit in limits.items():
            mine, theirs, clock = (medians.get((f"{FIXTURE}{name}", f"{hook}-loop"))
                                   for name in (what, base, "nothing"))
            if mine and theirs and clock:
                must = Must((), hook, base, limit, aim, kind=kind)
                table.append([f"fixtures: {what} against {base}, {hook}", *must.verdict(mine - clock, theirs - clock)])
    for (what, path), value in medians.items():
        if what in CONNECTIONS and path.startswith((ADMITTED, LIVE)):
            sign, must, aim = CONNECTIONS[what]
            table.append([f"{what}: {path}", f"{value:g}", f"{'>=' if sign > 0 else '<='} {must}", str(aim),
                          held(value * sign >= must * sign)])
    return table


def beside(rows):
    return [["what", "path", "median", "min-max", "unit"]] + [
        [each["what"], each["path"], f"{each['median']:g}", f"{each['min']:g}-{each['max']:g}", each["unit"]]
        for each in rows if not each["what"].startswith(FIXTURE)]


def fixtures(rows):
    """Of one test run each, and of a loop: the least."""
    least = {(row["what"], row["path"]): row["min"] for row in rows if row["what"].startswith(FIXTURE)}
    ways = {"xdp": "xdp", "tc": "tc", "xdp-loop": "xdp, in a loop", "tc-loop": "tc, in a loop"}
    return [["packet", *ways.values()]] + [
        [name.removeprefix(FIXTURE), *(f"{least[name, way]:.0f}" if (name, way) in least else "-" for way in ways)]
        for name in dict.fromkeys(name for name, _way in least)]


def bulking(env):
    return [["scenario", "flows", "frames", "dropped"]] + [
        [each["scenario"], str(each["flows"]), str(each["frames_per_flush"]), str(each["dropped"])]
        for each in env["bulking"]]


def profile(entries):
    """Functions by nanoseconds, most first; those that take the least that is worth a line on some path."""
    names = {name for each in entries for name, value in each["ns"].items() if value >= each["least"]}
    return [["function", *(each["path"] for each in entries)]] + [
        [name, *(f"{each['ns'].get(name, 0):.0f}" for each in entries)]
        for name in sorted(names, key=lambda name: -max(each["ns"].get(name, 0) for each in entries))]


def profiles_of(env):
    """(Heading, table) of each cell and stream whose profile was taken."""
    profiles = env.get("profiles", [])
    for what in dict.fromkeys(each["of"] for each in profiles):
        yield (f"Where the time goes: {what}, by function", profile([each for each in profiles if each["of"] == what]))


def text(result):
    env, rows = result["env"], Rows(result["rows"])
    lines = [f"kernel {env['kernel']}, {env['cpu']} ({env['cpus']} processors), commit {env['commit']}, {env['date']}",
             f"batch {env['batch']}, {env['rounds']} rounds; nanoseconds per packet: median and range of what "
             "generator, router and end take"]
    for cell in rows.cells:
        lines += ["", title(cell), *aligned(cell_table(rows, cell))]
    for heading, table in (
            ("Frames that a device takes at a time from ftctl-xdp (16 at most), and frames it does not take",
             bulking(env)),
            *profiles_of(env),
            ("Beside", beside(env["secondary"])), ("The programs alone, nanoseconds", fixtures(env["secondary"])),
            ("Figures that are to hold on an idle machine", musts(rows) + secondary_musts(env["secondary"]))):
        if len(table) > 1:
            lines += ["", heading, *aligned(table)]
    return "\n".join(lines + [""] + [f"note: {note}" for note in env["notes"]])
