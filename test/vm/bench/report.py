# SPDX-License-Identifier: GPL-2.0-only
"""Tables of what test/vm/bench.sh measured: as text, and in Markdown for docs/performance.md."""

from tables import markdown, splice

PATHS = ("conntrack", "flowtable", "ftctl-tc", "ftctl-xdp")


class Rows:
    def __init__(self, result):
        self.rows = {(row["scenario"], row["path"]): row for row in result["rows"]}
        self.scenarios = list(dict.fromkeys(row["scenario"] for row in result["rows"]))

    def value(self, scenario, path, key="insns"):
        return self.rows.get((scenario, path), {}).get(key)

    def cell(self, scenario, path, key="insns"):
        row = self.rows.get((scenario, path), {})
        value = row.get(key)
        if value is None:
            return "failed" if "failed" in row else "-"
        return str(value)

    def ratio(self, scenario, path, key="insns"):
        """Against the flowtable."""
        value, rival = self.value(scenario, path, key), self.value(scenario, "flowtable", key)
        return f"{value / rival:.2f}" if value and rival else "-"


def instructions(rows):
    head = ["scenario", *PATHS, "redirect xdp", "redirect tc", "tc/flowtable", "xdp/flowtable"]
    return [head] + [
        [name, *(rows.cell(name, path) for path in PATHS), rows.cell(name, "redirect"),
         rows.cell(name, "redirect", "tc_insns"), rows.ratio(name, "ftctl-tc"), rows.ratio(name, "ftctl-xdp")]
        for name in rows.scenarios]


def rates(rows, key):
    table = [["scenario", *PATHS, "tc/flowtable", "xdp/flowtable"]]
    for name in rows.scenarios:
        if any(rows.value(name, path, key) is not None for path in PATHS):
            table.append([name, *(rows.cell(name, path, key) for path in PATHS), rows.ratio(name, "ftctl-tc", key),
                          rows.ratio(name, "ftctl-xdp", key)])
    return table


def sections(result):
    """(title, table) of what there is."""
    rows = Rows(result)
    batch = result["rows"][0]["batch"] if result["rows"] else "-"
    found = [(f"Instructions per packet, batch {batch} (less is better)", instructions(rows)),
             ("pktgen, instructions per packet (less is better)", rates(rows, "pktgen_insns")),
             ("TCP, Mbit/s (more is better)", rates(rows, "tcp_mbps"))]
    return [(title, table) for title, table in found if len(table) > 1]


def text_table(result):
    lines = [f"kernel {result['kernel']}, {result['date']}, commit {result['commit']}"]
    for title, table in sections(result):
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        lines += ["", title]
        for line in table:
            lines.append("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                                   for i, (cell, width) in enumerate(zip(line, widths))))
    return "\n".join(lines)


def profile_table(row, least=8):
    """Functions by what they spend on a packet, less what they spend in the calibration."""
    base = row["profile_calibration"]
    spent = {name: row["profile"].get(name, 0) - base.get(name, 0) for name in {*row["profile"], *base}}
    lines = ["", f"{row['scenario']} {row['path']}: instructions per packet by function (in all, less the calibration)"]
    for name, value in sorted(spent.items(), key=lambda item: -item[1]):
        if abs(value) >= least:
            lines.append(f"  {name:44} {row['profile'].get(name, 0):8.1f} {value:8.1f}")
    return "\n".join(lines)


def document(result):
    lines = [f"Kernel {result['kernel']}, {result['date']}, commit {result['commit']}: `{result['command']}`"]
    for title, table in sections(result):
        lines += ["", title + ":", "", *markdown(table)]
    return "\n".join(lines)


def rewrite(path, result):
    """Puts the tables between the two marks of the file."""
    splice(path, "test/vm/bench.sh", document(result))
