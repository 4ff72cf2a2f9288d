# SPDX-License-Identifier: GPL-2.0-only
"""Laboratories of network namespaces for the tests of ftctl.

A Lab makes namespaces with names of its own (ft-<pid>-R), runs programs in them, starts and
stops one ftctld, and takes everything away at the end, also after a failure or SIGTERM.
Python sockets are made inside a namespace by setns() of the calling thread.
"""
import contextlib
import ctypes
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("FTCTL_BIN_DIR", os.path.join(REPO, "build"))
NETNS_DIR = "/run/netns"
RUN_DIR = "/run/ftctl"
CLONE_NEWNET = 0x40000000
MS_BIND, MNT_DETACH = 0x1000, 2
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCGIFHWADDR, IFF_UP = 0x8913, 0x8914, 0x8927, 1
# One packet per flow and direction goes to the stack this often (the daemon's default).
TRICKLE_S = 10
# Bound for everything that must follow a change of the kernel's own view.
CONVERGE_S = 1.0

_libc = ctypes.CDLL(None, use_errno=True)


class Failure(AssertionError):
    """The product did something other than what the test says is right."""


class Skip(Exception):
    """This machine cannot run the test; the text says why."""


def check(condition, text):
    if not condition:
        raise Failure(text)


def check_equal(got, want, what):
    check(got == want, f"{what}: got {got!r}, want {want!r}")


def wait_until(condition, deadline, what, interval=0.05):
    """Polls until condition() is true and returns its value; Failure after `deadline` seconds."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"not within {deadline:g} s: {what}")
        time.sleep(interval)


def hold(condition, seconds, what, interval=0.1):
    """The opposite: condition() must stay true for that long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        check(condition(), f"did not hold: {what}")
        time.sleep(interval)


def command(argv, ok=True, text=None, timeout=180):
    result = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=timeout, check=False)
    if ok and result.returncode != 0:
        raise Failure(f"{' '.join(argv)}: exit {result.returncode}: {result.stderr.strip() or result.stdout.strip()}")
    return result


