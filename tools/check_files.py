"""Checks every tracked file: text only, no path of somebody's machine, no package registry's host.

Such things work where they were written and nowhere else. Part of `make lint`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 400_000
"""Bytes. The locks are the largest files by far."""

_HOSTS = [f"{name}.org" for name in ("pypi", "pythonhosted", "maven", "proxy.golang", "sum.golang", "npmjs", "deb.debian")]
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![\w.:/-])/(?:home|root|Users|work|mnt)/[\w.]"),
    "a package registry's host": re.compile("|".join(map(re.escape, _HOSTS))),
    "a conflict marker": re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE),
}


def defects(name: str, content: bytes) -> list[str]:
    """What is wrong with one file, a sentence each."""
    if len(content) > LARGEST:
        return [f"{name}: {len(content)} bytes; at most {LARGEST} belong here"]
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return [f"{name}: not UTF-8 text"]
    if "\0" in text:
        return [f"{name}: binary"]
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {what}: {match[0]}"
        for what, pattern in FORBIDDEN.items()
        for match in pattern.finditer(text)
    ]


def main() -> int:
    """Prints the defects of all tracked files. Exit status 1 when there are any."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    names = [name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]
    found = [defect for name in names for defect in defects(name, (ROOT / name).read_bytes())]
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(names)} files checked, {len(found)} defects")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
