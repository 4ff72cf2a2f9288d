# SPDX-License-Identifier: GPL-2.0-only
"""The network of a scenario: lan -- lan0 R wan0 -- wan, where each path has a router R of its own, all at once.

So every path is measured in the same round, and only its router is at work then.
"""
import contextlib
import dataclasses
import functools
import os
import shutil
import signal
import subprocess
import time
import typing

import filters
import sessions
from cases import ADDRESSES, MACS, PATHS, Cell, match_of
from lab import BIN, Failure, Lab, check, check_equal, wait_until
from machine import global_sysctl
from shapes import SESSION, TUNNELS, VLAN

FRAMEGEN = os.environ.get("FTCTL_FRAMEGEN") or os.path.join(BIN, "test", "framegen")
CPU = 0
SLOW_TUNNEL_RATE = 8000  # packets a second that a tunnel in user space is given
ADMISSION_S = 120
READING_S = 240
ASSURED_S = 2.2  # conntrack calls a UDP connection assured when it is older than two seconds


class Sent(typing.NamedTuple):
    """A round of framegen: nanoseconds a frame of the whole, in the loop, of the loop's calm slices; their share; how
    long the shortest pause took; frames sent and arrived; with -F flushes, frames that these sent, and dropped."""
    whole: float
    loop: float
    calm: float
    share: float
    pause: int
    frames: int
    arrived: int
    flushes: int = 0
    flushed: int = 0
    dropped: int = 0