class Netns:
    """One network namespace."""

    def __init__(self, lab, role, ipv6=False):
        self.lab = lab
        self.role = role
        self.name = f"{lab.prefix}-{role}"
        self.path = os.path.join(NETNS_DIR, self.name)
        _make_netns(self.name)
        lab.namespaces.append(self)
        with self.entered():
            # IPv4 laboratories: no router solicitations and DAD between the frames that are compared.
            for key in ("all", "default"):
                _write(f"/proc/sys/net/ipv6/conf/{key}/disable_ipv6", str(int(not ipv6)))
                if ipv6:  # addresses are usable at once, and nobody asks for a router
                    for name in ("accept_dad", "dad_transmits", "accept_ra", "router_solicitations"):
                        _write(f"/proc/sys/net/ipv6/conf/{key}/{name}", "0")
                _write(f"/proc/sys/net/ipv4/conf/{key}/rp_filter", "0")
        self.up("lo")

    @contextlib.contextmanager
    def entered(self):
        """The calling thread is inside the namespace for the length of the block."""
        with open(f"/proc/self/task/{threading.get_native_id()}/ns/net", "rb") as here, \
             open(self.path, "rb") as there:
            _setns(there.fileno())
            try:
                yield self
            finally:
                _setns(here.fileno())

    def argv(self, *argv):
        return ["nsenter", f"--net={self.path}", *argv]

    def run(self, *argv, ok=True, text=None, timeout=180):
        with self.entered():  # a child begins in the namespace of the thread that makes it
            return command(list(argv), ok, text, timeout)

    def ip(self, line, ok=True):
        """ip(8), several commands separated by newlines."""
        lines = [part.strip() for part in line.strip().splitlines() if part.strip()]
        if len(lines) == 1:
            return self.run("ip", *lines[0].split(), ok=ok).stdout
        return self.run("ip", "-batch", "-", text="\n".join(lines) + "\n", ok=ok).stdout

    def ip_json(self, line):
        return json.loads(self.run("ip", "-j", "-d", *line.split()).stdout or "[]")

    def nft(self, text):
        # nft 1.0.6 wants a separator between closing braces.
        self.run("nft", "-f", "-", text=re.sub(r"\}[ \t]*(?=\})", "}\n", text))

    def sysctl(self, **values):
        """sysctl(net_ipv4_ip_forward=1); a device name goes in as it is."""
        for key, value in values.items():
            self.sysctl_set(key.replace("_", "/", 2), value)

    def sysctl_set(self, key, value):
        """sysctl_set("net/ipv4/conf/ra/rp_filter", 1)"""
        with self.entered():
            _write(f"/proc/sys/{key}", str(value))

    def sysctl_get(self, key):
        with self.entered(), open(f"/proc/sys/{key}", encoding="ascii") as file:
            return file.read().strip()

    def socket(self, family=socket.AF_INET, kind=socket.SOCK_DGRAM, proto=0):
        with self.entered():
            made = socket.socket(family, kind, proto)
        self.lab.resources.callback(made.close)
        return made

    def spawn(self, *argv, log=None):
        """A process in the background; killed with the Lab. Its output goes to a file."""
        path = os.path.join(self.lab.tmp, log or f"{os.path.basename(argv[0])}.{len(self.lab.processes)}.log")
        with open(path, "ab") as out:
            with self.entered():
                process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *argv],
                                           stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        process.log = path
        self.lab.processes.append(process)
        return process

    def thread(self, function, *args):
        """Runs function(*args) in a thread that lives in the namespace; returns a Task."""
        return Task(self, function, args)

    def ifindex(self, dev):
        with self.entered():
            return socket.if_nametoindex(dev)

    def mac(self, dev):
        return self._ioctl(SIOCGIFHWADDR, dev)[2:8].hex(":")

    def up(self, dev):
        flags = struct.unpack_from("H", self._ioctl(SIOCGIFFLAGS, dev))[0]
        self._ioctl(SIOCSIFFLAGS, dev, struct.pack("H", flags | IFF_UP))

    def _ioctl(self, request, dev, value=b""):
        with self.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            return fcntl.ioctl(made, request, struct.pack("16s24s", dev.encode(), value))[16:]


class Task:
    """A thread inside a namespace, with its result or exception."""

    def __init__(self, netns, function, args):
        self.value = None
        self.error = None

        def body():
            try:
                with netns.entered():
                    self.value = function(*args)
            except BaseException as error:  # handed to result()
                self.error = error

        self.thread = threading.Thread(target=body, daemon=True)
        self.thread.start()

    def done(self):
        return not self.thread.is_alive()

    def result(self, timeout=60):
        self.thread.join(timeout)
        check(self.done(), f"still not finished after {timeout} s")
        if self.error:
            raise self.error
        return self.value


