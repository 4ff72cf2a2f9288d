# SPDX-License-Identifier: GPL-2.0-only
"""What `ftctl doctor -j` says about kernels.

doctor.py                 one answer on standard input: what is missing; exit code 1 when that is a required thing
doctor.py --table FILE... the table of docs/kernels.md from the answers that `test/vm/run.sh --results DIR load` left
"""
import json
import os
import platform
import sys


def one():
    checks = json.load(sys.stdin)["kernel"]
    missing = [check for check in checks if not check["ok"]]
    print(f"doctor on {platform.release()}: {len(checks) - len(missing)} of {len(checks)} checks passed")
    for check in missing:
        print(f"  {'MISSING' if check['required'] else 'without'} {check['name']}: {check['detail']}")
    return any(check["required"] for check in missing)


def version(path):
    """6.12.118+deb13-amd64.doctor.json: for sorting by number."""
    return [int(part) for part in os.path.basename(path).split("+")[0].split("-")[0].split(".")[:3] if part.isdigit()]


def table(paths):
    answers = []
    for path in sorted(paths, key=version):
        with open(path, encoding="utf-8") as file:
            answers.append({check["name"]: check for check in json.load(file)["kernel"]})
    names = list(dict.fromkeys(name for answer in answers for name in answer))
    kernels = [os.path.basename(path).removesuffix(".doctor.json") for path in sorted(paths, key=version)]
    print("| check | needed | " + " | ".join(kernels) + " |\n|" + "---|" * (len(kernels) + 2))
    for name in names:
        cells = [answer[name] if name in answer else None for answer in answers]
        needed = any(cell and cell["required"] for cell in cells)
        print(f"| `{name}` | {'yes' if needed else 'no'} | " + " | ".join(
            f"{'ok' if cell['ok'] else 'no'}: {cell['detail']}" if cell else "not asked" for cell in cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(table(sys.argv[2:]) if sys.argv[1:2] == ["--table"] else one())
