"""The fenced blocks of the README and the documentation pages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str

    @property
    def is_program(self) -> bool:
        """Whether it runs by itself: it brings its own emulator."""
        return self.language == "python" and "Emulator() as" in self.text

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every page of documentation."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def blocks() -> tuple[Block, ...]:
    """Every fenced block of every page, in order."""
    return tuple(
        Block(page.relative_to(ROOT).as_posix(), text.count("\n", 0, match.start()) + 1, match[1], match[2])
        for page in pages()
        for text in [page.read_text(encoding="utf-8")]
        for match in _FENCE.finditer(text)
    )


def readme_example() -> tuple[Block, Block]:
    """The README's first program with a source, and the block after it, which holds its output."""
    readme = [block for block in blocks() if block.page == "README.md"]
    for program, output in pairwise(readme):
        if program.language == "python" and "PubSubSource" in program.text:
            return program, output
    raise AssertionError("the README has no python block with PubSubSource that is followed by a block with its output")
