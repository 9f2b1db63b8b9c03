"""The filter language, and what a filtered subscription gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_pubsub.emulator.errors import ServiceError
from flink_pubsub.emulator.filters import parse
from tests.emulator.subscriptions import Bench

pytestmark = pytest.mark.feature("BEY-07")

ATTRIBUTES = {"name": "com", "lang": "en-GB", "iana.org/tag": "x", "empty": "", "みん": "ja", "quote": 'a"b\\c'}


@pytest.mark.parametrize(
    "text",
    [
        "attributes:name",
        "attributes : name",
        'attributes:"name"',
        'attributes:"iana.org/tag"',
        "attributes:みん",
        r'attributes:"\u307F\u3093"',
        r'attributes:"\343\201\277\343\202\223"',
        r'attributes:"\xe3\x81\xbf\xe3\x82\x93"',
        'attributes.name = "com"',
        'attributes.name="com"',
        'attributes."iana.org/tag" = "x"',
        'attributes.empty = ""',
        r'attributes.quote = "a\"b\\c"',
        'attributes.name != "org"',
        'attributes.absent != "org"',
        "NOT attributes:absent",
        "-attributes:absent",
        "NOT NOT attributes:name",
        'hasPrefix(attributes.lang, "en")',
        'hasPrefix(attributes.lang,"")',
        "attributes:name AND attributes:lang AND attributes:empty",
        "attributes:absent OR attributes:name",
        "(attributes:absent OR attributes:name) AND NOT attributes:absent",
        "attributes:absent OR (attributes:name AND (attributes:lang))",
        'NOT (attributes:absent OR attributes.name != "com")',
        "NOT attributes:absent AND attributes:name",
        'attributes.ORDER != "x"',
        "attributes:empty-not OR attributes:name",
    ],
)
def test_it_matches(text: str) -> None:
    assert parse(text)(ATTRIBUTES)
    assert not parse(f"NOT ({text})")(ATTRIBUTES)


@pytest.mark.parametrize(
    "text",
    [
        "attributes:Name",
        "attributes:absent",
        'attributes.name = "COM"',
        'attributes.name != "com"',
        'attributes.absent = ""',
        'hasPrefix(attributes.lang, "En")',
        'hasPrefix(attributes.absent, "")',
        "attributes:absent AND attributes:name",
        "NOT attributes:name OR attributes:absent",
    ],
)
def test_it_does_not_match(text: str) -> None:
    assert not parse(text)(ATTRIBUTES)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("attributes", "expected ':' or '.' at character 11, found its end"),
        ("attributes:", "expected a key at character 12, found its end"),
        ("attributes:1a", "expected an operator, a key or a quoted string at character 12, found '1'"),
        ("attributes:AND", "expected a key at character 12, found 'AND'"),
        ("attributes.a = b", "expected a quoted string at character 16, found 'b'"),
        ('attributes.a > "b"', "expected an operator, a key or a quoted string at character 14, found '>'"),
        ('attributes.a "b"', "expected '=' or '!=' at character 14"),
        ('attributes.a = "b', "expected an operator, a key or a quoted string at character 16"),
        ('attributes.a = "\\377"', "expected a string of valid characters at character 16"),
        ("attribute:a", "expected attributes, hasPrefix, NOT or a parenthesis at character 1"),
        ("attributes:a and attributes:b", "expected AND, OR or the end at character 14, found 'and'"),
        ("attributes:a AND attributes:b OR attributes:c", "expected parentheses to mix AND and OR at character 31, found 'OR'"),
        ("(attributes:a", "expected ')' at character 14, found its end"),
        ("attributes:a)", "expected AND, OR or the end at character 13"),
        ('hasprefix(attributes.a, "b")', "expected attributes, hasPrefix, NOT or a parenthesis"),
        ('hasPrefix(attributes:a, "b")', "expected '.' at character 21, found ':'"),
        ("attributes:a AND", "at character 17, found its end"),
        ('"attributes":a', "expected attributes, hasPrefix, NOT or a parenthesis at character 1"),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused_with_the_place(text: str, complaint: str) -> None:
    with pytest.raises(ServiceError) as refusal:
        parse(text)
    assert refusal.value.message.startswith(f"Invalid filter given (filter={text}): ")
    assert complaint in refusal.value.message


def test_a_filter_has_256_bytes_at_most() -> None:
    longest = f'attributes:"{"é" * 121}x"'
    parse(longest)
    with pytest.raises(ServiceError, match="You passed 257 in the request, but the maximum value is 256"):
        parse(longest + " ")


@given(st.text(alphabet='attributes:.="()-ANDORTxy !\\u0', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text)({})
    except ServiceError as e:
        assert "Invalid filter given" in e.message


@given(st.text(min_size=1, max_size=30).filter(lambda key: '"' not in key and "\\" not in key), st.booleans())
def test_any_key_can_be_quoted(key: str, present: bool) -> None:
    assert parse(f'attributes:"{key}"')({key: ""} if present else {}) is present


def test_a_filtered_subscription_gets_what_matches_and_never_hears_of_the_rest() -> None:
    bench = Bench(
        filter='attributes.kind = "a"', retain_acked_messages=True, topic={"message_retention_duration": {"seconds": 600}}
    )
    consumer = bench.consumer()
    bench.publish("1", kind="a")
    bench.publish("2", kind="b")
    bench.publish("3")
    bench.publish("4", "5", kind="a")
    ids = bench.take(consumer)
    assert list(ids) == ["1", "4", "5"]
    bench.ack(*ids.values())
    assert bench.subscription.counts().received == 3
    bench.seek(0)
    assert bench.waiting() == ["1", "4", "5"]


def test_a_filtered_subscription_of_an_ordered_topic_keeps_the_order() -> None:
    bench = Bench(ordered=True, filter="NOT attributes:skip")
    bench.publish("1", key="k")
    bench.publish("2", key="k", skip="")
    bench.publish("3", key="k")
    assert list(bench.take(bench.consumer())) == ["1", "3"]