class Lab:
    """`with Lab("L", "R", "W") as lab:`; lab["R"] is a Netns. ftctl and ftctld are those of `router`. ipv6: the
    namespaces have it (True), or some of them have (their roles)."""

    serial = 0

    def __init__(self, *roles, router="R", tag=None, ipv6=False):
        Lab.serial += 1
        self.prefix = f"ft-{os.getpid()}" + (f"x{Lab.serial}" if Lab.serial > 1 else "") + (f"-{tag}" if tag else "")
        self.router = router
        self.namespaces = []
        self.processes = []
        self.daemons = {}  # role -> process
        self.left_behind = []  # after close(): what the daemons should have taken away
        self.resources = contextlib.ExitStack()
        self.tmp = tempfile.mkdtemp(prefix="ftctl-test-")
        try:
            self.spaces = {role: Netns(self, role, ipv6 is True or (ipv6 is not False and role in ipv6))
                           for role in roles}
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is not None and not issubclass(kind, Skip):
                with contextlib.suppress(Exception):
                    self.explain_failure()
        finally:  # a signal may end the explanation
            self.close()

    def __getitem__(self, role):
        return self.spaces[role]

    @property
    def instance(self):
        return f"{self.prefix}-{self.router}"

    @property
    def daemon(self):
        return self.daemons.get(self.router)

    def at(self, role):
        """Turns to the ftctl of another router; each has a daemon of its own."""
        self.router = role
        return self

    def close(self):
        self.resources.close()
        for process in reversed(self.processes):
            _end(process)
        for netns in self.namespaces:
            _remove_netns(netns.name)
        self.namespaces = []
        self.left_behind = leftovers(self.prefix)
        for role in self.daemons:
            remove_instance(self.at(role).instance)
        shutil.rmtree(self.tmp, ignore_errors=True)

    def veth(self, role_a, dev_a, role_b, dev_b, extra_a="", extra_b=""):
        """A veth pair between two namespaces, both ends up. extra: "index 7", "address 02:...", """
        self[role_a].ip(f"link add {dev_a} {extra_a} type veth peer name {dev_b} {extra_b} netns {self[role_b].name}")
        self[role_a].up(dev_a)
        self[role_b].up(dev_b)

    # ------------------------------------------------------------------ ftctl

    def start(self, config=None, deadline=60):
        """Starts ftctld in the router's namespace and waits until it answers."""
        daemon = os.path.join(BIN, "ftctld")
        check(os.path.exists(daemon), f"{daemon} is not built")
        argv = [daemon, "-i", self.instance]
        if config is not None:
            path = os.path.join(self.tmp, f"{self.router}.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(config, file)
            argv += ["--config", path]
        self.daemons[self.router] = self[self.router].spawn(*argv, log=f"ftctld-{self.router}.log")
        wait_until(self._answers, deadline, "ftctld answers on its socket")

    def _answers(self):
        check(self.daemon.poll() is None, f"ftctld ended with {self.daemon.returncode}: {self.log_tail()}")
        with contextlib.suppress(OSError):
            return self.ask("status")["ok"]
        return False

    def ask(self, command_name, **arguments):
        """Puts a request to the daemon's socket: {"ok": true, "data": ...}, or {"ok": false, "error": ...}. Costs less
        than to start ftctl, which does the same."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(120)
            client.connect(os.path.join(RUN_DIR, self.instance + ".sock"))
            client.sendall(json.dumps({"cmd": command_name, **arguments}).encode() + b"\n")
            with client.makefile("rb") as answer:
                line = answer.readline()
        check(line.endswith(b"\n"), f"ftctld hung up on {command_name}")
        return json.loads(line)

    def alive(self):
        return self.daemon is not None and self.daemon.poll() is None

    def stop(self, how=signal.SIGTERM):
        self.daemon.send_signal(how)
        self.daemon.wait(10)

    def ftctl_raw(self, *args, as_json=False, timeout=120):
        argv = [os.path.join(BIN, "ftctl"), "-i", self.instance] + (["-j"] if as_json else [])
        return self[self.router].run(*argv, *args, ok=False, timeout=timeout)

    def ftctl(self, *args, ok=True):
        """Runs `ftctl -j ARGS`; returns what it printed, parsed."""
        result = self.ftctl_raw(*[str(arg) for arg in args], as_json=True)
        if ok and result.returncode != 0:
            raise Failure(f"ftctl {' '.join(map(str, args))}: exit {result.returncode}: {result.stderr.strip()}")
        try:
            return json.loads(result.stdout) if result.stdout.strip() else None
        except ValueError as error:
            raise Failure(f"ftctl -j {args[0]} printed no JSON: {error}: {result.stdout[:200]!r}") from error

    def attach(self, *devices, **options):
        """attach("ra", "rb", mode="tc"); starts the daemon when there is none."""
        if not self.alive():
            self.start()
        extra = [text for key, value in options.items() for text in (f"--{key}", value)]
        return self.ftctl("attach", *devices, *extra)

    def detach(self, *devices):
        return self.ftctl("detach", *(devices or ("--all",)))

    def flows(self, *words):
        return self.ftctl("flows", *words)

    def find(self, state=None, **match):
        """Flows whose packets arrive as given: find(proto="udp", dport=9)."""
        proto = match.pop("proto", None)
        words = ["state", state] if state else []
        return [flow for flow in self.flows(*words)
                if (proto is None or flow["l4proto"] == proto)
                and all((flow.get("orig") or {}).get("match", {}).get(key) == value for key, value in match.items())]

    def flow(self, **match):
        found = self.find(**match)
        check(len(found) <= 1, f"more than one flow matches {match}: {found}")
        return found[0] if found else None

    def live(self, **match):
        """The flow when both directions carry packets (their next hops are resolved), else None."""
        flow = self.flow(**match)
        sides = (flow["orig"], flow["reply"]) if flow else ()
        return flow if sides and all(side["live"] and side["dst_mac"] for side in sides) else None

    def wait_live(self, deadline=12, **match):
        return wait_until(lambda: self.live(**match), deadline, f"flow {match} live in both directions", 0.1)

    def refused(self, **match):
        """The reason why a connection is on the slow path, or None."""
        found = self.find(state="refused", **match)
        return found[0].get("reason") if found else None

    def wait_refused(self, reason, deadline=12, **match):
        return wait_until(lambda: (self.refused(**match) or "").startswith(reason), deadline,
                          f"{match} refused with reason {reason}", 0.1)

    def stats(self, dev=None):
        stats = self.ftctl("stats")
        if dev is None:
            return stats
        for device in stats["devices"]:
            if device["name"] == dev:
                return device
        raise Failure(f"ftctl stats does not list {dev}: {stats['devices']}")

    def reason(self, dev, name):
        return self.stats(dev)["reasons"].get(name, 0)

    # ------------------------------------------------- what the kernel's own path saw

    def watch(self, **rules):
        """Counters in the router's forward chain: watch(up="udp dport 9"). Also switches conntrack on."""
        names = "\n".join(f"counter {name} {{ }}" for name in rules)
        lines = "\n".join(f"{rule} counter name {name}" for name, rule in rules.items())
        self[self.router].nft(f"""table inet cnt {{
            {names}
            chain fw {{ type filter hook forward priority 10; ct state new counter
            {lines}
            }}
        }}""")

    def counts(self):
        """{name: (packets, bytes)} of watch()."""
        text = self[self.router].run("nft", "-j", "list", "counters", "table", "inet", "cnt").stdout
        return {item["counter"]["name"]: (item["counter"]["packets"], item["counter"]["bytes"])
                for item in json.loads(text)["nftables"] if "counter" in item}

    def count(self, name):
        return self.counts()[name][0]

    def conntrack(self, *args):
        """conntrack -L as a list of dicts: id, proto, state, timeout, assured, mark, orig, reply."""
        result = self[self.router].run("conntrack", "-L", "-o", "id,extended", *args, ok=False)
        return [entry for entry in map(parse_conntrack, result.stdout.splitlines()) if entry]

    def ct(self, proto, **orig):
        """The one entry whose original tuple matches, or None."""
        for entry in self.conntrack("-p", proto):
            if all(entry["orig"].get(key) == str(value) for key, value in orig.items()):
                return entry
        return None

    # -------------------------------------------------------------- diagnosis

    def log_tail(self, lines=25):
        path = os.path.join(self.tmp, f"ftctld-{self.router}.log")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:])

    def explain_failure(self):
        """What a person would look at next."""
        if self.daemon is None:
            return
        print("---- ftctld's log, last lines\n" + self.log_tail())
        if not self.alive():
            print(f"---- ftctld ended with {self.daemon.returncode}")
            return
        for args in (("status",), ("flows",), ("flows", "state", "refused"), ("stats",)):
            print(f"---- ftctl {' '.join(args)}\n" + self.ftctl_raw(*args).stdout[:4000])
        print("---- conntrack -L\n" + self[self.router].run("conntrack", "-L", ok=False).stdout[:2000])


