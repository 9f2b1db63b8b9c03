"""Makes the locks in `requirements/` from `pyproject.toml` anew: `make lock`, for instance with `ARGS=--upgrade`.

`run.txt` is what the demo needs, `dev.txt` adds the tools of every other target, `java.txt` is the Java runtime for machines
without one. All three agree on every version and hold for each Python the project supports.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {
    "dev": ("--extra", "flink", "--extra", "demo", "--group", "dev"),
    "run": ("--extra", "flink", "--extra", "demo", "--group", "build", "--constraints", "requirements/dev.txt"),
    "java": ("--extra", "java", "--constraints", "requirements/dev.txt"),
}


def main() -> None:
    """Resolves every lock; versions stay as they are unless told otherwise by uv's options."""
    uv = Path(sys.executable).with_name("uv")
    common = [str(uv), "pip", "compile", "pyproject.toml", "--quiet", "--universal", "--python-version", "3.10"]
    common += ["--generate-hashes", "--no-header", "--no-annotate", *sys.argv[1:]]
    for name, selection in LOCKS.items():
        command = [*common, *selection, "--output-file", f"requirements/{name}.txt"]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"}, check=True)


if __name__ == "__main__":
    main()
