# SPDX-License-Identifier: GPL-2.0-only
"""Prints what `ftctl doctor -j` (on standard input) says as the lines of docs/kernels.md; fails when a
required thing is missing."""
import json
import platform
import sys

checks = json.load(sys.stdin)["kernel"]
missing = [check for check in checks if not check["ok"]]
print(f"doctor on {platform.release()}: {len(checks) - len(missing)} of {len(checks)} checks passed")
for check in missing:
    print(f"  {'MISSING' if check['required'] else 'without'} {check['name']}: {check['detail']}")
sys.exit(any(check["required"] for check in missing))
