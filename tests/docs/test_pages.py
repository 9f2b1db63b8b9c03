"""The README and the documentation pages say what is so: their programs run, and what they name exists."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, Block, blocks, pages
from tests.flink.lineage import compile_java
from tools import javahome

PYTHON = [block for block in blocks() if block.language == "python"]


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_a_python_block_compiles_and_imports_only_what_exists(block: Block) -> None:
    tree = ast.parse(block.text, str(block))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "flink_pubsub":
            module = import_module(node.module)
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []


@pytest.mark.timeout(240)
@pytest.mark.parametrize("block", [block for block in PYTHON if block.is_program and block.page != "README.md"], ids=str)
def test_a_program_with_its_own_emulator_runs(block: Block, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(block.text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        env=javahome.environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", [block for block in blocks() if block.language == "java"], ids=str)
def test_a_java_class_compiles(block: Block, tmp_path: Path) -> None:
    [name] = re.findall(r"^public class (\w+)", block.text, re.MULTILINE)
    source = tmp_path / f"{name}.java"
    source.write_text(block.text, encoding="utf-8")
    compile_java(source, tmp_path / "classes")


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for page in pages() for name in re.findall(r"`make ([a-z]+)|^make ([a-z]+)", page.read_text(), re.MULTILINE)}
    assert {first or second for first, second in named} <= targets


def test_every_relative_link_leads_to_a_file() -> None:
    links = [
        (page, link)
        for page in pages()
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    ]
    assert links
    assert [f"{page.name}: {link}" for page, link in links if not os.path.exists(page.parent / link)] == []
