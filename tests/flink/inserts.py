"""What tests of tables that are written share: tables to write to and to select from, jobs that end, and plans."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyflink.table import ExplainDetail, StreamTableEnvironment

from flink_pubsub.emulator import Emulator
from tests.unit.sink_support import PublishServer

ORDERED = {"sink.message-ordering.enabled": "true"}
KEY = "okey STRING METADATA FROM 'ordering-key'"
DEST = "dest STRING METADATA FROM 'topic'"
ATTRIBUTES = "attrs MAP<STRING, STRING> METADATA FROM 'attributes'"


def written(
    options: Mapping[str, str] | None = None, *, topic: str | None = "orders", to: Emulator | PublishServer | None = None
) -> str:
    """A WITH clause to write json to a topic of project `p`, unless the options say something else."""
    clause = {"connector": "pubsub", "project": "p", "format": "json"}
    if topic is not None:
        clause["topic"] = topic
    if to is not None:
        clause["emulator-endpoint"] = to.endpoint
    return with_options({**clause, **(options or {})})


def with_options(options: Mapping[str, str]) -> str:
    """A WITH clause."""
    return "WITH (" + ", ".join(f"'{key}' = '{value}'" for key, value in options.items()) + ")"


def numbers(count: int) -> tuple[str, str]:
    """Columns and WITH clause of a bounded table, with `n` from 0, spread over the job's parallelism."""
    options = {"connector": "datagen", "rows-per-second": "1000000", "number-of-rows": str(count)}
    sequence = {"fields.n.kind": "sequence", "fields.n.start": "0", "fields.n.end": str(count - 1)}
    return "n BIGINT", with_options({**options, **sequence})


def values(*rows: Iterable[Any]) -> str:
    """A VALUES clause of texts, numbers, NULLs, and maps; every row must be of the same shape."""
    return "VALUES " + ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)


def _literal(value: Any) -> str:
    if value is None:
        return "CAST(NULL AS STRING)"
    if isinstance(value, dict):
        return f"MAP[{', '.join(_literal(each) for pair in value.items() for each in pair)}]"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def run(env: StreamTableEnvironment, *inserts: str) -> None:
    """Runs the statements as one job to its end."""
    together = env.create_statement_set()
    for insert in inserts:
        together.add_insert_sql(insert)
    together.execute().wait()


def failure(env: StreamTableEnvironment, insert: str) -> str:
    """Runs a statement whose job must fail, and returns the whole text of the failure."""
    try:
        env.execute_sql(insert).wait()
    except Py4JJavaError as error:
        return str(error)
    raise AssertionError(f"this did not fail: {insert}")


def plan(env: StreamTableEnvironment, statement: str) -> list[dict[str, Any]]:
    """The nodes of the job that a statement would run."""
    explained = env.explain_sql(statement, ExplainDetail.JSON_EXECUTION_PLAN)
    nodes: list[dict[str, Any]] = json.loads(explained.rpartition("== Physical Execution Plan ==\n")[2])["nodes"]
    return nodes


def strategies(node: Mapping[str, Any]) -> list[str]:
    """How the records of a node's inputs get to it."""
    return sorted(each["ship_strategy"] for each in node.get("predecessors", ()))
