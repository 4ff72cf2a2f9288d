# SPDX-License-Identifier: GPL-2.0-only
"""The part of test/vm/bench.sh that runs in the guest: one scenario, all paths, in one boot.

    python3 test/vm/bench/measure.py SCENARIO OPTIONS        (OPTIONS: JSON, see bench.py)

Prints one JSON object a line for each path. The guest's clock counts instructions, so nanoseconds are instructions.
That clock leaps while the guest waits for this machine's disk: everything that will run is run, or loaded, once before
something is timed.
"""
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TEST = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(TEST, "bench"), os.path.join(TEST, "net")]
BUILD = os.environ["FTCTL_BIN_DIR"]
MEMORY = "/dev/shm/ftctl-bench"  # programs are copied there
os.environ["FTCTL_BIN_DIR"] = MEMORY

from frames import mac  # noqa: E402
from lab import Failure, check, check_equal, wait_until  # noqa: E402
from pktgen import Stream, send  # noqa: E402
from profiles import by_function  # noqa: E402
from scenarios import L3_LENGTH, SCENARIOS  # noqa: E402
from shapes import PORT, TUNNELS, VLAN  # noqa: E402
from topology import MACS, build, make, rules  # noqa: E402
from traffic import UdpFlow, UdpPeer  # noqa: E402

MODULES = ("veth nf_conntrack nf_tables nft_ct nft_chain_nat nft_masq nf_flow_table nf_flow_table_inet "
           "nft_flow_offload pktgen 8021q pppoe cls_bpf sch_ingress").split()
PROGRAMS = "ip nsenter setpriv nft ethtool conntrack iperf3".split()
IPERF_PORT = 5201
PKTGEN_ROUNDS = 2
# Of all packets on a fast path the forward chain may see so many: the trickle, and those before the flow was there.
SLOW_SHARE = 0.01
PATIENCE = 120  # seconds of the guest's clock


@dataclasses.dataclass(frozen=True)
class Path:
    name: str
    flowtable: bool = False
    hook: str = ""  # of ftctl
    bare: bool = False

    def fast(self, scenario):
        return (self.flowtable and scenario.rival) or bool(self.hook)


PATHS = (Path("conntrack"), Path("flowtable", flowtable=True), Path("ftctl-tc", hook="tc"),
         Path("ftctl-xdp", hook="xdp"), Path("redirect", bare=True))


