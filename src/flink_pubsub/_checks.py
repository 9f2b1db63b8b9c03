"""Checks that settings share: each returns the value it accepts and raises a `ConfigurationError` for any other.

A value is quoted in the error, cut to `_QUOTED` characters, unless it could be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from ipaddress import IPv6Address
from typing import Any, NoReturn, TypeAlias

from flink_pubsub.errors import ConfigurationError

_QUOTED = 120
MAX_INT64 = 2**63 - 1
"""Where counts and sizes end: Java and the service hold them as signed 64-bit numbers."""

_HOST_AND_PORT = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|\w[\w.-]*):(?P<port>[0-9]{1,5})", re.ASCII)

Check: TypeAlias = Callable[[str, object], Any]
"""Takes an option's name and the value given for it; returns the value to keep, or raises `ConfigurationError`."""


def refuse(option: str, problem: str, value: object) -> NoReturn:
    """Raises a `ConfigurationError` that quotes the value."""
    raise ConfigurationError(option, problem, quoted(value))


def quoted(value: object) -> str:
    """The value for an error text: its `repr`, cut; durations read better as text."""
    text = str(value) if isinstance(value, timedelta) else repr(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def whole(minimum: int, maximum: int = MAX_INT64) -> Check:
    """A check for ints within a range; bools are no ints here."""
    return partial(_whole, minimum, maximum)


def _whole(minimum: int, maximum: int, option: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        limit = f"of at least {minimum}" if maximum == MAX_INT64 else f"between {minimum} and {maximum}"
        refuse(option, f"must be an int {limit}", value)
    return value


def count_or_unlimited(option: str, value: object) -> int:
    """Accepts an int of at least 1, and -1 for no limit."""
    if not isinstance(value, int) or isinstance(value, bool) or not (value == -1 or 1 <= value <= MAX_INT64):
        refuse(option, "must be an int of at least 1, or -1 for no limit", value)
    return value


def factor(option: str, value: object) -> float:
    """Accepts an int or float of at least 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value < float("inf"):
        refuse(option, "must be a finite number of at least 1", value)
    return float(value)


def flag(option: str, value: object) -> bool:
    """Accepts a bool, not just anything true or false."""
    if not isinstance(value, bool):
        refuse(option, "must be True or False", value)
    return value


def duration(
    minimum: timedelta | None = None, maximum: timedelta | None = None, *, zero: bool = False, whole_seconds: bool = False
) -> Check:
    """A check for durations: positive, within the limits if given, and 0 only where that has a meaning."""
    return partial(_duration, minimum, maximum, zero, whole_seconds)


def _duration(
    minimum: timedelta | None, maximum: timedelta | None, zero: bool, whole_seconds: bool, option: str, value: object
) -> timedelta:
    if not isinstance(value, timedelta):
        refuse(option, "must be a datetime.timedelta, such as timedelta(seconds=10)", value)
    if value < timedelta(0) or (not value and not zero):
        refuse(option, "must not be negative" if zero else "must be longer than 0", value)
    if minimum is not None and maximum is not None and not minimum <= value <= maximum:
        refuse(option, f"must be between {_range(minimum, maximum)}", value)
    if minimum is not None and value < minimum:
        refuse(option, f"must be at least {minimum}", value)
    if whole_seconds and value.microseconds:
        refuse(option, "must be whole seconds, which is all that the service takes", value)
    return value


def _range(minimum: timedelta, maximum: timedelta) -> str:
    if maximum < timedelta(hours=1):
        return f"{minimum.total_seconds():g} and {maximum.total_seconds():g} seconds"
    return f"{minimum} and {maximum}"


def text(maximum_bytes: int) -> Check:
    """A check for text that is not empty, and not longer than that in UTF-8."""
    return partial(_text, maximum_bytes)


def _text(maximum_bytes: int, option: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        refuse(option, "must be text that is not empty", value)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        refuse(option, "must be text that UTF-8 can hold", value)
    if size > maximum_bytes:
        refuse(option, f"must have at most {maximum_bytes} bytes in UTF-8, not {size}", value)
    return value


def instance(option: str, value: object, kind: type, example: str) -> Any:
    """Accepts an instance of the class; the example shows how to make one."""
    if not isinstance(value, kind):
        hint = " itself, not the class" if value is kind else ""
        refuse(option, f"must be a {kind.__name__}{hint}, such as {example}", value)
    return value


def function(option: str, value: object, signature: str) -> Callable[..., Any]:
    """Accepts anything callable; the signature says how it will be called."""
    if not callable(value):
        refuse(option, f"must be a function {signature}", value)
    return value


def payload_function(value: object, signature: str, schema_class: type) -> None:
    """Accepts what `payload` of a schema class accepts besides PyFlink schemas: any other callable."""
    name = f"{schema_class.__name__}.payload"
    if isinstance(value, schema_class):
        refuse(name, "adapts payload-only schemas: give this schema to the builder as it is", value)
    if isinstance(value, type) and any(base.__module__ == "pyflink.common.serialization" for base in value.__mro__):
        refuse(name, f"needs the schema itself, not its class: {value.__name__}(...)", value)
    if not callable(value):
        refuse(name, f"needs a PyFlink schema or a function ({signature}", value)


def path(option: str, value: object, *, secret: bool = False) -> str:
    """Accepts a non-empty, trimmed path as text. A secret one is not quoted: it may be the key itself, given by mistake."""
    shown = None if secret else quoted(value)
    if not isinstance(value, str):
        raise ConfigurationError(option, f"must be a path as str, not {type(value).__name__}", shown)
    if not value or value != value.strip():
        raise ConfigurationError(option, "must be a path that is not empty and has no spaces around it", shown)
    if "{" in value or "\n" in value or "\0" in value:
        raise ConfigurationError(option, "takes the path of a file, not its content", shown)
    return value


def endpoint(option: str, value: object) -> str:
    """Accepts `host:port`; an IPv6 address stands in brackets."""
    match = _HOST_AND_PORT.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 1 <= int(match["port"]) <= 65535 or not _is_ipv6(match["ipv6"] or "::"):
        problem = "must be 'host:port' without a scheme, such as 'localhost:8085' or '[::1]:8085', with port 1 to 65535"
        refuse(option, problem, value)
    return match.string


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True
