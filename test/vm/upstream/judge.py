# SPDX-License-Identifier: GPL-2.0-only
"""What a row has to show beside two files that arrived as they were sent."""
from lab import check, check_equal
from rules import counters
from topology import NS1, NSR1, TUN1

LIVE_S = 20  # emulated processors are slow
# At TC the trickle's packet may be an aggregated one of 64 KiB, 3 % of a file of 2 MiB.
SLOW_SHARE = 0.15


def segments_too_large(row):
    """Segments as large as the ends agree on do not fit between the routers, and nobody tells them."""
    between = row.mtus.link - (20 if "ipip" in row.stages else 0)
    return not row.pmtu and min(row.mtus.outer, row.mtus.remote) > between


def before(lab, row, exchange):
    """Waits for what ftctl makes of the connection, with small packets."""
    match = {"proto": "tcp", "sport": exchange.sport}
    exchange.knock()
    if row.expect == "fast":
        exchange.knock_until(lambda: lab.live(**match), LIVE_S, "the connection is live in both directions")
    elif row.expect.startswith("refused:"):
        reason = row.expect.removeprefix("refused:")
        exchange.knock_until(lambda: (lab.refused(**match) or "").startswith(reason), LIVE_S,
                             f"the connection is refused as {reason}")
    elif row.expect == "slow":
        for _number in range(20):
            exchange.knock()
    wanted = (TUN1 if "ipip" in row.stages else NSR1) if row.nat in ("masquerade", "both") else NS1
    check_equal(exchange.peer()[0], wanted, "the client's address as ns2 sees it")


def after(lab, row, exchange):
    """With the connection still open. Returns a few words for the report."""
    size = row.size
    chain = counters(lab["nsr1"], "inet acceptance")
    slow = {"orig": chain["routed_orig"][1], "reply": chain["routed_repl"][1]}
    flow = lab.flow(proto="tcp", sport=exchange.sport) if row.expect != "plain" else None
    fast = {side: (flow.get(side) or {}).get("bytes", 0) if flow else 0 for side in slow}
    said = "forward chain saw " + ", ".join(f"{slow[side] / size:.1%} {side}" for side in slow)
    said += "; fast " + ", ".join(f"{fast[side] / size:.1%}" for side in slow)
    if row.stages == ("direct-return",):
        check(slow["orig"] >= size, f"the forward chain saw {slow['orig']} bytes of {size}, and it has to see all")
        check_equal((fast["orig"], slow["reply"]), (0, 0), "bytes on the fast path, and of answers, at nsr1")
        return said
    for side in slow:
        if row.expect == "fast" and not segments_too_large(row):
            check(fast[side] >= size * (1 - SLOW_SHARE), f"{side}: {fast[side]} bytes of {size} were fast; {said}")
            check(slow[side] <= size * SLOW_SHARE, f"{side}: the forward chain saw {slow[side]} bytes of {size}; {said}")
        elif row.expect == "fast":
            # With segments of tens of kilobytes a good part of a file is in the rest of a block, which is smaller.
            least, most = (size, size / 4) if row.mtus.remote < 9000 else (size / 4, size)
            check(slow[side] >= least, f"{side}: the forward chain saw only {slow[side]} bytes of {size}; {said}")
            check(fast[side] <= most, f"{side}: {fast[side]} bytes of {size} were fast; {said}")
        else:
            check(slow[side] >= size, f"{side}: the forward chain saw only {slow[side]} bytes of {size}; {said}")
            check_equal(fast[side], 0, f"{side}: bytes on the fast path; {said}")
    if row.expect == "fast":
        # The ruleset is new: its generation may have come between.
        exchange.knock_until(lambda: lab.live(proto="tcp", sport=exchange.sport), LIVE_S, "the connection is live at the end")
    return said


def dscp(lab, row):
    """What arrived at ns2 carries the mark that nsr1's rules set, every packet of it."""
    arrived = {name: packets for name, (packets, _bytes) in counters(lab["ns2"], "netdev arrived").items()}
    right = "cs3" if row.dscp else "none"
    check(arrived[right] > 0, f"ns2 counted no packet of the transfer: {arrived}")
    check_equal({name: count for name, count in arrived.items() if name != right and count}, {},
                f"packets that arrived with another DSCP than {right}")
