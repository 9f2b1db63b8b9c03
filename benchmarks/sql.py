"""The same jobs as statements of SQL: between a `pubsub` table and the blackhole, or the generator's elements."""

from __future__ import annotations

from pyflink.common import JobClient
from pyflink.datastream import DataStream
from pyflink.table import StreamTableEnvironment

EVENT_COLUMNS = (
    "`order` BIGINT, customer STRING, placed STRING, currency STRING, total DECIMAL(10, 2), express BOOLEAN, note STRING"
)
"""Of `replay.event`."""

_EVENT = (
    "4711081512, 'c-0093412', '2026-03-14T15:09:26.535Z', 'EUR', CAST(149.95 AS DECIMAL(10, 2)), FALSE, SUBSTRING(body, 1, 880)"
)


def read(tables: StreamTableEnvironment, columns: str, options: dict[str, str]) -> JobClient:
    """A job from the table to nowhere."""
    tables.execute_sql(f"CREATE TABLE messages ({columns}) WITH ({_with(options)})")
    tables.execute_sql(f"CREATE TABLE nowhere ({columns}) WITH ('connector' = 'blackhole')")
    return _submitted(tables, "INSERT INTO nowhere SELECT * FROM messages")


def write(tables: StreamTableEnvironment, bodies: DataStream, columns: str, options: dict[str, str]) -> JobClient:
    """A job from the payloads to the table; several columns get constants and the payload as the last one."""
    tables.create_temporary_view("bodies", tables.from_data_stream(bodies).alias("body"))
    tables.execute_sql(f"CREATE TABLE messages ({columns}) WITH ({_with(options)})")
    return _submitted(tables, f"INSERT INTO messages SELECT {_EVENT if ',' in columns else 'body'} FROM bodies")


def _with(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def _submitted(tables: StreamTableEnvironment, statement: str) -> JobClient:
    client = tables.execute_sql(statement).get_job_client()
    assert client is not None
    return client