class Router:
    """The router of one scenario and path, and how frames get through it."""

    def __init__(self, rig, case, path, number):
        self.rig, self.path, self.number = rig, path, number
        self.case = case.path_case(path)
        self.role = rig.role(case, path)
        self.process = self.unload = None
        if case.tunnel and not path.hook and not path.bare and not rig.kernel_tunnel:
            self.case = dataclasses.replace(self.case, tunnel="")

    @property
    def netns(self):
        return self.rig.lab[self.role]

    @property
    def fast(self):
        """Its stack is to see no packets but the trickle."""
        return bool(self.path.hook) and not self.case.miss

    # ------------------------------------------------------------------ making it

    def build(self):
        lab, number = self.rig.lab, self.number
        lab.veth("lan", f"lan{number}", self.role, "lan0", f"address {MACS['lan']}", f"address {MACS['lan0']}")
        lab.veth("wan", f"wan{number}", self.role, "wan0", f"address {MACS['wan']}", f"address {MACS['wan0']}")
        for role, device in (("lan", f"lan{number}"), ("wan", f"wan{number}"), (self.role, "lan0"),
                             (self.role, "wan0")):
            # NAPI, without which a veth takes no XDP frames. The MTU: tunnels' headers come on top of 1500 bytes.
            lab[role].run("ip", "link", "set", device, "mtu", "1600")
            lab[role].run("ethtool", "-K", device, "gro", "on")
        if self.path.bare and self.path.name != "xdp-forward":
            return
        self.netns.sysctl(net_ipv4_ip_forward=1)
        self.wan()
        for ip in {ip.version: ip for ip in (self.case.ip, self.case.outer)}.values():
            self.addresses(ip)
        self.rules()
        if self.path.hook:
            self.start()
        if self.case.tunnel:
            self.tunnel()
        else:
            ip = self.case.ip
            self.netns.ip(f"route add {ip.server_net} via {ip.wan_far} dev {self.case.wan}")

    def wan(self):
        """What lies on top of wan0."""
        if self.case.vlan:
            # Else the tag would stay beside the frame up to the end, which looks at frames.
            self.netns.run("ethtool", "-K", "wan0", "txvlan", "off")
            self.netns.ip(f"link add link wan0 name {self.case.wan} type vlan id {VLAN}\nlink set {self.case.wan} up")
        if self.case.pppoe:
            sessions.join(self.rig.lab, ((self.role, "wan0", "10.64.0.1", 0),
                                         ("wan", f"wan{self.number}", "10.64.0.2", self.number)), SESSION)

    def addresses(self, ip):
        nodad = " nodad" if ip.version == 6 else ""
        prefix, first = ip.client[:-1], int(ip.client[-1])  # 192.0.2.2, 2001:db8:1::2
        form = "d" if ip.version == 4 else "x"
        lines = [f"addr add {ip.lan_router}/{ip.bits} dev lan0{nodad}",
                 f"addr add {ip.wan_near}/{ip.bits} dev {self.case.wan}{nodad}"]
        if not self.case.pppoe:
            lines.append(f"neigh add {ip.wan_far} lladdr {MACS['wan']} nud permanent dev {self.case.wan}")
        lines += [f"neigh add {prefix}{first + i:{form}} lladdr {MACS['lan']} nud permanent dev lan0"
                  for i in range(ADDRESSES)]
        self.netns.ip("\n".join(lines))
        if ip.version == 6:
            self.netns.sysctl_set("net/ipv6/conf/all/forwarding", 1)

    def rules(self):
        if not self.path.conntrack:
            return
        if not self.path.hook and self.case.prefixes:
            self.netns.nft(filters.nft_prefixes("lan0", self.case.prefixes))
        if not self.path.hook and self.case.reverse:
            self.netns.nft(filters.nft_reverse_path("lan0"))
        nat = ""
        if self.case.masquerade:
            nat = f"""chain post {{ type nat hook postrouting priority srcnat;
                oifname "{self.case.translating}" masquerade; }}"""
        self.netns.nft(f"""table inet bench {{
            chain forward {{ type filter hook forward priority 0; policy drop;
                ct state established,related accept
                ct state new accept
            }}
            {nat}
        }}""")
        for name in ("udp_timeout", "udp_timeout_stream"):  # rows wait for each other
            self.netns.sysctl_set(f"net/netfilter/nf_conntrack_{name}", 36000)

    def tunnel(self):
        case, outer = self.case, self.case.outer
        nodad = " nodad" if case.ip.version == 6 else ""
        ends = f"local {outer.wan_near} remote {outer.wan_far}"
        if self.rig.kernel_tunnel:
            self.netns.ip(f"link add tun0 {TUNNELS[case.tunnel].link} {ends}")
        else:
            limit = ["encaplimit", "none"] if outer.version == 6 else []
            self.lab.ftctl("tunnel", "add", "tun0", "mode", case.tunnel, *ends.split(), *limit)
        self.netns.ip(f"""addr add {case.ip.tun_near} peer {case.ip.tun_far} dev tun0{nodad}
            link set tun0 mtu 1500 up
            route add {case.ip.server_net} dev tun0""")

    # ------------------------------------------------------------------ what runs there

    @property
    def lab(self):
        """The laboratory, turned to this router's daemon."""
        return self.rig.lab.at(self.role)

    def start(self):
        self.lab.start({"limits": {"flows": max(262144, self.rig.most)}})
        pid, cpus = self.lab.daemon.pid, os.sched_getaffinity(0) - {CPU}
        if cpus:  # like the packets, it gets a processor
            os.sched_setaffinity(pid, cpus)
        self.attach()
        if self.case.prefixes:
            filters.load(self.lab, self.case.prefixes)
        if self.case.reverse:
            self.lab.ftctl("rpf", "lan0", "strict")

    def attach(self):
        force = ["--force"] if self.path.hook == "xdp" else []
        done = self.lab.ftctl("attach", "lan0", "wan0", "--mode", self.path.hook, *force)
        check_equal([device["hook"] for device in done["devices"]], [self.path.hook] * 2, "hooks of lan0 and wan0")

    @contextlib.contextmanager
    def turn(self):
        """It is measured now, and no other one."""
        yield

    def begin(self):
        """Programs of others. Returns why there is no such row, or None."""
        if self.path.name == "redirect":
            self.process = self.netns.spawn(FRAMEGEN, "redirect", *(("lan0", "wan0") if self.case.up else
                                                                    ("wan0", "lan0")), log="redirect.log")
            wait_until(lambda: "ready" in _read(self.process.log), 20, "framegen redirect")
        elif self.path.name == "xdp-forward":
            program, why = xdp_forward(self.rig.fetch)
            if not program:
                return why
            done = self.netns.run(program, "load", "-m", "native", "-f", "fib", "lan0", "wan0", ok=False)
            if done.returncode != 0:
                return f"xdp-forward: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]}"
            self.unload = [program, "unload", "lan0", "wan0"]
        return None

    def end(self):
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(10)
        if self.unload:
            self.netns.run(*self.unload, ok=False)

    # ------------------------------------------------------------------ frames

    def forwarded(self):
        """Packets that the router's stack has forwarded."""
        with self.netns.entered():
            four, six = _read("/proc/thread-self/net/snmp"), _read("/proc/thread-self/net/snmp6")
        names, values = (line.split() for line in four.splitlines() if line.startswith("Ip:"))
        total = int(values[names.index("ForwDatagrams")])
        return total + sum(int(line.split()[1]) for line in six.splitlines() if line.startswith("Ip6OutForwDatagrams"))

    def reads(self):
        """How often the daemon has read conntrack; once it has done so, when it is at it. None without a daemon."""
        if not self.path.hook:
            return None

        def idle():
            status = self.lab.ask("status")["data"]
            return status["fast_path"] == "on" and status["conntrack"]
        return wait_until(idle, READING_S, f"{self.role}: the fast path is on")["resyncs"]

    def send(self, cell, up, count, *options, case=None):
        """Runs framegen; its rounds as Sent."""
        case = (case or self.case).toward(up)
        frame = case.build(True, cell.size)
        source, sink = ("lan", "wan") if up else ("wan", "lan")
        end = f"{self.rig.lab[sink].name}:{sink}{self.number}"
        leaving = frame if self.path.bare else case.build(False, cell.size)
        if self.path.name == "drop":
            end = f"{self.netns.name}:{source}0"
        argv = ["-c", str(CPU), "-f", str(cell.flows), "-t", "8" if cell.order == "train8" else "1",
                "-S", f"{end}:{match_of(leaving)}", *options]
        for field in case.fields(True):
            argv += ["-v", field]
        done = self.rig.lab[source].run(FRAMEGEN, "send", *argv, f"{source}{self.number}", str(count), frame.hex(),
                                        timeout=300)
        rounds = map(str.split, done.stdout.splitlines())
        return [Sent(*map(float, words[:4]), *map(int, words[4:])) for words in rounds]

    def first(self, cell):
        """One packet of each flow, and of its answers: conntrack makes the connections."""
        if self.path.conntrack:
            for up in (True,) if self.case.miss else (not self.case.inward, self.case.inward):
                self.sweep(cell, up)

    def filters_drop(self):
        """Frames that a filter is to drop do not arrive; without one they do."""
        case = dataclasses.replace(self.case, ip=dataclasses.replace(self.case.ip, client=filters.BLOCKED))
        [sent] = self.send(Cell(1), True, 64, case=case)
        check_equal(sent.arrived, 0 if self.case.filtered else sent.frames,
                    f"{self.role}: frames from {filters.BLOCKED}, arrived")

    @property
    def slow_tunnel(self):
        return self.path.hook and self.case.tunnel and not self.rig.kernel_tunnel

    def sweep(self, cell, up, *options):
        """A packet of each flow; no more at a time than the way of slow ones has room for."""
        pace = ["-p", str(SLOW_TUNNEL_RATE)] if self.slow_tunnel else []
        self.send(cell, up, cell.flows, *options, *pace)

    def settle(self, cell):
        """Goes on until the connections are what they stay."""
        if self.case.miss or not self.path.conntrack:
            return
        limit = ADMISSION_S + cell.flows // 5000
        end = time.monotonic() + limit
        while True:
            self.sweep(cell, not self.case.up)
            self.sweep(cell, self.case.up)
            before = self.forwarded()  # from here on no trickle is due
            self.sweep(cell, self.case.up)
            slow = self.forwarded() - before
            if not self.path.hook or slow <= cell.flows // 100:
                return
            if time.monotonic() > end:
                self.rig.lab.at(self.role)  # whose state the report is to show
                raise Failure(f"{self.role}: after {limit} s {slow} of {cell.flows} flows are still slow")
            time.sleep(0.3)
            self.catch_up(cell.flows)

    def catch_up(self, flows):
        """Until the daemon knows so many connections, or learns of no more: packets meanwhile would be more events."""
        before, known = -1, 0
        while before < known < flows:
            self.reads()
            time.sleep(0.5)
            counts = self.lab.ask("status")["data"]["flows"]
            known, before = counts["live"] + counts["pending"], known


