"""The statements on the page about SQL can be planned as they stand there, one after the other."""

from __future__ import annotations

import re

from tests.docs.markdown import blocks
from tests.flink.tables import table_environment

_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)


def test_every_statement_can_be_planned() -> None:
    env = table_environment()
    statements = [
        statement.strip()
        for block in blocks()
        if block.page == "docs/sql.md" and block.language == "sql"
        for statement in re.split(r";\s*$", _COMMENT.sub("", block.text), flags=re.MULTILINE)
        if statement.strip()
    ]
    planned = 0
    for statement in statements:
        if statement.startswith("CREATE"):
            env.execute_sql(statement)
        elif statement.startswith(("SELECT", "INSERT")):
            env.execute_sql(f"EXPLAIN {statement}")
            planned += 1
        else:
            assert statement.startswith("SET"), f"this test does not know what to do with {statement}"
    assert planned > 0