def say(text):
    print(text, file=sys.stderr, flush=True)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def prime():
    """Nothing that runs later has to be fetched from this machine's disk."""
    os.makedirs(MEMORY, exist_ok=True)
    for name in ("ftctl", "ftctld"):
        shutil.copy(os.path.join(BUILD, name), MEMORY)
        subprocess.run([os.path.join(MEMORY, name), "--help"], stdout=subprocess.DEVNULL, check=True)
    shutil.copy(os.environ.get("FTCTL_FRAMEGEN") or os.path.join(BUILD, "test", "framegen"), MEMORY)
    for name in PROGRAMS:
        subprocess.run([name, "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def load(modules):
    for module in modules:
        found = subprocess.run(["modprobe", module], capture_output=True, text=True, check=False)
        if found.returncode != 0:
            raise Failure(f"modprobe {module}: {found.stderr.strip()}")


class Bench:
    def __init__(self, scenario, options):
        self.scenario, self.options = scenario, options
        self.sport = 40000
        self.calibration = {}  # leaving: True or False
        self.pktgen_calibration = 0.0
        up = (("client", "eth0", "lan0"), ("remote", "wan0", "wan0"))
        # (namespace, its device, the router's device): where frames are made and where they end
        self.source, self.sink = up if scenario.up else up[::-1]
        self.lab = make(scenario)

    # ------------------------------------------------------------------ counters

    def forwarded(self):
        """(packets, bytes) that the router's forward chain has seen."""
        return self.counter("router", "bench", "forwarded")

    def counter(self, role, table, name):
        family = "netdev" if table == "sink" else "inet"
        text = self.lab[role].run("nft", "-j", "list", "counters", "table", family, table).stdout
        for item in json.loads(text)["nftables"]:
            if item.get("counter", {}).get("name") == name:
                return item["counter"]["packets"], item["counter"]["bytes"]
        raise Failure(f"no counter {name}")

    @contextlib.contextmanager
    def sunk(self, role, device):
        """What arrives at the device ends there, counted; yields a function that returns how many packets did."""
        self.lab[role].nft(f"""table netdev sink {{
            counter sunk {{ }}
            chain in {{ type filter hook ingress device "{device}" priority -500;
                meta protocol arp accept
                meta l4proto ipv6-icmp accept
                counter name sunk drop
            }}
        }}""")
        try:
            yield lambda: self.counter(role, "sink", "sunk")[0]
        finally:
            self.lab[role].run("nft", "delete", "table", "netdev", "sink")

    # ------------------------------------------------------------------ traffic

    @property
    def total(self):
        """Frames of a call of framegen()."""
        return self.options["frames"] * (self.options["rounds"] + 1)

    def frame(self, leaving):
        """As it arrives at the router or, but for TTL and MACs, as it leaves it."""
        role, _device, router_device = self.source
        outside = self.scenario.up == leaving
        return self.scenario.frame(mac(MACS[router_device]), mac(MACS[role]), self.sport, outside, L3_LENGTH)

    def framegen(self, frame, samples=None):
        """Nanoseconds per frame of each round; the first round is for warming up and left out."""
        role, device, _router_device = self.source
        options = ["-i", "-b", str(self.options["batch"]), "-r", str(self.options["rounds"] + 1)]
        if samples:
            options += ["-s", samples]
        done = self.lab[role].run(os.path.join(MEMORY, "framegen"), "send", *options, device,
                                  str(self.options["frames"]), frame.hex(), timeout=600)
        return [float(line.split()[0]) for line in done.stdout.splitlines()][1:]

    def profile(self, frame, per_packet):
        """The same again with samples taken, which costs: so it is not what is measured."""
        if not self.options["profile"]:
            return None
        path = os.path.join(self.lab.tmp, "samples")
        self.framegen(frame, path)
        return by_function(path, per_packet)

    def count(self, sunk, send, total, fast=None):
        """Runs send(); all `total` packets must arrive, by the slow path or not as `fast` says (None: no matter)."""
        before, slow_before = sunk(), self.forwarded()[0] if fast is not None else 0
        value = send()
        arrived = sunk() - before
        check(arrived == total, f"{arrived} of {total} packets arrived")
        if fast is not None:
            slow = self.forwarded()[0] - slow_before
            if fast:
                check(slow <= total * SLOW_SHARE, f"the forward chain saw {slow} of {total} packets: not fast")
            else:
                check(slow >= total, f"the forward chain saw only {slow} of {total} packets")
        return value

    def calibrate(self):
        """What is not the router's: generator, one reception, and the end. With the frame that comes to that end."""
        for leaving in (True, False):
            frame = self.frame(leaving)
            with self.sunk("router", self.source[2]) as sunk:
                least = min(self.count(sunk, lambda frame=frame: self.framegen(frame), self.total))
                self.calibration[leaving] = least, self.profile(frame, least)
        if not self.options["quick"]:
            with self.sunk("router", self.source[2]) as sunk:
                self.pktgen_calibration = self.count_pktgen(sunk)[1]
            say(f"  calibration of pktgen: {self.pktgen_calibration:.1f}")
        say("  calibration: {:.1f}, with the frame as it arrives {:.1f}".format(
            self.calibration[True][0], self.calibration[False][0]))

    def generate(self, row, fast):
        frame = self.frame(False)
        calibration, base = self.calibration[fast is not None]
        with self.sunk(*self.sink[:2]) as sunk:
            rounds = self.count(sunk, lambda: self.framegen(frame), self.total, fast)
            if self.options["profile"]:
                row["profile"], row["profile_calibration"] = self.profile(frame, min(rounds)), base
            if fast is not None and not self.options["quick"]:
                rate, spent = self.count_pktgen(sunk, fast)
                row.update(pktgen_kpps=rate / 1000, pktgen_insns=round(spent - self.pktgen_calibration),
                           pktgen_calibration=round(self.pktgen_calibration))
        row.update(insns=round(min(rounds) - calibration), raw=rounds, calibration=calibration, delivered=1.0)

    def stream(self):
        """What pktgen sends, and where. It makes no tunnel headers: what is to arrive in a tunnel is sent by the
        server, and the remote router's own tunnel device wraps it; the calibration has that as well."""
        scenario = self.scenario
        if scenario.up:
            role, device, dst = "client", "eth0", "lan0"
        elif scenario.tunnel or scenario.pppoe:
            role, device, dst = "server", "eth0", "remote-lan0"
        else:
            role, device, dst = "remote", "wan0", "wan0"
        (src, sport), (dst_addr, dport) = scenario.ends(self.sport, not scenario.up)
        vlan = VLAN if scenario.vlan and role == "remote" else None
        return role, Stream(device, MACS[dst], src, sport, dst_addr, dport, 14 + L3_LENGTH, vlan)

    def pktgen(self):
        """Packets a second of each round."""
        role, stream = self.stream()
        return [send(self.lab[role], stream, self.options["frames"]) for _ in range(PKTGEN_ROUNDS)]

    def count_pktgen(self, sunk, fast=None):
        """(packets a second, the same as instructions per packet) of the best round."""
        rate = max(self.count(sunk, self.pktgen, self.options["frames"] * PKTGEN_ROUNDS, fast))
        return rate, 1e9 / rate

    def tcp(self, row, fast):
        """iperf3: packets as large as the hosts make them. The first second is left out."""
        direction = [] if self.scenario.up else ["-R"]
        before = self.forwarded()[1]
        done = self.lab["client"].run("iperf3", "-c", self.scenario.ip.server, "-t", "1", "-O", "1", "-J", *direction,
                                      timeout=600)
        end = json.loads(done.stdout)["end"]
        slow = self.forwarded()[1] - before
        # The second left out counts as well, so this is a lower bound of what could have been slow.
        total = end["sum_received"]["bytes"]
        if fast:
            check(slow <= total * 0.2, f"TCP: the forward chain saw {slow} bytes, {total} arrived in a second")
        row["tcp_mbps"] = round(end["sum_received"]["bits_per_second"] / 1e6)

    # ------------------------------------------------------------------ paths

    def ready(self, path):
        if path.hook:
            return self.lab.live(proto="udp", sport=self.sport)
        entries = self.lab["router"].run("conntrack", "-L", "-f", f"ipv{self.scenario.ip.version}", "-p", "udp",
                                         "--sport", str(self.sport), ok=False).stdout
        return ("[OFFLOAD]" if path.fast(self.scenario) else "[ASSURED]") in entries

    def attach(self, hook):
        if hook == "xdp":
            # A veth finishes no checksum on the way of a redirected frame, and a tag is not in the frame.
            for role, device in (("client", "eth0"), ("remote", "wan0")):
                self.lab[role].run("ethtool", "-K", device, "tx", "off", "txvlan", "off")
        self.lab.start()
        force = ["--force"] if hook == "xdp" else []
        done = self.lab.ftctl("attach", "lan0", "wan0", "--mode", hook, *force)
        check_equal([device["hook"] for device in done["devices"]], [hook, hook], "hooks of lan0 and wan0")

    def measure(self, path):
        row = {"scenario": self.scenario.name, "path": path.name, "insns": None, "batch": self.options["batch"]}
        self.sport += 1
        try:
            if path.bare:
                self.measure_bare(row)
            else:
                self.measure_routed(path, row)
        except (Failure, subprocess.TimeoutExpired) as error:
            row["failed"] = str(error)
            if path.hook:
                self.lab.explain_failure()
        return row

    def measure_routed(self, path, row):
        rules(self.lab, self.scenario, path.flowtable)
        if path.hook:
            self.attach(path.hook)
        try:
            ip = self.scenario.ip
            flow = UdpFlow(self.lab["client"], (ip.client, self.sport), (ip.server, PORT)).start(20)
            wait_until(lambda: self.ready(path), PATIENCE, f"the flow is ready for {path.name}", 0.3)
            check(flow.answered() > 0, "no datagram was answered")
            flow.stop()
            fast = path.fast(self.scenario)
            self.generate(row, fast)
            if not self.options["quick"]:
                self.tcp(row, fast)
        finally:
            if path.hook and self.lab.alive():
                self.lab.detach()
                self.lab.stop()

    def measure_bare(self, row):
        """Frames as they are from one device to the other: what no program can go below."""
        for hook in ("xdp", "tc"):
            process = self.lab["router"].spawn(os.path.join(MEMORY, "framegen"), "redirect", self.source[2],
                                               self.sink[2], hook, log=f"redirect-{hook}.log")
            wait_until(lambda log=process.log: "ready" in read(log), PATIENCE, f"redirect at {hook}")
            try:
                measured = {}
                self.generate(measured, None)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(10)
            if hook == "xdp":
                row.update(measured)
            else:
                row["tc_insns"] = measured["insns"]

    def run(self):
        with self.lab as lab:
            build(lab, self.scenario)
            ip = self.scenario.ip
            self.calibrate()
            UdpPeer(lab["server"], ip.server, PORT)
            if not self.options["quick"]:
                server = lab["server"].spawn("iperf3", "-s", "-B", ip.server, "-p", str(IPERF_PORT))
                table = "tcp" if ip.version == 4 else "tcp6"
                wait_until(lambda: f":{IPERF_PORT:04X} " in read(f"/proc/{server.pid}/net/{table}"), PATIENCE,
                           "iperf3 listens")
            for path in PATHS:
                if path.name in self.options["paths"]:
                    row = self.measure(path)
                    print(json.dumps(row), flush=True)
                    say(f"  {path.name}: {row.get('failed') or row['insns']}")


def main():
    scenario, options = SCENARIOS[sys.argv[1]], json.loads(sys.argv[2])
    prime()
    # Sampling is throttled by what an interrupt costs, and here everything is slow.
    for name, value in (("perf_event_max_sample_rate", "200000"), ("perf_cpu_time_max_percent", "0")):
        with open(f"/proc/sys/kernel/{name}", "w", encoding="ascii") as file:
            file.write(value)
    load(MODULES + ([TUNNELS[scenario.tunnel].module] if scenario.tunnel else []))
    Bench(scenario, options).run()


main()
