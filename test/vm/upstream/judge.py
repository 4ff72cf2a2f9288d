# SPDX-License-Identifier: GPL-2.0-only
"""What a row has to show beside two files that arrived as they were sent."""
import platform
import re

from lab import check, check_equal
from topology import NS1, between, inside_tags, tunnel

LIVE_S = 40  # emulated processors are slow, and a busy machine makes them slower
# At TC the trickle's packet may be an aggregated one of 64 KiB, 3 % of a file of 2 MiB.
SLOW_SHARE = 0.15


def segments_too_large(row):
    """Segments as large as the ends agree on do not fit between the routers, and nobody tells them."""
    return not row.pmtu and min(row.mtus.outer, row.mtus.remote) > row.mtus.link - between(row).shorter


def cannot_grow(row):
    """At TC a packet that is no aggregate cannot be made longer than SKB_MAX_ALLOC, 16 KiB less overhead
    (bpf_skb_adjust_room()): it is left to the stack, as `headroom`."""
    return tunnel(row) and row.hook == "tc" and min(row.mtus.outer, row.mtus.link, row.mtus.remote) > 15000


def cannot_leave(row):
    """Before 6.3 nothing at TC tells the stack that an outer header of the other family is gone: `headroom` as well."""
    kernel = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
    return kernel < (6, 3) and tunnel(row) and tunnel(row).outer != row.family and row.hook == "tc"


def bounds(row, side):
    """((least slow, least fast), (most slow, most fast)), each a share of the file."""
    if row.expect.startswith("refused:mangled") and side == "reply":
        # A new ruleset gives refused connections another try, a second or two later: this direction, which no rule
        # changes, may be live until a packet of the other one is seen.
        return (1 - 2 * SLOW_SHARE, 0), (2, 2 * SLOW_SHARE)
    if "direct-return" in row.stages and side == "reply":
        return (0, 0), (0, 0)  # goes another way
    if row.expect != "fast" or (side == "reply" and cannot_leave(row)):
        return (1, 0), (2, 0)
    if min(row.mtus.outer, row.mtus.remote) > 3000 and (segments_too_large(row) or cannot_grow(row)):
        # Blocks of 64 KiB leave rests that are smaller than such segments: a good part of a file may be in them.
        return (0, 0), (2, 2)
    if segments_too_large(row):
        return (1, 0), (2, 0.25)  # acknowledgements are small
    return (0, 1 - SLOW_SHARE), (SLOW_SHARE, 2)


def flow_of(lab, exchange, **more):
    """The connection in the daemon's table, or None."""
    answer = lab.ask("flows", filter={"proto": "tcp", "sport": exchange.sport, **more})
    check(answer["ok"], f"flows: {answer.get('error')}")
    flows = [flow for flow in answer["data"] if flow["orig"]["match"]["sport"] == exchange.sport]
    check(len(flows) <= 1, f"more than one flow from port {exchange.sport}: {flows}")
    return flows[0] if flows else None


def live(lab, exchange):
    flow = flow_of(lab, exchange)
    return flow if flow and all(flow[side]["live"] for side in ("orig", "reply")) else None


def reason(lab, exchange):
    return (flow_of(lab, exchange, state="refused") or {}).get("reason") or ""


def check_envelopes(row, flow):
    """Each direction is matched and leaves with the tags and in the tunnel of that side."""
    def seen(words):
        return tuple((tag["proto"], tag["id"]) for tag in words["vlan"]), (words["tunnel"] or {}).get("type")
    near, far = (inside_tags(row), None), (between(row).tags, between(row).tunnel)
    check_equal({side: (seen(flow[side]["match"]), seen(flow[side]["push"])) for side in ("orig", "reply")},
                {"orig": (near, far), "reply": (far, near)}, "tags and tunnels, matched and pushed")


def before(lab, row, exchange):
    """Waits for what ftctl makes of the connection, with small packets."""
    exchange.knock()
    if row.expect == "fast":
        flow = exchange.knock_until(lambda: live(lab, exchange), LIVE_S, "the connection is live in both directions")
        check_envelopes(row, flow)
    elif row.expect.startswith("refused:"):
        wanted = row.expect.removeprefix("refused:")
        exchange.knock_until(lambda: reason(lab, exchange) == wanted, LIVE_S, f"the connection is refused as {wanted}")
    elif row.expect == "slow":
        for _number in range(20):
            exchange.knock()
    client = between(row).addresses[row.family][0] if row.nat in ("masquerade", "both") else NS1[row.family]
    check_equal(exchange.peer()[0], client, "the client's address as ns2 sees it")


def after(lab, row, exchange, chain):
    """With the connection still open; `chain`: the forward chain's counters. Returns a few words for the report."""
    size = row.size
    slow = {"orig": chain["routed_orig"][1], "reply": chain["routed_repl"][1]}
    flow = flow_of(lab, exchange) if row.expect != "plain" else None
    fast = {side: (flow.get(side) or {}).get("bytes", 0) if flow else 0 for side in slow}
    said = "forward chain saw " + ", ".join(f"{slow[side] / size:.1%} {side}" for side in slow)
    said += "; fast " + ", ".join(f"{fast[side] / size:.1%}" for side in slow)
    for side in slow:
        least, most = bounds(row, side)
        check(slow[side] >= size * least[0], f"{side}: the forward chain saw only {slow[side]} bytes of {size}; {said}")
        check(slow[side] <= size * most[0], f"{side}: the forward chain saw {slow[side]} bytes of {size}; {said}")
        check(fast[side] >= size * least[1], f"{side}: only {fast[side]} bytes of {size} were fast; {said}")
        check(fast[side] <= size * most[1], f"{side}: {fast[side]} bytes of {size} were fast; {said}")
        check(row.expect != "fast" or fast[side] + slow[side] >= size, f"{side}: bytes that nobody counted; {said}")
    if row.expect == "fast":
        # The ruleset is new: its generation may have come between.
        exchange.knock_until(lambda: live(lab, exchange), LIVE_S, "the connection is live at the end")
    return said


def dscp(row, arrived):
    """What arrived at ns2 carries the mark that nsr1's rules set, every packet of it."""
    arrived = {name: packets for name, (packets, _bytes) in arrived.items()}
    right = "cs3" if row.dscp else "none"
    check(arrived[right] > 0, f"ns2 counted no packet of the transfer: {arrived}")
    check_equal({name: count for name, count in arrived.items() if name != right and count}, {},
                f"packets that arrived with another DSCP than {right}")
