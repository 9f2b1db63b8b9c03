"""Writes the tables of options in `docs/sql.md` from their declarations: `python -m tools.option_tables`.

What an option does is said once, where it is declared: in the docstring under its field, or in `table_options.py` where SQL
needs words of its own. A test compares the page with what this would write.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from functools import cache
from pathlib import Path

from flink_pubsub.table_options import OPTIONS, TableOption, in_sql_words

PAGE = Path(__file__).resolve().parent.parent / "docs" / "sql.md"
_MODULES = ("options", "subscription_options", "topic_options")
_TABLE = re.compile(r"(<!-- options: (\w+) -->\n).*?(<!-- end of options -->)", re.DOTALL)
_DEFAULT = re.compile(r"\s(?:Default:? (?P<default>.+)|(?P<required>Required[^A-Z]*))\.$")
_TYPES = {
    "count": "whole number",
    "duration": "duration",
    "factor": "number",
    "flag": "boolean",
    "list": "list",
    "map": "map",
    "size": "memory size",
    "text": "string",
}


def updated(page: str) -> str:
    """The page with every table as the declarations have it."""
    return _TABLE.sub(lambda found: found[1] + table(found[2]) + found[3], page)


def table(direction: str) -> str:
    """The Markdown table of one direction's options."""
    rows = [row(option) for option in OPTIONS if option.direction == direction]
    return "".join(("| option | type | default | what it does |\n|---|---|---|---|\n", *rows))


def row(option: TableOption) -> str:
    """One option. Its text ends with the default, which has a column of its own."""
    text = described(option)
    end = _DEFAULT.search(text)
    assert end is not None, f"the text of {option.key} ends with neither a default nor what requires it: {text}"
    default = end["default"] or end["required"].lower()
    return f"| `{option.key}` | {_type(option)} | {default} | {text[: end.start()]} |\n"


def described(option: TableOption) -> str:
    """What the option does, in one line."""
    text = option.description
    if text is None:
        [setting] = option.settings
        text = in_sql_words(_docstrings()[setting], option.direction, "`")
    return text.replace("|", "\\|")


def _type(option: TableOption) -> str:
    if option.choices is None:
        return _TYPES[option.kind]
    return ", ".join(f"`{choice.value}`" for choice in option.choices)


@cache
def _docstrings() -> dict[str, str]:
    """The docstrings of all fields, by `Class.field`."""
    found = {}
    for name in _MODULES:
        tree = ast.parse(inspect.getsource(importlib.import_module(f"flink_pubsub.{name}")))
        for owner in tree.body:
            if isinstance(owner, ast.ClassDef):
                for field, text in zip(owner.body, owner.body[1:], strict=False):
                    if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                        found[f"{owner.name}.{ast.unparse(field.target)}"] = " ".join(str(text.value.value).split())
    return found


def main() -> int:
    """Brings the page up to date, and says whether it was."""
    before = PAGE.read_text(encoding="utf-8")
    after = updated(before)
    PAGE.write_text(after, encoding="utf-8")
    print(f"{PAGE.name}: {'as it was' if before == after else 'brought up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