def parse_conntrack(line):
    words = line.split()
    if len(words) < 5 or words[0] not in ("ipv4", "ipv6"):
        return None
    entry = {"proto": words[2], "timeout": None, "state": None, "assured": False, "id": None, "mark": 0,
             "unreplied": False, "orig": {}, "reply": {}}
    rest = words[4:]
    if rest and rest[0].isdigit():
        entry["timeout"] = int(rest.pop(0))
    for word in rest:
        key, equals, value = word.partition("=")
        if not equals:
            if word == "[ASSURED]":
                entry["assured"] = True
            elif word == "[UNREPLIED]":
                entry["unreplied"] = True
            elif word.isupper() and not word.startswith("["):
                entry["state"] = word
        elif key in ("src", "dst", "sport", "dport", "packets", "bytes"):
            side = entry["orig"] if key not in entry["orig"] else entry["reply"]
            side[key] = value
        elif key in ("id", "mark"):
            entry[key] = int(value)
    return entry


def remove_instance(instance):
    """What a killed daemon may leave: its pins and its socket."""
    shutil.rmtree(os.path.join(RUN_DIR, "bpf", "ftctl", instance), ignore_errors=True)
    for suffix in (".sock", ".lock", ".pid", ".state"):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(RUN_DIR, instance + suffix))


