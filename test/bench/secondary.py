# SPDX-License-Identifier: GPL-2.0-only
"""What test/bench/run.sh measures beside nanoseconds per packet: sockets through a router and to it, and how
connections come in. Each yields {"what", "path", "unit", "median", "min", "max"}."""
import contextlib
import glob
import json
import os
import signal
import statistics
import tempfile
import time

from cases import CASES, Cell
from lab import BIN, Failure, Lab, check, command, wait_until
from profiles import counts_of
from rig import ASSURED_S, FRAMEGEN, Rig

PORT = 5201
FAST_SHARE = 0.8  # of the packets that a device receives while a stream is measured
WINDOW_S, WINDOWS = 0.1, 20  # parts of a round
SAMPLED_S, SAMPLE_NS = 1.5, 20011  # of a stream, and how far apart framegen's samples are
UNIT = 65536  # bytes, of which a profile of a stream tells the nanoseconds
OFFERED = (60000, 200000)  # new connections a second
FIXTURE_ROUNDS = 25  # or more, of which the least counts: others have the core for minutes
STREAM_ROUNDS = 9  # or more: how fast a stream is depends on which processor the kernel wakes whom on


def calmest(rates):
    """Of a round's windows: only the best tenth of them were hardly disturbed by others on the same cores."""
    rates = sorted(rates)
    check(len(rates) >= WINDOWS / 2, f"{len(rates)} windows were measured only")
    return rates[len(rates) * 9 // 10]


def result(what, path, unit, values):
    return {"what": what, "path": path, "unit": unit, "median": round(statistics.median(values), 3),
            "min": round(min(values), 3), "max": round(max(values), 3)}


class Road:
    """L -- ra R rb -- W, as a path has it: socket buffers as hosts make them, all offloads on."""

    def __init__(self, stack, path):
        self.path, self.nat = path, path in ("kernel-ct-masq", "ftctl-tc")
        self.lab = lab = stack.enter_context(Lab("L", "R", "W"))
        lab.veth("L", "la", "R", "ra")
        lab.veth("W", "wa", "R", "rb")
        lab["L"].ip("addr add 192.0.2.2/24 dev la\nroute add default via 192.0.2.1")
        lab["W"].ip("addr add 198.51.100.2/24 dev wa\nroute add default via 198.51.100.1")
        lab["R"].ip("addr add 192.0.2.1/24 dev ra\naddr add 198.51.100.1/24 dev rb")
        lab["R"].sysctl(net_ipv4_ip_forward=1)
        if self.nat:
            lab["R"].nft("""table ip bench {
                chain forward { type filter hook forward priority 0; policy drop;
                    ct state established,related accept
                    ct state new accept
                }
                chain post { type nat hook postrouting priority srcnat; oifname "rb" masquerade; }
            }""")
        if path == "tracked":  # as a router has it that ftctl is of use to
            lab["R"].nft("""table ip bench {
                chain i { type filter hook input priority 0; ct state established accept; }
            }""")
        if path == "ftctl-tc":
            lab.attach("ra", "rb", mode="tc")
        elif path == "attached":
            lab.attach("ra", "rb")
        elif path == "ftctl rpf strict":
            lab.start()
            lab.ftctl("attach", "ra", "--mode", "tc", "--rpf", "strict", "--no-track")
        elif path.startswith("nft in "):
            hook, priority = path.split()[-1], {"prerouting": "raw", "input": "filter"}[path.split()[-1]]
            lab["R"].nft(f"""table inet back {{
                chain c {{ type filter hook {hook} priority {priority}; fib saddr . iif oif missing drop; }}
            }}""")

    def serve(self, role, address):
        server = self.lab[role].spawn("iperf3", "-s", "-B", address, "-p", str(PORT))
        wait_until(lambda: f":{PORT:04X} " in _read(f"/proc/{server.pid}/net/tcp"), 20, "iperf3 listens")

    @contextlib.contextmanager
    def fast(self):
        """ftctl carries what goes through the router meanwhile."""
        before = self.lab.stats("ra") if self.path == "ftctl-tc" else None
        yield
        if before:
            after = self.lab.stats("ra")
            seen, fast = (after[key] - before[key] for key in ("rx_packets", "fast_packets"))
            check(fast >= seen * FAST_SHARE, f"ftctl carried {fast} of {seen} packets only")

    def tcp(self, address):
        with self.fast():
            done = self.lab["L"].run("iperf3", "-c", address, "-p", str(PORT), "-t", str(WINDOWS * WINDOW_S), "-O", "1",
                                     "-i", str(WINDOW_S), "-J", timeout=60)
        intervals = [each["sum"] for each in json.loads(done.stdout)["intervals"]]
        return calmest(each["bits_per_second"] / 1e9 for each in intervals if not each["omitted"])

    def profile(self, address):
        """{function: nanoseconds of all processors per UNIT bytes} of a stream of TCP."""
        client = self.lab["L"].spawn("iperf3", "-c", address, "-p", str(PORT), "-t", "4", "-J", log="profiled.json")
        with tempfile.NamedTemporaryFile() as samples:
            time.sleep(1)  # it has found its rate
            command([FRAMEGEN, "sample", str(SAMPLED_S), samples.name])
            counts = counts_of(samples.name)
        check(client.wait(30) == 0, "the stream of the profile broke off")
        rate = json.loads(_read(client.log))["end"]["sum_sent"]["bits_per_second"]
        os.unlink(client.log)
        units = rate / 8 * SAMPLED_S / UNIT
        return {name: count * SAMPLE_NS / units for name, count in counts.items()}

    def received(self):
        """Datagrams that sockets of W have read."""
        with self.lab["W"].entered():
            names, values = (line.split() for line in _read("/proc/thread-self/net/snmp").splitlines()
                             if line.startswith("Udp:"))
        return int(values[names.index("InDatagrams")])

    def rate(self):
        """Million datagrams a second."""
        first, began = self.received(), time.monotonic()
        time.sleep(WINDOW_S)
        return (self.received() - first) / (time.monotonic() - began) / 1e6

    def udp(self, address):
        client = self.lab["L"].spawn("iperf3", "-c", address, "-p", str(PORT), "-t", "30", "-u", "-b", "0", "-l", "18")
        try:
            first = self.received()
            wait_until(lambda: self.received() > first + 1000, 20, "datagrams arrive")
            time.sleep(ASSURED_S + 1)  # and is admitted
            with self.fast():
                rates = [self.rate() for _window in range(WINDOWS)]
        finally:
            client.send_signal(signal.SIGINT)
            client.wait(10)
        return calmest(rates)


def profiled(what, roads, address, rounds):
    """Entries of the environment's profiles: medians of as many streams, in turn."""
    values = {road: [] for road in roads}
    for _round in range(rounds):
        for road in roads:
            values[road].append(road.profile(address))
    names = {name for each in values.values() for one in each for name in one}
    return [{"of": f"{what}, nanoseconds of all processors per {UNIT // 1024} KiB", "path": road.path,
             "least": 60, "ns": {name: round(statistics.median(one.get(name, 0) for one in each)) for name in names}}
            for road, each in values.items()]


def rounds_of(what, unit, paths, server, address, kind, rounds, profiles):
    """All paths at once, measured in turn."""
    rounds = max(rounds, STREAM_ROUNDS)
    with contextlib.ExitStack() as stack:
        roads = [Road(stack, path) for path in paths]
        for road in roads:
            road.serve(server, address)
        values = {road.path: [] for road in roads}
        for _round in range(rounds):
            for road in roads:
                values[road.path].append(getattr(road, kind)(address))
        if profiles is not None and kind == "tcp":
            profiles += profiled(what, roads, address, rounds)
        return [result(what, path, unit, each) for path, each in values.items()]


def tcp(rounds, _flows, profiles):
    """TCP with segmentation offload, through the router."""
    paths = ("kernel", "kernel-ct-masq", "ftctl-tc")
    return rounds_of("tcp", "Gbit/s", paths, "W", "198.51.100.2", "tcp", rounds, profiles)


def udp(rounds, _flows, profiles):
    """UDP of 18 bytes from a socket to a socket, through the router."""
    paths = ("kernel", "kernel-ct-masq", "ftctl-tc")
    return rounds_of("udp", "Mpps", paths, "W", "198.51.100.2", "udp", rounds, profiles)


def local(rounds, _flows, profiles):
    """TCP that ends on the router: nothing there, connections tracked without ftctl, ftctl attached (auto; it has
    them tracked)."""
    return rounds_of("tcp-local", "Gbit/s", ("none", "tracked", "attached"), "R", "192.0.2.1", "tcp", rounds, profiles)


def local_rpf(rounds, _flows, profiles):
    """TCP that ends on the router: without a reverse path filter, with nft's in two places, with ftctl's at TC."""
    paths = ("none", "nft in prerouting", "nft in input", "ftctl rpf strict")
    return rounds_of("rpf-tcp", "Gbit/s", paths, "R", "192.0.2.1", "tcp", rounds, profiles)


def fixtures(rounds, _flows, _profiles):
    """The programs alone, by test runs of single packets, and in a loop of those that stay as they are."""
    program, values = os.path.join(BIN, "test", "bpf_tests"), {}
    check(os.access(program, os.X_OK), f"{program} is not built")
    os.environ["FTCTL_BENCH_ROUNDS"] = str(max(rounds, FIXTURE_ROUNDS))
    for line in command([program, "[bench]"]).stdout.splitlines():
        if line.startswith("fixture "):
            _word, name, how, ns = line.split()
            values.setdefault((name, how), []).append(float(ns))
    check(values, "bpf_tests has printed no figures")
    return [result(f"fixture {name}", how, "ns", each) for (name, how), each in values.items()]


def _read(path):
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def resident_mib(pid):
    return int(_read(f"/proc/{pid}/status").split("VmRSS:")[1].split()[0]) / 1024


def maps_mib(pid):
    """What the maps that the daemon has open are charged for, each once."""
    sizes = {}
    for path in glob.glob(f"/proc/{pid}/fdinfo/*"):
        with contextlib.suppress(OSError):
            words = dict(line.split(":", 1) for line in _read(path).splitlines() if ":" in line)
            if "map_id" in words:
                sizes[words["map_id"]] = int(words["memlock"])
    return sum(sizes.values()) / 2**20


def setup(_rounds, flows, _profiles):
    """Connections admitted a second, memory with all of them, and how long a conntrack resync takes then."""
    rows = []
    for offered in OFFERED:
        with Rig([(CASES["nat4"], "ftctl-xdp")], flows) as rig:
            rows += admissions(rig, flows, offered)
            if offered == OFFERED[-1]:
                rows += capacity(rig, flows)
    return rows


def admissions(rig, flows, offered):
    router, cell = rig.routers[0], Cell(flows)
    rig.size(2 * flows)

    def status():
        return rig.lab.ask("status")["data"]

    def known():
        counts = status()["flows"]
        return counts["live"] + counts["pending"] >= flows

    router.first(cell)
    time.sleep(ASSURED_S)
    overruns, began = status()["conntrack"]["overruns"], time.monotonic()
    router.send(cell, True, flows, "-p", str(offered))  # conntrack calls each of them assured now
    wait_until(known, 120, f"{flows} connections admitted", 0.05)
    rate = flows / (time.monotonic() - began)
    overruns = status()["conntrack"]["overruns"] - overruns
    return [result("admitted", f"{offered} a second offered", "1/s", [rate]),
            result("overruns", f"{offered} a second offered", "", [overruns])]


def capacity(rig, flows):
    router, pid = rig.routers[0], rig.lab.daemon.pid
    router.settle(Cell(flows))
    room = rig.lab.ask("status")["data"]["flows"]["max"]
    return [result("daemon's memory", f"{flows} connections", "MiB", [resident_mib(pid)]),
            result("maps", f"{flows} connections, room for {room}", "MiB", [maps_mib(pid)]),
            result("resync", f"{flows} connections", "s", [resync(rig, router, flows)])]


def resync(rig, router, flows):
    """Events of other connections overrun the daemon while it is stopped; until the fast path is on again."""
    before = rig.lab.ask("status")["data"]["conntrack"]["resyncs"]
    os.kill(rig.lab.daemon.pid, signal.SIGSTOP)
    try:
        router.send(Cell(2 * flows), True, 2 * flows)
    finally:
        os.kill(rig.lab.daemon.pid, signal.SIGCONT)
    began = time.monotonic()

    def again():
        status = rig.lab.ask("status")["data"]
        return status["conntrack"]["resyncs"] > before and status["fast_path"] == "on"

    try:
        wait_until(again, 60, "conntrack is read again", 0.02)
    except Failure as error:
        raise Failure(f"{error}; or the daemon was not overrun") from error
    return time.monotonic() - began


SECONDARY = {"fixtures": fixtures, "tcp": tcp, "udp": udp, "tcp-local": local, "rpf-tcp": local_rpf, "setup": setup}
