# SPDX-License-Identifier: GPL-2.0-only
"""U43: VLAN tags, in the frame or beside it (as hardware leaves them), never make a frame one of an untagged flow."""
import os
import struct

import frames
from lab import check, check_equal, command, wait_until
from labs import L_ADDR, W_ADDR, lab_a
from raw import Injector, Sniffer, is_flow
from traffic import check_fast, datagram, fast_udp

VID, COUNT = 42, 50
# A TC egress program that puts the tag into the metadata of each datagram of length 242, as a VLAN device on hardware
# with tag offload does.
PUSH = """
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
SEC("tc") int push(struct __sk_buff *skb)
{
    if (skb->len == 242)
        bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), 42);
    return -1;
}
char LICENSE[] SEC("license") = "GPL";
"""


def udp(seq):
    return frames.ipv4(L_ADDR, W_ADDR, 17, frames.udp(L_ADDR, W_ADDR, 40000, 9, datagram(50, seq, 200)), ident=seq)


def is_tagged_length(frame):
    return is_flow(17, dport=9)(frame) and struct.unpack_from("!H", frame, 16)[0] == 228


def run():
    with lab_a() as lab:
        router = lab["R"]
        lab.attach("ra", "rb")
        flow, peer = fast_udp(lab)
        check_fast(lab, flow)
        # veth hands tags over beside the frame, where XDP does not see them.
        refused = lab.ftctl_raw("attach", "ra", "--mode", "xdp", "--dry-run")
        check_equal(refused.returncode, 2, "attach --mode xdp where tags are hidden")
        check("hint:" in refused.stderr, f"no hint: {refused.stderr}")

        source, built = os.path.join(lab.tmp, "push.c"), os.path.join(lab.tmp, "push.o")
        with open(source, "w", encoding="ascii") as file:
            file.write(PUSH)
        machine = os.uname().machine
        command(["clang", "-O2", "-target", "bpf", f"-I/usr/include/{machine}-linux-gnu", "-c", source, "-o", built])
        injector = Injector(lab["L"], "la", router, "ra")
        at_w = Sniffer(lab["W"], "wa", is_tagged_length)
        before, got = lab.flow(proto="udp", sport=40000, dport=9)["orig"]["packets"], peer.received(50)
        arrived = lab.stats("ra")["rx_packets"]

        lab["L"].run("tc", "qdisc", "add", "dev", "la", "clsact")
        lab["L"].run("tc", "filter", "add", "dev", "la", "egress", "bpf", "da", "obj", built, "sec", "tc")
        for seq in range(COUNT):  # beside the frame
            injector.send(udp(seq))
        lab["L"].run("tc", "qdisc", "del", "dev", "la", "clsact")
        for seq in range(COUNT):  # in the frame
            injector.send(struct.pack("!HH", VID, 0x0800) + udp(seq), kind=0x8100)
        wait_until(lambda: lab.stats("ra")["rx_packets"] >= arrived + 2 * COUNT, 5, "the router has the tagged frames")
        check_equal(len(at_w.settle()), 0, "frames of an unknown VLAN that reached W")
        check_equal(peer.received(50), got, "datagrams of an unknown VLAN that reached W")
        check_equal(lab.flow(proto="udp", sport=40000, dport=9)["orig"]["packets"], before,
                    "packets counted by the untagged flow")
        for seq in range(COUNT):  # the same without tag: what is looked for can be seen
            injector.send(udp(seq))
        wait_until(lambda: len(at_w.frames()) == COUNT, 5, "untagged frames reach W")
