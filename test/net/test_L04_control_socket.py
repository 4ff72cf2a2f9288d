# SPDX-License-Identifier: GPL-2.0-only
"""L04: garbage on the control socket never ends the daemon nor stops it from answering others."""
import json
import os
import random
import socket
import stat

from lab import RUN_DIR, check, wait_until
from labs import lab_a
from traffic import check_fast, fast_udp


def talk(path, data, close_at_once=False):
    """Sends bytes; returns what came back until the other side closed or half a second passed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(0.5)
        client.connect(path)
        try:
            client.sendall(data)
        except OSError:
            pass
        if close_at_once:
            return b""
        answer = b""
        try:
            while part := client.recv(65536):
                answer += part
                if answer.endswith(b"\n"):
                    break
        except OSError:
            pass
        return answer


def run():
    with lab_a() as lab:
        lab.attach("ra", "rb")
        flow, _peer = fast_udp(lab)
        path = os.path.join(RUN_DIR, lab.instance + ".sock")
        mode = stat.S_IMODE(os.stat(path).st_mode)
        check(mode & 0o007 == 0, f"everybody may use the control socket: mode {mode:o}")
        chance = random.Random(4)
        check(json.loads(talk(path, b'{"cmd": "status"}\n'))["ok"], "a good request")

        nested = b'{"cmd": ' + b"[" * 20000 + b"]" * 20000 + b"}\n"
        shapes = [b"", b"\n", b"\0\n", b"{}\n", b"[]\n", b"null\n", b'"cmd"\n', b'{"cmd": 7}\n',
                  b'{"cmd": "nonesuch"}\n', b'{"cmd": "flows", "filter": 7}\n',
                  b'{"cmd": "flows", "filter": {"proto": {}}}\n', b'{"cmd": "flows", "filter": {"sport": -1}}\n',
                  b'{"cmd": "flows", "filter": {"src": "1.2.3.4/99"}}\n', b'{"cmd": "attach"}\n',
                  b'{"cmd": "attach", "devices": "ra"}\n', b'{"cmd": "attach", "devices": [1]}\n',
                  b'{"cmd": "attach", "devices": ["' + b"x" * 5000 + b'"]}\n',
                  b'{"cmd": "tunnel_add", "name": "../../x", "mode": "ipip", "local": "a", "remote": 1}\n',
                  b'{"cmd": "tunnel_add"}\n', b'{"cmd": "explain", "proto": "tcp", "src": [], "sport": 1e99}\n',
                  b'{"cmd": "status", "x": "\xff\xfe"}\n', nested, b'{"cmd": "status"', b"{" * 70000 + b"\n",
                  b"A" * 1_000_000, b"A" * 65535 + b"\n", b"A" * 65536 + b"\n", b"A" * 65537 + b"\n"]
        for shape in shapes:
            answer = talk(path, shape)
            if shape.endswith(b"\n") and len(shape) < 60000 and shape.strip():
                check(answer, f"no answer to {shape[:60]!r}")
                check("ok" in json.loads(answer), f"answer to {shape[:60]!r}: {answer[:200]!r}")
        check(not json.loads(talk(path, b'{"cmd": "nonesuch"}\n'))["ok"], "an unknown command was accepted")
        for _round in range(200):
            talk(path, chance.randbytes(chance.randrange(1, 3000)), close_at_once=chance.random() < 0.7)
        check(lab.alive(), f"the daemon ended with {lab.daemon.returncode}")

        # Many that say nothing, and one that never reads its answers, do not keep others out.
        idle = []
        for _number in range(200):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.settimeout(0.2)
            try:
                client.connect(path)
            except OSError:
                client.close()
                break
            idle.append(client)
        for client in idle[:3]:
            try:
                client.sendall(b'{"cmd": "stats"}\n' * 3000)
            except OSError:
                pass
        for client in idle[3:]:
            client.close()
        wait_until(lambda: lab.ftctl_raw("status").returncode == 0, 3, "the daemon answers a new client")
        for client in idle[:3]:
            client.close()
        lab.wait_live(**{"proto": "udp", "sport": 40000, "dport": 9})
        check_fast(lab, flow)
