# SPDX-License-Identifier: GPL-2.0-only
"""nft in this process, by libnftables: on an emulated processor starting a program costs more than a whole row."""
import ctypes
import json

from lab import Failure

JSON_OUTPUT = 1 << 4  # NFT_CTX_OUTPUT_JSON

_lib = ctypes.CDLL("libnftables.so.1")
_lib.nft_ctx_new.restype = ctypes.c_void_p
_lib.nft_ctx_new.argtypes = [ctypes.c_uint32]
_lib.nft_ctx_free.argtypes = [ctypes.c_void_p]
_lib.nft_ctx_output_set_flags.argtypes = [ctypes.c_void_p, ctypes.c_uint]
_lib.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
for _name in ("nft_ctx_buffer_output", "nft_ctx_buffer_error"):
    getattr(_lib, _name).argtypes = [ctypes.c_void_p]
for _name in ("nft_ctx_get_output_buffer", "nft_ctx_get_error_buffer"):
    getattr(_lib, _name).argtypes = [ctypes.c_void_p]
    getattr(_lib, _name).restype = ctypes.c_char_p


class Nft:
    """The nft of one namespace (a lab.Netns)."""

    def __init__(self, netns):
        self.role = netns.role
        with netns.entered():  # the context's netlink socket stays in the namespace it was made in
            self.context = _lib.nft_ctx_new(0)
        if not self.context:
            raise Failure("libnftables gives no context")
        netns.lab.resources.callback(_lib.nft_ctx_free, self.context)
        _lib.nft_ctx_buffer_output(self.context)
        _lib.nft_ctx_buffer_error(self.context)
        _lib.nft_ctx_output_set_flags(self.context, JSON_OUTPUT)

    def run(self, text):
        """Runs commands, all or nothing; returns what they print."""
        code = _lib.nft_run_cmd_from_buffer(self.context, text.encode())
        errors = _lib.nft_ctx_get_error_buffer(self.context).decode().strip()
        output = _lib.nft_ctx_get_output_buffer(self.context).decode()
        if code != 0:
            raise Failure(f"nft in {self.role}: {errors}\n{text}")
        return output

    def counters(self, table, reset=False):
        """{name: (packets, bytes)} of a table, set to zero afterwards when `reset`."""
        said = json.loads(self.run(f"{'reset' if reset else 'list'} counters table {table}"))
        return {item["counter"]["name"]: (item["counter"]["packets"], item["counter"]["bytes"])
                for item in said["nftables"] if "counter" in item}
