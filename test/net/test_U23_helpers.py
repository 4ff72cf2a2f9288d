# SPDX-License-Identifier: GPL-2.0-only
"""U23: connections that a conntrack helper reads (FTP, SIP) stay with it; their data connections may be fast."""
import contextlib
import ftplib
import io
import socket
import threading
import time

from lab import Failure, Skip, check, check_equal, wait_until
from labs import RB_ADDR, W_ADDR, lab_a
from traffic import TcpServer, random_bytes

HELPERS = """table ip h {
    ct helper f { type "ftp" protocol tcp; }
    ct helper s { type "sip" protocol udp; }
    chain p { type filter hook prerouting priority 0
        tcp dport 21 ct helper set "f"
        udp dport 5060 ct helper set "s"
    }
}"""
FILE = random_bytes(1_000_000)


class FtpServer:
    """As much of RFC 959 as the test needs."""

    def __init__(self, netns):
        self.netns = netns
        self.ports = []  # PORT commands as they arrived
        TcpServer(netns, W_ADDR, 21, self.serve)

    def serve(self, connection, _address):
        def say(text):
            connection.sendall(text.encode() + b"\r\n")

        say("220 ready")
        active = listener = None
        for line in connection.makefile("r", encoding="ascii", newline="\r\n"):
            verb, _space, rest = line.strip().partition(" ")
            if verb == "USER":
                say("331 password")
            elif verb == "PORT":
                self.ports.append(rest)
                numbers = [int(part) for part in rest.split(",")]
                active = (".".join(map(str, numbers[:4])), numbers[4] * 256 + numbers[5])
                say("200 ok")
            elif verb == "PASV":
                listener = self.netns.socket(kind=socket.SOCK_STREAM)
                listener.bind((W_ADDR, 0))
                listener.listen(1)
                port = listener.getsockname()[1]
                say(f"227 Entering Passive Mode ({W_ADDR.replace('.', ',')},{port >> 8},{port & 255})")
            elif verb == "RETR":
                say("150 here it comes")
                if active:
                    data = self.netns.socket(kind=socket.SOCK_STREAM)
                    data.settimeout(5)
                    data.connect(active)
                else:
                    data = listener.accept()[0]
                with data:
                    data.sendall(FILE)
                active = None
                say("226 done")
            elif verb == "QUIT":
                say("221 bye")
                return
            else:
                say("200 ok" if verb in ("TYPE", "NOOP") else "230 in")


def client(passive, files, watch):
    with contextlib.closing(ftplib.FTP(timeout=10)) as ftp:
        ftp.connect(W_ADDR, 21, source_address=("192.0.2.2", 0))
        ftp.login("x", "y")
        ftp.set_pasv(passive)
        for _number in range(files):
            out = io.BytesIO()
            ftp.retrbinary("RETR file", out.write)
            check(out.getvalue() == FILE, f"a file of {len(out.getvalue())} bytes arrived, or other bytes")
            ftp.voidcmd("NOOP")
            watch()
            time.sleep(0.4)
        ftp.quit()


def sip(method, source, call):
    return (f"{method} SIP/2.0\r\nVia: SIP/2.0/UDP {source}:5060;branch=z9hG4bK{call}\r\nMax-Forwards: 70\r\n"
            f"To: <sip:a@{W_ADDR}>\r\nFrom: <sip:a@{W_ADDR}>;tag=1\r\nCall-ID: c{call}@x\r\nCSeq: {call} REGISTER\r\n"
            f"Contact: <sip:a@{source}:5060>\r\nExpires: 60\r\nContent-Length: 0\r\n\r\n").encode()


def run():
    with lab_a() as lab:
        try:
            lab["R"].nft(HELPERS)
        except Failure as error:
            raise Skip(f"this kernel has no FTP or SIP helper: {error}") from error
        lab.attach("ra", "rb")
        server = FtpServer(lab["W"])

        def control_is_slow():
            check_equal([flow for flow in lab.flows() if 21 in (flow["orig"]["match"]["dport"],
                                                                flow["orig"]["match"]["sport"])], [],
                        "flows of the control connection")

        for passive in (False, True):
            task = lab["L"].thread(client, passive, 5, control_is_slow)
            if not passive:
                lab.wait_refused("helper", 5, proto="tcp", dport=21)
            task.result(30)
        check_equal(len(server.ports), 5, "PORT commands")
        check(all(port.startswith(RB_ADDR.replace(".", ",") + ",") for port in server.ports),
              f"PORT commands as W saw them: {server.ports}")

        # SIP over UDP, for longer than it takes to be ASSURED: rewritten each time.
        registrar = lab["W"].socket()
        registrar.bind((W_ADDR, 5060))
        registrar.settimeout(2)
        phone = lab["L"].socket()
        phone.bind(("192.0.2.2", 5060))
        phone.connect((W_ADDR, 5060))
        seen = []

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    data, source = registrar.recvfrom(4000)
                    seen.append(data.decode())
                    registrar.sendto(data.replace(f"REGISTER sip:{W_ADDR} SIP/2.0".encode(), b"SIP/2.0 200 OK"), source)

        threading.Thread(target=answer, daemon=True).start()
        for call in range(1, 31):
            phone.send(sip(f"REGISTER sip:{W_ADDR}", "192.0.2.2", call))
            time.sleep(0.15)
        wait_until(lambda: len(seen) == 30, 2, "30 REGISTER requests at W")
        for text in seen:
            check(f"Contact: <sip:a@{RB_ADDR}:" in text and "192.0.2.2" not in text.split("Call-ID")[0],
                  f"a request was not rewritten: {text}")
        check_equal(lab.find(proto="udp", dport=5060), [], "flows of the SIP connection")
        check_equal(lab.refused(proto="udp", dport=5060), "helper", "reason")
