# SPDX-License-Identifier: GPL-2.0-only
"""U12: conntrack entries live while the fast path forwards, and end when they would have ended anyway."""
import time

from lab import check, check_equal, wait_until
from labs import W_ADDR, lab_a
from raw import Sniffer, is_icmp
from traffic import TcpStream, UdpFlow, UdpPeer

UDP_STREAM_S, TCP_S = 6, 7
PPS = 5
PHASE_S = 8


def run():
    with lab_a() as lab:
        router = lab["R"]
        for key, value in (("udp_timeout", 4), ("udp_timeout_stream", UDP_STREAM_S), ("tcp_timeout_established", TCP_S),
                           ("tcp_timeout_unacknowledged", TCP_S), ("tcp_timeout_max_retrans", TCP_S)):
            router.sysctl_set(f"net/netfilter/nf_conntrack_{key}", value)
        lab.attach("ra", "rb")
        events = router.spawn("conntrack", "-E", "-e", "DESTROY", "-o", "id", log="destroy.log")
        unreachable = Sniffer(lab["L"], "la", is_icmp(3))
        peer = UdpPeer(lab["W"], W_ADDR, 9)
        flow = UdpFlow(lab["L"], ("0.0.0.0", 40000), (W_ADDR, 9)).start(20)
        stream = TcpStream(lab["L"], (W_ADDR, 8000), lab["W"], pps=0.5)
        udp = {"proto": "udp", "sport": 40000, "dport": 9}
        tcp = {"proto": "tcp", "sport": stream.sport, "dport": 8000}
        lab.wait_live(**udp)
        flow.stop()
        ids = {proto: lab.ct(proto, sport=port)["id"] for proto, port in (("udp", 40000), ("tcp", stream.sport))}

        def unchanged(text):
            for proto, port in (("udp", 40000), ("tcp", stream.sport)):
                entry = lab.ct(proto, sport=port)
                check(entry is not None, f"{text}: the {proto} entry is gone")
                check_equal(entry["id"], ids[proto], f"{text}: conntrack id, {proto}")

        flow.send(PHASE_S * PPS, PPS)
        check_equal(flow.lost(), 0, "lost, both ways")
        unchanged("both ways")
        peer.echo = False
        first = peer.received(1)
        router.nft("table inet other { chain c { type filter hook input priority 5; } }")
        flow.send(PHASE_S * PPS, PPS)
        time.sleep(0.2)
        check_equal(peer.received(1) - first, PHASE_S * PPS, "received, L to W only")
        unchanged("L to W only")
        answers = flow.answered()
        peer.send(peer.last_source[1], PHASE_S * PPS, PPS, flow=1, first=1 << 20)
        wait_until(lambda: flow.answered() - answers == PHASE_S * PPS, 1, "all datagrams W to L only")
        ended = time.monotonic()
        unchanged("W to L only")
        check_equal(len(peer.last_source), 1, "flows seen by W")
        check_equal({port for _addr, port in peer.sources}, {40000}, "NAT ports seen by W")
        stream.check_progress(5)
        # The last thing that the stream does is a segment and its echo, up to 2 s ago.
        stream.stop()
        tcp_ended = max(ended, stream.last)
        with open(events.log, encoding="ascii") as file:
            gone = [line for line in file if "dport=9" in line or "dport=8000" in line]
        check_equal(gone, [], "DESTROY events while packets flowed")

        def vanished(proto, port, match):
            """When the conntrack entry and the flow were gone."""
            return lab.ct(proto, sport=port) is None and not lab.find(**match)

        for proto, port, match, limit, since in (("udp", 40000, udp, UDP_STREAM_S, ended),
                                                 ("tcp", stream.sport, tcp, TCP_S, tcp_ended)):
            wait_until(lambda p=proto, q=port, m=match: vanished(p, q, m), since + limit + 3.5 - time.monotonic(),
                       f"{proto}: conntrack entry and flow gone {limit} s after the last packet", 0.2)
            took = time.monotonic() - since
            check(took >= limit - 3, f"{proto}: gone after {took:.1f} s already, the timeout is {limit} s")
        check_equal(len(unreachable.seen), 0, "ICMP unreachable messages to L")
