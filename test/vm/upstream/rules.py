# SPDX-License-Identifier: GPL-2.0-only
"""The rulesets of the rows, as text for nft, and the counters in them."""
from lab import Failure, Skip
from topology import DNAT_ADDR, DNAT_PORT, NS2, PORT, between, inside

TABLES = ("inet acceptance", "ip acceptance_nat", "ip6 acceptance_nat", "netdev acceptance_mangle")
L3 = {4: "ip", 6: "ip6"}  # nft's words


def forward(row):
    """What the stack forwards is counted, and what is no part of the transfer is dropped."""
    mangle = f"tcp dport {PORT} {L3[row.family]} dscp set cs3" if row.dscp == "forward" else ""
    # Nobody may depend on being told of anything where path MTU discovery is off.
    deaf = "" if row.pmtu else "chain output { type filter hook output priority 0; ip protocol icmp drop; }"
    return f"""table inet acceptance {{
        counter routed_orig {{ }}
        counter routed_repl {{ }}
        chain forward {{ type filter hook forward priority 0; policy drop;
            {mangle}
            oifname "{between(row).devices[0]}" tcp dport {PORT} ct mark set 1 counter name routed_orig accept
            ct mark 1 counter name routed_repl accept
            meta l4proto {{ icmp, ipv6-icmp }} accept
        }}
        {deaf}
    }}
    """


def nat(row):
    text, l3 = "", L3[row.family]
    server = f"[{NS2[row.family]}]:{PORT}" if row.family == 6 else f"{NS2[row.family]}:{PORT}"
    if row.nat in ("dnat", "both"):
        text += f"""chain pre {{ type nat hook prerouting priority dstnat;
            iifname "{inside(row)}" {l3} daddr {DNAT_ADDR[row.family]} tcp dport {DNAT_PORT} dnat to {server}
        }}
        """
    if row.nat in ("masquerade", "both"):
        text += f"""chain post {{ type nat hook postrouting priority srcnat;
            oifname "{between(row).devices[0]}" masquerade
        }}
        """
    return f"table {l3} acceptance_nat {{\n{text}}}\n" if text else ""


def mangle(row):
    if row.dscp not in ("ingress", "egress"):
        return ""
    l3, dev, port = L3[row.family], ("veth0" if row.dscp == "ingress" else "veth1"), PORT
    if row.dscp == "ingress" and row.nat in ("dnat", "both"):
        port = DNAT_PORT
    return f"""table netdev acceptance_mangle {{
        chain change {{ type filter hook {row.dscp} device {dev} priority 0; tcp dport {port} {l3} dscp set cs3; }}
    }}
    """


def load(nft, row):
    """Replaces the ruleset of nsr1 by the row's. ftctl's own table stays."""
    text = "".join(f"table {name} {{ }}\ndelete table {name}\n" for name in TABLES)
    text += forward(row) + nat(row) + mangle(row)
    try:
        nft.run(text)
    except Failure as failure:
        if row.dscp == "egress" and "not supported" in str(failure):
            raise Skip(f"this kernel has no egress hook for nft: {failure}") from failure
        raise


# Counters by DSCP of what arrives at ns2.
ARRIVED = f"""table netdev arrived {{
    counter cs3 {{ }}
    counter none {{ }}
    counter other {{ }}
    chain in {{ type filter hook ingress device eth0 priority 0;
        tcp dport {PORT} ip dscp cs3 counter name cs3 accept
        tcp dport {PORT} ip dscp 0 counter name none accept
        tcp dport {PORT} ip6 dscp cs3 counter name cs3 accept
        tcp dport {PORT} ip6 dscp 0 counter name none accept
        tcp dport {PORT} counter name other
    }}
}}
"""