class Detached(Router):
    """The router of another path, whose ftctl is attached to nothing while this one is measured. So one and the same
    memory and connections are measured with ftctl and without: two routers differ by more than a miss costs."""

    def __init__(self, attached, path):
        super().__init__(attached.rig, attached.case, path, attached.number)
        self.attached, self.role = attached, attached.role

    def build(self):
        pass

    @contextlib.contextmanager
    def turn(self):
        self.lab.ftctl("detach", "lan0", "wan0")
        try:
            yield
        finally:
            self.attached.attach()


@functools.cache
def xdp_forward(fetch):
    """The program, or None and why there is none."""
    installed = shutil.which("xdp-forward")
    if installed:
        return installed, None
    done = subprocess.run([os.path.join(os.path.dirname(os.path.abspath(__file__)), "xdp-tools.sh"),
                           *([] if fetch else ["--cached"])], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None, f"xdp-forward: {done.stderr.strip()}"


def _read(path):
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


class Bench(Lab):
    """Tells little when something fails: a million flows, listed, would be gigabytes."""

    def explain_failure(self):
        for role in self.daemons:
            print(f"---- {role}: ftctl status\n{self.at(role).ftctl_raw('status').stdout}{self.log_tail(5)}")


class Rig:
    """`with Rig([(case, path name), ...], most flows) as rig`: rig.routers, and rig.left_out: {path: why it has none}.
    The cases differ in what routers do, not in frames and addresses. fetch: programs of others that are not here."""

    def __init__(self, pairs, most, fetch=True):
        self.case, self.most, self.fetch, self.left_out = pairs[0][0], most, fetch, {}
        self.alone = all(case == self.case for case, _name in pairs)
        pairs = [(case, PATHS[name]) for case, name in pairs]
        own = [(case, path) for case, path in pairs if not path.of]
        roles = [self.role(case, path) for case, path in own]
        six = 6 in (self.case.ip.version, self.case.outer.version)
        self.lab = Bench("lan", "wan", *roles, router=roles[0], ipv6=tuple(roles) if six else False)
        self.kernel_tunnel = self.case.tunnel and self.has_tunnel()
        routers = {pair: Router(self, *pair, number) for number, pair in enumerate(own)}
        self.routers = [Detached(routers[case, PATHS[path.of]], path) if path.of else routers[case, path]
                        for case, path in pairs]

    def role(self, case, path):
        return path.name if self.alone else f"{case.name}-{path.name}"

    def has_tunnel(self):
        outer = self.case.outer
        made = self.lab["lan"].run("ip", "link", "add", "probe0", *TUNNELS[self.case.tunnel].link.split(), "local",
                                   outer.wan_near, "remote", outer.wan_far, ok=False)
        if made.returncode == 0:
            self.lab["lan"].ip("link del probe0")
        return made.returncode == 0

    def __enter__(self):
        self.lab.__enter__()
        try:
            for router in self.routers:
                router.build()
                why = router.begin()
                if why:
                    self.left_out[router.path.name] = why
            self.routers = [router for router in self.routers if router.path.name not in self.left_out]
        except BaseException:
            self.lab.close()
            raise
        return self

    def __exit__(self, *error):
        for router in self.routers:
            router.end()
        self.lab.__exit__(*error)

    def size(self, flows):
        """Room in conntrack for so many connections of each router; all of them share its table."""
        buckets = max(65536, flows * sum(router.path.conntrack for router in self.routers))
        if global_sysctl("nf_conntrack_buckets") < buckets:
            global_sysctl("nf_conntrack_buckets", buckets)
        if global_sysctl("nf_conntrack_max") < 2 * buckets:
            global_sysctl("nf_conntrack_max", 2 * buckets)

    def admit(self, cell):
        """The cell's flows are there, on every path."""
        self.size(cell.flows)
        for router in self.routers:
            router.first(cell)
        time.sleep(ASSURED_S)
        for router in self.routers:
            router.settle(cell)
            if router.case.miss:
                router.filters_drop()
            if router.path.conntrack:
                with router.netns.entered():
                    count = global_sysctl("nf_conntrack_count")
                check(count >= cell.flows, f"{router.role}: {count} connections tracked, want {cell.flows}")