def sweep():
    """Takes away what runs that were killed without mercy left behind."""
    names = os.listdir(NETNS_DIR) if os.path.isdir(NETNS_DIR) else []
    pins = os.path.join(RUN_DIR, "bpf", "ftctl")
    instances = os.listdir(pins) if os.path.isdir(pins) else []
    for name in names + instances:
        pid = name.split("-")[1].split("x")[0] if name.startswith("ft-") and name.count("-") >= 1 else ""
        if not pid.isdigit() or os.path.exists(f"/proc/{pid}"):
            continue
        if name in names:
            _remove_netns(name)
        else:
            remove_instance(name)


def leftovers(lab_prefix):
    """Names of namespaces, pins and sockets that carry the prefix."""
    found = []
    for directory in (NETNS_DIR, os.path.join(RUN_DIR, "bpf", "ftctl"), RUN_DIR):
        if os.path.isdir(directory):
            found += [os.path.join(directory, name) for name in os.listdir(directory)
                      if name == lab_prefix or name.startswith((lab_prefix + "-", lab_prefix + "."))]
    return found


def exit_on_signals(seconds=None):
    """SIGTERM, SIGINT and the alarm become exceptions, so that every `with` and `finally` runs."""
    def handler(number, _frame):
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(f"ended by {signal.Signals(number).name}")

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(each, handler)
    if seconds:
        signal.alarm(seconds)


def _setns(fd):
    if _libc.setns(fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _make_netns(name):
    """As `ip netns add`, which is asked only for the first one: it also mounts the directory."""
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
        mounted = any(line.split()[1] == NETNS_DIR for line in mounts)
    if not mounted:
        command(["ip", "netns", "add", name])
        return
    path = os.path.join(NETNS_DIR, name)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDONLY, 0))
    failed = []

    def body():  # in a thread, which ends there
        own = f"/proc/self/task/{threading.get_native_id()}/ns/net"
        if _libc.unshare(CLONE_NEWNET) != 0 or _libc.mount(own.encode(), path.encode(), b"none", MS_BIND, None) != 0:
            failed.append(OSError(ctypes.get_errno(), f"network namespace {name}"))

    maker = threading.Thread(target=body)
    maker.start()
    maker.join()
    if failed:
        os.unlink(path)
        raise failed[0]


def _remove_netns(name):
    path = os.path.join(NETNS_DIR, name)
    _libc.umount2(path.encode(), MNT_DETACH)
    with contextlib.suppress(OSError):
        os.unlink(path)


def _write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _end(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)
