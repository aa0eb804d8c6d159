"""Which version a bad message is, as far as it says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from history.reasons import REASONS
from ingest.source.decode import Reason
from ingest.source.forms import shapes
from ingest.source.message import Message
from ingest.source.names import named
from tests.messages import TOPIC, nested, value


def name(body: bytes | None, key: bytes | None = b"K1", topic: str = TOPIC) -> tuple[Any, ...]:
    return tuple(named(Message(topic, 0, 0, -1, key, body)))


@pytest.mark.parametrize(
    "body, expected",
    [
        (value(id="A1", version=5, updatedAt="never"), ("A1", 5)),
        (value(id="A1", version="5"), ("A1", 5)),
        (value(id="A1", version=-1), ("A1", None)),
        (value(id="A1", version=2**31), ("A1", None)),
        (value(id="A1", version=5.5), ("A1", None)),
        (value(id=7, version=5), ("K1", 5)),
        (value(id="x" * 33, version=5), ("K1", 5)),
        (value(id="a\0b", version=5), ("K1", 5)),
        (value(id=..., version=...), ("K1", None)),
        (value(id="A1", version=5)[:-9], ("K1", 5)),
        (b'{"version": 5', ("K1", None)),
        (b"[]", ("K1", None)),
        (b"\xff", ("K1", None)),
        (nested(100_000), ("K1", None)),
        (None, ("K1", None)),
    ],
)
def test_what_can_be_read_is_read(body: bytes | None, expected: tuple[Any, ...]) -> None:
    assert name(body) == ("product-instance", *expected)


@pytest.mark.parametrize("key", [None, b"", b"\xff", b"k" * 33, b"a\0"])
def test_a_key_that_is_no_id(key: bytes | None) -> None:
    assert name(None, key) == ("product-instance", "", None)


def test_of_an_unknown_topic_nothing_is_known() -> None:
    assert name(value(), topic="other") == ("", "", None)


def test_a_declared_envelope() -> None:
    places = {TOPIC: {"id": "/payload/pid", "version": "/payload/v"}}
    declared = shapes(msgspec.json.encode(places))
    body = b'{"id": "no", "version": 1, "payload": {"pid": "A1", "v": 5}}'
    message = Message(TOPIC, 0, 0, -1, None, body)
    assert tuple(named(message, declared)) == ("product-instance", "A1", 5)
    broken = Message(TOPIC, 0, 0, -1, None, body[:-1])
    assert tuple(named(broken, declared)) == ("product-instance", "", None)


def test_every_reason_has_words() -> None:
    assert set(REASONS) == {str(reason) for reason in Reason}
