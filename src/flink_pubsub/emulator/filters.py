"""Subscription filters: the language, and whether a message's attributes match.

    expression = operand { "AND" operand } | operand { "OR" operand }
    operand    = [ "NOT" | "-" ] ( "(" expression ")" | test )
    test       = "attributes" ":" key | "attributes" "." key ( "=" | "!=" ) string
               | "hasPrefix" "(" "attributes" "." key "," string ")"
    key        = word | string

Everything is case-sensitive. AND and OR mix only with parentheses. A word is letters, digits, `_` and `-`, not beginning with
a digit or `-`; other keys are quoted. See https://cloud.google.com/pubsub/docs/subscription-message-filter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn

from flink_pubsub.emulator.errors import invalid, too_large

MAX_FILTER_BYTES = 256

Filter = Callable[[Mapping[str, str]], bool]
"""Whether a message with these attributes matches."""

_TOKEN = re.compile(r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<word>[^\W\d][\w-]*)|(?P<sign>!=|[():.,=-])|(?P<end>$))""")
_ESCAPE = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|([0-7]{1,3})|(.))", re.DOTALL)
_SHORT = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_RESERVED = {"AND", "OR", "NOT"}


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse(text: str) -> Filter:
    """The filter that the text describes.

    Raises:
        ServiceError: INVALID_ARGUMENT, naming what was expected and where.
    """
    size = len(text.encode())
    if size > MAX_FILTER_BYTES:
        raise too_large("filter_length", size, MAX_FILTER_BYTES)
    return _Parser(text).filter()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[_Token] = []
        position = 0
        while not self._tokens or self._tokens[-1].kind != "end":
            found = _TOKEN.match(text, position)
            if found is None:
                start = position + len(text[position:]) - len(text[position:].lstrip())
                self._fail("an operator, a key or a quoted string", _Token("unknown", text[start], start))
            kind = found.lastgroup or "end"
            self._tokens.append(_Token(kind, found[kind], found.start(kind)))
            position = found.end()
        self._next = 0

    def filter(self) -> Filter:
        whole = self._expression()
        if self._peek().kind != "end":
            self._fail("AND, OR or the end" if self._peek().text not in ("AND", "OR") else "parentheses to mix AND and OR")
        return whole

    def _expression(self) -> Filter:
        operands = [self._operand()]
        operator = self._peek().text
        if operator not in ("AND", "OR"):
            return operands[0]
        while self._peek().text == operator:
            self._take(operator)
            operands.append(self._operand())
        combine = all if operator == "AND" else any
        return lambda attributes: combine(operand(attributes) for operand in operands)

    def _operand(self) -> Filter:
        if self._peek().text in ("NOT", "-"):
            self._take(self._peek().text)
            operand = self._operand()
            return lambda attributes: not operand(attributes)
        if self._peek().text == "(":
            self._take("(")
            inner = self._expression()
            self._take(")")
            return inner
        return self._test()

    def _test(self) -> Filter:
        if self._peek().text == "hasPrefix":
            self._take("hasPrefix")
            self._take("(")
            self._take("attributes")
            self._take(".")
            key = self._key()
            self._take(",")
            prefix = self._string()
            self._take(")")
            return lambda attributes: key in attributes and attributes[key].startswith(prefix)
        self._take("attributes", "attributes, hasPrefix, NOT or a parenthesis")
        if self._peek().text == ":":
            self._take(":")
            key = self._key()
            return lambda attributes: key in attributes
        self._take(".", "':' or '.'")
        key = self._key()
        if self._peek().text == "!=":
            self._take("!=")
            value = self._string()
            return lambda attributes: key not in attributes or attributes[key] != value
        self._take("=", "'=' or '!='")
        value = self._string()
        return lambda attributes: key in attributes and attributes[key] == value

    def _key(self) -> str:
        token = self._peek()
        if token.kind == "string":
            return self._string()
        if token.kind != "word" or token.text in _RESERVED:
            self._fail("a key")
        self._next += 1
        return token.text

    def _string(self) -> str:
        token = self._peek()
        if token.kind != "string":
            self._fail("a quoted string")
        self._next += 1
        try:
            return _ESCAPE.sub(_unescaped, token.text[1:-1].encode()).decode()
        except (UnicodeError, ValueError, OverflowError):
            self._fail("a string of valid characters", token)

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, text: str, expected: str = "") -> None:
        token = self._peek()
        if token.text != text or token.kind == "string":
            self._fail(expected or repr(text))
        self._next += 1

    def _fail(self, expected: str, token: _Token | None = None) -> NoReturn:
        token = token or self._peek()
        found = repr(token.text) if token.text else "its end"
        raise invalid(
            f"Invalid filter given (filter={self._text}): expected {expected} at character {token.position + 1}, found {found}."
        )


def _unescaped(found: re.Match[bytes]) -> bytes:
    short, long, hexadecimal, octal, other = found.groups()
    if short or long:
        return chr(int(short or long, 16)).encode()
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    if octal:
        return bytes([int(octal, 8)])
    return _SHORT.get(other, other)
