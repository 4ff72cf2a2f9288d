# SPDX-License-Identifier: GPL-2.0-only
"""Shows ftctl's main job: connections through a router with NAT and a tunnel leave the stack.

  client -- router ==(tunnel)== remote router -- server

all of them network namespaces on veth. The router masquerades what enters the tunnel and forwards a
port to the client (with IPv6 inside the tunnel both are NAT66); ftctld runs on both routers. The demo
measures with ftctl off and on, proves with a counter in the forward chain that the stack no longer sees
the packets, detaches under running connections, and leaves nothing behind.
"""
import argparse
import contextlib
import json
import os
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "net")]

import measure  # noqa: E402
from lab import BIN, Failure, check, exit_on_signals, sweep  # noqa: E402
from labs import FORWARDED_PORT, IPIP, TUNNELS, lab_tunnel, open_tunnel  # noqa: E402
from screen import command, heading, held, say  # noqa: E402
from traffic import (TcpServer, TcpStream, download, random_bytes, serve_blob, serve_store, upload)  # noqa: E402

LIMIT_S = 170
FILE_BYTES = 32 << 20


class Demo:
    def __init__(self, lab, tunnel):
        self.lab = lab
        self.tunnel = tunnel
        self.result = {"ok": False, "mode": tunnel.mode, "fast_share": 0.0, "forward_chain_packets": None,
                       "off": None, "on": None, "file_ok": False, "survived_detach": False, "left_behind": []}
        self.proofs = []
        self.maker = None  # of the tunnel: "kernel" or "ftctl"
        self.streams = []

    def prove(self, text, ok):
        self.proofs.append(held(text, ok))
        return ok

    def show(self, *words, lines=None):
        """Runs ftctl on the router as a person would, and prints what it says."""
        command("ftctl", *words)
        result = self.lab.ftctl_raw(*words)
        text = (result.stdout + result.stderr).rstrip().splitlines()
        for line in text[:lines]:
            say("  " + line)
        if lines and len(text) > lines:
            say(f"  ... ({len(text) - lines} more lines)")
        check(result.returncode == 0, f"ftctl {' '.join(words)}: exit {result.returncode}")

    def build_lab(self):
        heading("A laboratory of four namespaces")
        self.maker = open_tunnel(self.lab, self.tunnel)
        net, mode = self.tunnel, self.tunnel.mode
        say(f"  client {net.client} -- router {net.wan_near} == tun0 == {net.wan_far} remote -- {net.server} server")
        why = "this kernel has no ipip" if mode == "ipip" else "needs no module of the kernel"
        say(f"  tunnel: {mode}, made by " + ("the kernel" if self.maker == "kernel" else f"ftctl tunnel add ({why})"))
        say(f"  router: nft masquerade into the tunnel; port {FORWARDED_PORT} of {net.near} goes to the client")
        self.lab.at("router")
        measure.start_server(self.lab)

    def off(self):
        heading("Without ftctl: the kernel's own path")
        self.result["off"], _windows = measure.throughput(self.lab, self.tunnel, False)
        say(f"  UDP, {measure.SMALL}-byte datagrams: {self.result['off']['kpps']:.1f} thousand packets/s")
        say(f"  TCP: {self.result['off']['gbps']:.3f} Gbit/s")
        if self.maker == "ftctl":
            say("  (a tunnel of ftctl has its slow path in user space: with a tunnel of the kernel this would be more)")

    def attach(self):
        heading("ftctl attach")
        self.lab.at("remote").attach("wan0", "lan0")
        self.lab.at("router")
        self.show("attach", "wan0", "lan0")

    def on(self):
        heading("With ftctl")
        # Two connections that stay open till the end: one out, one in by the forwarded port.
        net = self.tunnel
        self.streams = [TcpStream(self.lab["client"], (net.server, 7000), self.lab["server"], rate=100_000),
                        TcpStream(self.lab["server"], (net.near, FORWARDED_PORT), self.lab["client"], addr=net.client,
                                  rate=100_000)]
        self.result["on"], windows = measure.throughput(self.lab, self.tunnel, True)
        on, off = self.result["on"], self.result["off"]
        say(f"  UDP: {on['kpps']:.1f} thousand packets/s, {on['kpps'] / max(off['kpps'], 0.001):.1f} times as many")
        say(f"  TCP: {on['gbps']:.3f} Gbit/s, {on['gbps'] / max(off['gbps'], 1e-6):.1f} times as much")
        fast, slow = (sum(getattr(window, name) for window in windows) for name in ("fast", "slow"))
        self.result["forward_chain_packets"] = slow
        self.result["fast_share"] = round(1 - slow / (fast + slow), 5) if fast + slow else 0.0
        say(f"  while measuring, {fast} packets took the fast path; the router's forward chain counted {slow}")
        self.prove(f"the stack no longer sees the packets: {self.result['fast_share'] * 100:.2f} % took the fast path",
                   self.result["fast_share"] >= 0.99)

    def files(self):
        heading("Files, byte by byte")
        blob, store, server = random_bytes(FILE_BYTES), [], self.tunnel.server
        TcpServer(self.lab["server"], server, 8000, serve_blob(blob))
        TcpServer(self.lab["server"], server, 8001, serve_store(store))
        download(self.lab["client"], (server, 8000), blob)
        upload(self.lab["client"], (server, 8001), blob)
        self.result["file_ok"] = self.prove(f"{FILE_BYTES >> 20} MB down and up through the tunnel, SHA-256 equal",
                                            len(store) == 1)

    def flows(self):
        heading("The flows")
        for stream in self.streams:
            stream.check_progress(what="a connection that stays open")
        self.show("flows", lines=20)
        flow = self.lab.wait_live(5, proto="tcp", sport=self.streams[0].sport)
        command("ftctl", "-j", "flows", "dport", "7000")
        say("  " + json.dumps(flow, indent=2).replace("\n", "\n  "))
        self.prove("the outgoing connection is translated and enters the tunnel",
                   flow["orig"]["rewrite"]["src"] == self.tunnel.near
                   and self.is_tunnel(flow["orig"]["push"]["tunnel"]))
        inward = self.lab.wait_live(5, proto="tcp", sport=self.streams[1].sport, dport=FORWARDED_PORT)
        self.prove("the connection by the forwarded port comes out of the tunnel and goes to the client",
                   inward["orig"]["rewrite"]["dst"] == self.tunnel.client
                   and self.is_tunnel(inward["orig"]["match"]["tunnel"]))
        self.show("stats", lines=30)

    def is_tunnel(self, shown):
        return shown is not None and shown["type"] == self.tunnel.mode

    def detach(self):
        heading("ftctl detach, under running connections")
        before = [stream.received for stream in self.streams]
        self.show("detach", "--all")
        self.lab.at("remote").detach()
        self.lab.at("router")
        for stream in self.streams:
            stream.check_progress(5, "a connection after detach")
        grown = sum(stream.received for stream in self.streams) - sum(before)
        seen = self.lab.count("seen_back")
        for stream in self.streams:
            stream.check_progress(5, "a connection after detach")
        self.result["survived_detach"] = self.prove(
            f"both connections go on ({grown} bytes since), and the forward chain sees them again",
            all(stream.error is None for stream in self.streams) and self.lab.count("seen_back") > seen)
        for stream in self.streams:
            stream.stop()
        if self.maker == "ftctl":
            for role in ("remote", "router"):
                self.lab.at(role).ftctl("tunnel", "del", "tun0")


