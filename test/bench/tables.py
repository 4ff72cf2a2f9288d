# SPDX-License-Identifier: GPL-2.0-only
"""Markdown tables of what test/bench/run.sh measured; how tables get into a document, test/vm/bench.sh's as well."""
from cases import CASES, FAMILIES, PATHS
from figures import Rows, beside, bulking, fixtures, musts, profiles_of, secondary_musts

RATIOS = (("kernel-ct-masq", "ftctl-xdp"), ("kernel-ct-masq", "ftctl-tc"), ("kernel-ct", "ftctl-xdp"),
          ("kernel-ct", "ftctl-tc"), ("xdp-forward", "ftctl-xdp"), ("redirect", "ftctl-xdp"))


def markdown(table):
    """Lines; the first of the table's is its head."""
    lines = ["| " + " | ".join(line) + " |" for line in table]
    return [lines[0], "|---" * len(table[0]) + "|", *lines[1:]]


def splice(path, tool, text):
    """Puts the text between the tool's two marks in the file; -: prints it."""
    begin, end = (f"<!-- {tool}: {word} -->" for word in ("begin", "end"))
    if path == "-":
        print(text)
        return
    with open(path, encoding="utf-8") as file:
        old = file.read()
    if begin not in old or end not in old:
        raise SystemExit(f"{tool}: {path} has no lines '{begin}' and '{end}' to put the tables between")
    with open(path, "w", encoding="utf-8") as file:
        file.write(old[:old.index(begin) + len(begin)] + "\n" + text + "\n" + old[old.index(end):])


def family_table(rows, family):
    """Every cell of a family: medians and ratios, in columns that have something in them."""
    cells = [cell for cell in rows.cells if cell[0] in CASES and CASES[cell[0]].family == family]
    paths = [path for path in PATHS if any(rows.ns(cell, path) for cell in cells)]
    ratios = [pair for pair in RATIOS if any(rows.ratio(cell, *pair) != "-" for cell in cells)]
    table = [["scenario", "flows", "bytes", "order", *paths, *(f"{theirs} / {mine}" for theirs, mine in ratios)]]
    for cell in cells:
        scenario, flows, size, order = cell
        table.append([scenario, str(flows), str(size), order if flows > 1 else "", *(
            rows.text(cell, path) for path in paths), *(rows.ratio(cell, *pair) for pair in ratios)])
    return table


def document(result, plots=""):
    """What goes into docs/performance.md; plots: where the pictures are, seen from there."""
    env, rows = result["env"], Rows(result["rows"])
    lines = [f"Kernel {env['kernel']}, {env['cpu']} ({env['cpus']} processors), {env['date']}, commit {env['commit']}: "
             f"`{env.get('command', 'test/bench/run.sh')}`; {env['rounds']} rounds, batch {env['batch']}."]
    for family, what in FAMILIES.items():
        table = family_table(rows, family)
        if len(table) > 1:
            lines += ["", f"{what}, nanoseconds per packet (less is better) and ratios (more is better):", ""]
            if plots:
                lines += [f"![{what}: nanoseconds per packet]({plots}/bench-{family}.svg)", ""]
            lines += markdown(table)
    for title, table in (("Figures that are to hold", musts(rows) + secondary_musts(env["secondary"])),
                         ("Beside", beside(env["secondary"])), ("The programs alone, nanoseconds (`fixtures`)",
                                                                fixtures(env["secondary"])),
                         ("Frames that a device takes at a time from ftctl-xdp (16 at most)", bulking(env)),
                         *profiles_of(env)):
        if len(table) > 1:
            lines += ["", title + ":", "", *markdown(table)]
    return "\n".join(lines + [""] * bool(env["notes"]) + [f"* {note}" for note in env["notes"]])
