# SPDX-License-Identifier: GPL-2.0-only
"""The rulesets of the rows, as text for nft, and the counters in them."""
from lab import Failure, Skip
from topology import DNAT_ADDR, DNAT_PORT, NS2, PORT

TABLES = ("inet acceptance", "ip acceptance_nat", "netdev acceptance_mangle")
MARKED = f"tcp dport {PORT} ip dscp set cs3"


def forward(row, out):
    """What the stack forwards is counted, and what is no part of the transfer is dropped."""
    mangle = MARKED if row.dscp == "forward" else ""
    # Nobody may depend on being told of anything where path MTU discovery is off.
    deaf = "" if row.pmtu else "chain output { type filter hook output priority 0; ip protocol icmp drop; }"
    return f"""table inet acceptance {{
        counter routed_orig {{ }}
        counter routed_repl {{ }}
        chain forward {{ type filter hook forward priority 0; policy drop;
            {mangle}
            oifname "{out}" tcp dport {PORT} ct mark set 1 counter name routed_orig accept
            ct mark 1 counter name routed_repl accept
            ip protocol icmp accept
        }}
        {deaf}
    }}
    """


def nat(row, inside, out):
    text = ""
    if row.nat in ("dnat", "both"):
        text += f"""chain pre {{ type nat hook prerouting priority dstnat;
            iifname "{inside}" ip daddr {DNAT_ADDR} tcp dport {DNAT_PORT} dnat to {NS2}:{PORT}
        }}
        """
    if row.nat in ("masquerade", "both"):
        text += f"""chain post {{ type nat hook postrouting priority srcnat;
            oifname "{out}" masquerade
        }}
        """
    return f"table ip acceptance_nat {{\n{text}}}\n" if text else ""


def mangle(row):
    if row.dscp not in ("ingress", "egress"):
        return ""
    dev, port = ("veth0" if row.dscp == "ingress" else "veth1"), PORT
    if row.dscp == "ingress" and row.nat in ("dnat", "both"):
        port = DNAT_PORT
    return f"""table netdev acceptance_mangle {{
        chain change {{ type filter hook {row.dscp} device {dev} priority 0; tcp dport {port} ip dscp set cs3; }}
    }}
    """


def load(nft, row):
    """Replaces the ruleset of nsr1 by the row's. ftctl's own table stays."""
    inside, out = ("br0" if "bridge" in row.stages else "veth0"), ("tun0" if "ipip" in row.stages else "veth1")
    text = "".join(f"table {name} {{ }}\ndelete table {name}\n" for name in TABLES)
    text += forward(row, out) + nat(row, inside, out) + mangle(row)
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
        tcp dport {PORT} counter name other
    }}
}}
"""
