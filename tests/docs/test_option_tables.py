"""The tables of options on the page about SQL are those of the declarations."""

from __future__ import annotations

import re

import pytest

from flink_pubsub.table_options import OPTIONS, TableOption
from tools import option_tables


@pytest.mark.feature("SQL-11")
def test_the_page_has_every_option_as_it_is_declared() -> None:
    page = option_tables.PAGE.read_text(encoding="utf-8")
    assert option_tables.updated(page) == page, "bring it up to date with: python -m tools.option_tables"
    assert [option.key for option in OPTIONS if f"| `{option.key}` |" not in page] == []


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: str(option.key))
def test_every_option_is_described_in_the_words_of_sql(option: TableOption) -> None:
    _, kind, default, text = option_tables.row(option).strip("| \n").split(" | ")
    assert "" not in (kind, default, text)
    assert not re.search(r"[a-z]_[a-z]|\bTrue\b|\bFalse\b|\b[A-Z]\w+\.[A-Z_]+\b", text + default), "a name of the Python API"
