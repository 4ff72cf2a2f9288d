# SPDX-License-Identifier: GPL-2.0-only
"""Bar charts (SVG) of what test/bench/run.sh measured: nanoseconds per packet by path, a file for each family."""
import os
from html import escape

from cases import CASES, FAMILIES, PATHS
from figures import Rows

COLOURS = {"kernel": "#a5abb3", "kernel-ct": "#858d96", "kernel-ct-masq": "#666f79", "drop": "#b3cde8",
           "redirect": "#6ea3da", "xdp-forward": "#3f7bbf", "detached-xdp": "#858d96", "detached-tc": "#858d96",
           "ftctl-xdp": "#d9480f", "ftctl-tc": "#f0883e"}
NAMES, BARS, GAP = 104, 236, 52  # widths: of the paths' names, of the longest bar, behind it
BAR, TITLE, MARGIN, FOOT = 16, 26, 14, 40
KIND, FLOWS = (64, "random"), 1024  # of all that is shown; of pictures with one number of flows, at most
STYLE = """<style>
 text { font: 12px sans-serif; fill: #24292f } .title { font-weight: bold } .head { font-size: 15px; font-weight: bold }
 .paper { fill: #ffffff } .grid { stroke: #d8dee4 }
 @media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .paper { fill: #0d1117 } .grid { stroke: #30363d } }
</style>"""


def step_of(most):
    """A round distance of the axis' marks, about five of them."""
    step = 1
    while most / step > 6:
        step *= 2.5 if str(step).startswith("2") else 2
    return int(step)


def panels_of(rows, family):
    """[[cell, ...], ...]: a line each. Scenarios side by side, numbers of flows below each other; or, where there are
    many scenarios, all with the same number, two (there and back) or three to a line."""
    cells = [cell for cell in rows.cells if cell[0] in CASES and cell[2:] == KIND and CASES[cell[0]].family == family]
    names = list(dict.fromkeys(cell[0] for cell in cells))
    flows = sorted({cell[1] for cell in cells})
    if family in ("ipv4", "ipv6"):
        return [[cell for cell in cells if cell[1] == count] for count in flows]
    common = [count for count in flows if count <= FLOWS and all((name, count, *KIND) in cells for name in names)]
    chosen = [(name, common[-1], *KIND) for name in names] if common else []
    width = 2 if family == "tunnels" else 3
    return [chosen[at:at + width] for at in range(0, len(chosen), width)]


def panel(rows, cell, left, top, scale, marks):
    """One cell's bars, the title above them."""
    scenario, flows, _size, _order = cell
    paths = [path for path in PATHS if rows.ns(cell, path)]
    bottom = top + TITLE + BAR * len(paths)
    words = f"{scenario}, {flows:,} flow".replace(",", " ").replace("  ", ", ", 1) + ("s" if flows > 1 else "")
    out = [f'<text class="title" x="{left + NAMES}" y="{top + 16}">{escape(words)}</text>']
    for mark in marks:
        x = left + NAMES + mark * scale
        out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top + TITLE - 3}" y2="{bottom}"/>')
    for number, path in enumerate(paths):
        ns, y = rows.ns(cell, path), top + TITLE + BAR * number
        width = ns * scale
        out += [f'<text x="{left + NAMES - 6}" y="{y + 11}" text-anchor="end">{path}</text>',
                f'<rect x="{left + NAMES}" y="{y}" width="{width:.1f}" height="{BAR - 3}" fill="{COLOURS[path]}"/>',
                f'<text x="{left + NAMES + width + 5:.1f}" y="{y + 11}">{ns:.0f}</text>']
    return out


def picture(rows, family, heading):
    lines = [line for line in panels_of(rows, family) if line]
    if not lines:
        return None
    most = max(rows.ns(cell, path) or 0 for line in lines for cell in line for path in PATHS)
    scale, step = BARS / most, step_of(most)
    marks = range(0, int(most) + 1, step)
    columns = list(dict.fromkeys(cell[0] for cell in lines[0]))
    width = MARGIN * 2 + max(len(line) for line in lines) * (NAMES + BARS + GAP)
    top, out = MARGIN + 44, []
    for line in lines:
        for place, cell in enumerate(line):
            at = columns.index(cell[0]) if cell[0] in columns else place
            out += panel(rows, cell, MARGIN + at * (NAMES + BARS + GAP), top, scale, marks)
        top += TITLE + BAR * max(sum(rows.ns(cell, path) is not None for path in PATHS) for cell in line) + 8
    for at in range(max(len(line) for line in lines)):
        left = MARGIN + at * (NAMES + BARS + GAP) + NAMES
        out += [f'<text x="{left + mark * scale:.1f}" y="{top + 8}" text-anchor="middle">{mark}</text>'
                for mark in marks]
        out.append(f'<text x="{left + BARS / 2}" y="{top + 26}" text-anchor="middle">nanoseconds per packet</text>')
    height = top + FOOT
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                      f'viewBox="0 0 {width} {height}">', f"<title>{escape(heading)}: nanoseconds per packet</title>",
                      STYLE, f'<rect class="paper" width="{width}" height="{height}" rx="6"/>',
                      f'<text class="head" x="{MARGIN}" y="{MARGIN + 12}">{escape(heading)}'
                      f'</text><text x="{MARGIN}" y="{MARGIN + 28}">frames of 64 bytes, flows in random order</text>',
                      *out, "</svg>", ""])


def draw(result, directory):
    """bench-FAMILY.svg of each family that has rows."""
    rows = Rows(result["rows"])
    os.makedirs(directory, exist_ok=True)
    for family, heading in FAMILIES.items():
        svg = picture(rows, family, heading)
        if svg:
            with open(os.path.join(directory, f"bench-{family}.svg"), "w", encoding="utf-8") as file:
                file.write(svg)
