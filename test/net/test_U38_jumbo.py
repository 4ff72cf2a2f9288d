# SPDX-License-Identifier: GPL-2.0-only
"""U38: devices of MTU 9000 attach at either hook, and jumbo packets are fast and intact, in pieces or not."""
import time

import frames
from lab import check, check_equal, wait_until
from labs import L_ADDR, W_ADDR, lab_a
from raw import Injector, Sniffer
from traffic import (TcpServer, UdpFlow, UdpPeer, check_fast, download, random_bytes, serve_blob, serve_store, upload)

DEVICES = ("L", "la"), ("R", "ra"), ("R", "rb"), ("W", "wa")


def run():
    with lab_a(nat=False) as lab:
        for host, dev in DEVICES:
            lab[host].ip(f"link set {dev} mtu 9000")
        for host, dev in DEVICES[::3]:
            lab[host].run("ethtool", "-K", dev, "gro", "on")
        UdpPeer(lab["W"], W_ADDR, 9)
        lab.start()
        for mode in ("auto",), ("xdp", "--force"):
            said = lab.ftctl("attach", "ra", "rb", "--mode", *mode)
            check(all(device["why"] for device in said["devices"]), f"nothing said about the hook: {said}")
            if mode[0] == "xdp":  # at XDP nobody finishes checksums, or cuts what the sender left to the device
                for host, dev in DEVICES[::3]:
                    lab[host].run("ethtool", "-K", dev, "tx", "off", "tso", "off", "gso", "off")
            hook = "tc" if mode[0] == "auto" else "xdp"
            check_equal({device["hook"] for device in lab.stats()["devices"]}, {hook}, "hook")
            jumbo(lab, 40000 if mode[0] == "auto" else 40001)
            # An MTU that grows while attached.
            lab["L"].ip("link set la mtu 9100")
            lab["L"].ip("link set la mtu 9000")
            lab.detach()


def jumbo(lab, port):
    flow = UdpFlow(lab["L"], ("0.0.0.0", port), (W_ADDR, 9)).start(50)
    lab.wait_live(proto="udp", sport=port, dport=9)
    check_fast(lab, flow)
    check_equal(lab.flow(proto="udp", sport=port)["orig"]["mtu"], 9000, "MTU of the flow")
    inject = Injector(lab["L"], "la", lab["R"], "ra")
    at_w = Sniffer(lab["W"], "wa", lambda frame: frame[12:14] == b"\x08\x00" and len(frame) > 1500)
    before, sent = lab.flow(proto="udp", sport=port)["orig"]["packets"], []
    for number, size in enumerate((3000, 4096, 8900, 9000)):
        body = frames.udp(L_ADDR, W_ADDR, port, 9, random_bytes(size - 28, number))
        inject.send(frames.ipv4(L_ADDR, W_ADDR, frames.UDP, body, ident=number))
        sent.append(frames.ipv4(L_ADDR, W_ADDR, frames.UDP, body, ident=number, ttl=63))
        time.sleep(0.005)
    wait_until(lambda: len(at_w.seen) >= len(sent), 2, "jumbo packets at W")
    got = [frame[14:] for frame in at_w.settle()]
    check_equal([data[:16].hex() for data in got], [data[:16].hex() for data in sent], "headers of jumbo packets")
    check(got == sent, "a jumbo packet came with other bytes")
    check(lab.flow(proto="udp", sport=port)["orig"]["packets"] - before >= len(sent) - 1, "jumbo packets were slow")
    blob, store = random_bytes(3_000_000), []
    TcpServer(lab["W"], W_ADDR, 8000 + port, serve_blob(blob))
    TcpServer(lab["W"], W_ADDR, 9000 + port, serve_store(store))
    download(lab["L"], (W_ADDR, 8000 + port), blob)
    upload(lab["L"], (W_ADDR, 9000 + port), blob)
    flow.stop()

