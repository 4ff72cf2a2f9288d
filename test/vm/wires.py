# SPDX-License-Identifier: GPL-2.0-only
"""What stands between Ethernet and IP where an end of the oracle speaks it by hand: the frame as it is on the wire,
from the one that an end without it would send, and back. Written without a look at the datapath's headers."""
import struct

ETH_PPP_SESSION = 0x8864
PPP = {0x0800: 0x0021, 0x86DD: 0x0057}
IP = {ppp: ether for ether, ppp in PPP.items()}


class Tagged:
    """A tag, with a priority that nobody asks for. The receiver's kernel strips it, and says what it was."""

    def __init__(self, vid, inside=None):
        self.tag = struct.pack("!HH", 0x8100, vid)
        self.inside = inside

    def seal(self, frame):
        if self.inside:
            frame = self.inside.seal(frame)
        return frame[:12] + self.tag + frame[12:]

    def open(self, frame, state):
        return self.inside.open(frame, state) if self.inside else (frame, state)


class Session:
    """A PPPoE session (RFC 2516). What is not IP is sent without, as a stray frame."""

    def __init__(self, number):
        self.number = number

    def seal(self, frame):
        ether, payload = struct.unpack_from("!H", frame, 12)[0], frame[14:]
        if ether not in PPP:
            return frame
        return frame[:12] + struct.pack("!HBBHHH", ETH_PPP_SESSION, 0x11, 0, self.number, len(payload) + 2,
                                        PPP[ether]) + payload

    def open(self, frame, state):
        """None: the session's own affairs (discovery, LCP, IPCP), which two routers have at times of their own."""
        ether, head, code, number, length, proto = struct.unpack_from("!HBBHHH", frame.ljust(22, b"\0"), 12)
        if ether in (0x8863, ETH_PPP_SESSION) and (ether == 0x8863 or proto not in IP):
            return None
        if ether != ETH_PPP_SESSION:
            return frame, state
        told = f"pppoe {head:02x} {code} {'own' if number == self.number else number} {length - len(frame) + 20}"
        return frame[:12] + struct.pack("!H", IP[proto]) + frame[22:], (state + " " + told).strip()
