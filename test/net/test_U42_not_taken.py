# SPDX-License-Identifier: GPL-2.0-only
"""U42: what is not taken stays as cheap as it was: attached, the stack gets the same large aggregates as before."""
from lab import check, check_equal
from labs import W_ADDR, lab_a
from traffic import TcpServer, download, random_bytes, serve_blob, serve_store, upload

MARK = "0x80000000"
SIZE = 24 << 20
# Of the mean size without ftctl. Without aggregation it would be a twentieth.
LEAST = 0.85
ETHERNET_MTU = 1500


def run():
    with lab_a(watch={"up": "tcp dport 8001", "down": "tcp sport 8000"}) as lab:
        blob = random_bytes(SIZE)
        TcpServer(lab["W"], W_ADDR, 8000, serve_blob(blob))
        TcpServer(lab["W"], W_ADDR, 8001, serve_store([]))
        features = [lab["R"].run("ethtool", "-k", dev).stdout for dev in ("ra", "rb")]
        plain = sizes(lab, blob)
        check(min(plain.values()) > 5 * ETHERNET_MTU, f"nothing is aggregated here: {plain}: this would prove nothing")
        lab["R"].nft(f"""table inet leave {{
            chain f {{ type filter hook forward priority 0; tcp dport 8000-8001 ct mark set ct mark or {MARK}; }}
        }}""")
        lab.attach("ra", "rb")
        now = [lab["R"].run("ethtool", "-k", dev).stdout for dev in ("ra", "rb")]
        check_equal(now, features, "features of the devices")
        slow = sizes(lab, blob)
        for name, size in slow.items():
            check(size >= LEAST * plain[name], f"{name}: {size:.0f} bytes a packet in the forward chain, "
                                               f"{plain[name]:.0f} without ftctl")
        fast = sum(device["fast_packets"] for device in lab.stats()["devices"])
        check_equal(fast, 0, "packets that were taken although the mark says to leave them alone")
        print(f"bytes a packet without ftctl: {plain}, attached: {slow}")


def sizes(lab, blob):
    """Mean size of what the forward chain sees of a transfer in each direction."""
    before = lab.counts()
    download(lab["L"], (W_ADDR, 8000), blob)
    upload(lab["L"], (W_ADDR, 8001), blob)
    after = lab.counts()
    return {name: round((after[name][1] - before[name][1]) / max(1, after[name][0] - before[name][0]))
            for name in ("up", "down")}
