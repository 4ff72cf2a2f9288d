# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own packet generator: socket buffers, one at a time."""
import dataclasses
import typing

from lab import check


@dataclasses.dataclass(frozen=True)
class Stream:
    """UDP packets, as a host or router puts them on its device."""
    device: str
    dst_mac: str
    src: str
    sport: int
    dst: str
    dport: int
    frame_bytes: int  # without a tag
    vlan: typing.Optional[int] = None

    def lines(self, count):
        six = "6" if ":" in self.dst else ""
        size = self.frame_bytes + (4 if self.vlan is not None else 0)
        yield from (f"count {count}", "clone_skb 0", "delay 0", f"pkt_size {size}",
                    f"dst_mac {self.dst_mac}", f"dst{six} {self.dst}", f"udp_src_min {self.sport}",
                    f"udp_src_max {self.sport}", f"udp_dst_min {self.dport}", f"udp_dst_max {self.dport}")
        if six:
            yield from (f"src6 {self.src}", "flag UDPCSUM")  # over IPv6 it has to be there (RFC 8200, 8.1)
        else:
            yield from (f"src_min {self.src}", f"src_max {self.src}")
        if self.vlan is not None:
            yield f"vlan_id {self.vlan}"


def send(netns, stream, count):
    """Sends from the namespace; returns packets a second."""
    setup = {"kpktgend_0": ["rem_device_all", f"add_device {stream.device}"], stream.device: tuple(stream.lines(count)),
             "pgctrl": ["start"]}
    with netns.entered():
        # The directory of the thread: /proc/net is the process's namespace.
        for name, lines in setup.items():
            for line in lines:
                with open(f"/proc/thread-self/net/pktgen/{name}", "w", encoding="ascii") as file:
                    file.write(line + "\n")
        with open(f"/proc/thread-self/net/pktgen/{stream.device}", encoding="ascii") as file:
            words = file.read().split()
    rates = [word[:-3] for word in words if word.endswith("pps") and word[:-3].isdigit()]
    check(rates, f"pktgen says no rate: {' '.join(words)[-200:]}")
    return int(rates[0])