def play(tunnel, keep):
    """Plays the demo; returns its Demo, after the laboratory is gone."""
    lab = lab_tunnel(tunnel)
    demo, pids = Demo(lab, tunnel), []
    try:
        with lab:
            demo.build_lab()
            demo.off()
            demo.attach()
            demo.on()
            demo.files()
            demo.flows()
            demo.detach()
            if keep:
                wait_for_enter(lab)
            pids = [process.pid for process in lab.processes]
    except Failure as failure:
        demo.prove(str(failure), False)
    heading("What is left behind")
    left = lab.left_behind + [f"process {pid}" for pid in pids if os.path.exists(f"/proc/{pid}")]
    demo.result["left_behind"] = left
    demo.prove("nothing: no namespace, no pin, no socket, no process" if not left else f"left behind: {left}", not left)
    result = demo.result
    result["ok"] = bool(all(demo.proofs) and result["file_ok"] and result["survived_detach"] and result["on"])
    return demo


def wait_for_enter(lab):
    heading("--keep: have a look around")
    signal.alarm(0)
    for role in ("client", "router", "remote", "server"):
        say(f"  nsenter --net={lab[role].path}          # {role}")
    say(f"  nsenter --net={lab['router'].path} {BIN}/ftctl -i {lab.at('router').instance} flows")
    with contextlib.suppress(EOFError):
        input("Enter takes everything down. ")


def main():
    parser = argparse.ArgumentParser(prog="demo.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=TUNNELS, default=IPIP.mode,
                        help="what is inside what between the routers (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON")
    parser.add_argument("--keep", action="store_true", help="wait for Enter before everything is taken down")
    options = parser.parse_args()
    exit_on_signals(LIMIT_S)
    sweep()
    demo = play(TUNNELS[options.mode], options.keep)
    heading("Result")
    say(json.dumps(demo.result, indent=2))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(demo.result, file)
            file.write("\n")
    say("OK" if demo.result["ok"] else "NOT OK")
    return 0 if demo.result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
