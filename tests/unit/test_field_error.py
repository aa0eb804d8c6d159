"""Each way to break the contract is one sentence: the place, the fault and what is right."""

from __future__ import annotations

import re

import pytest

from ingest.source import envelope
from ingest.source.decode import Rejected, decode
from tests.messages import CHILD, HOSTILE, TOPIC, WINDOW, message, nested, value, with_data

# What only PostgreSQL finds.
LATER = {"no UTF-8 in data", "1e400000", "1e-400000", "1 MB and bad"}
ID = "it must be a text of 1 to 32 characters"
VERSION = "it must be a whole number from 0 to 2147483647, written in digits without quotes"
AUTHOR = "it must be a text of up to 64 characters, null or absent"
TIME = (
    "`updatedAt` is not written as 2025-07-03T11:42:48.510186035 with Z, an offset as +03:00, or "
    "nothing after it"
)
NO_SUCH_TIME = (
    "`updatedAt` is a time that does not exist: its year, month, day, hour, minute or second is "
    "out of range"
)
TYPE = "it must be CREATE, UPDATE or DELETE, or 0, 1 or 2"
DATA = "`data` is missing or no object; it must be an object, or null if `type` is DELETE"
APPLICATION = "it must be the application's id, a text of 1 to 32 characters"
DEEP = "the message is nested deeper than 500 levels"
SURROGATE = r"a text has half of a surrogate pair, as \ud800, which is no character"
MARKS = "the message begins with a byte order mark: send UTF-8 without it"
SENTENCES: list[tuple[bytes | None, str]] = [
    (None, "the message has no value; a deletion is a message whose `type` is DELETE"),
    (b"", "the message has no value; a deletion is a message whose `type` is DELETE"),
    (b"<xml/>", "the message is not JSON: invalid character at byte 0, counted from 0"),
    (value()[:-9], "the message ends before its JSON does; it was cut off"),
    (b"\xef\xbb\xbf" + value(), MARKS),
    (value().decode().encode("utf-16"), "the message is UTF-16: send UTF-8"),
    (
        b"\0\0\0\0\1" + value(),
        "the message begins with a zero byte, as the messages of a schema registry do: send the "
        "JSON text alone",
    ),
    (value(id="é").replace("é".encode(), b"\xe9"), "a text has bytes that are not UTF-8; the "
     "message must be JSON in UTF-8"),
    (b'{"data":{"a":NaN}}', "NaN or Infinity at byte 13, which JSON does not have; send null or "
     "a text"),
    (b'{"data":{"a":-Infinity}}', "NaN or Infinity at byte 14, which JSON does not have; send null "
     "or a text"),
    (with_data(rb'{"a":"\ud800"}'), SURROGATE),
    (with_data(rb'{"a":"\ud800\ud800"}'), SURROGATE),
    (with_data(rb'{"a":"\udc00"}'), SURROGATE),
    (b"null", "the message is null; it must be a JSON object with the fields of the contract"),
    (b"[]", "the message is a list; it must be a JSON object with the fields of the contract"),
    (b"5", "the message is a whole number; it must be a JSON object with the fields of the "
     "contract"),
    (value(id=...), f"`id` is missing; {ID}"),
    (value(id=None), f"`id` is null; {ID}"),
    (value(id=""), f"`id` is empty; {ID}"),
    (value(id=5), f"`id` is a whole number; {ID}"),
    (value(id=["x"]), f"`id` is a list; {ID}"),
    (value(id="x" * 33), f"`id` is longer than 32 characters; {ID}"),
    (value(version=...), f"`version` is missing; {VERSION}"),
    (value(version="7"), f"`version` is a text; {VERSION}"),
    (value(version=7.0), f"`version` is a number with a fraction or an exponent; {VERSION}"),
    (value(version=True), f"`version` is true or false; {VERSION}"),
    (value(version=-1), f"`version` is less than 0; {VERSION}"),
    (value(version=2**31), f"`version` is more than 2147483647; {VERSION}"),
    (value(clientId=...), f"`clientId` is missing; {ID.replace('32', '64')}"),
    (value(clientId=""), f"`clientId` is empty; {ID.replace('32', '64')}"),
    (value(author=1), f"`author` is a whole number; {AUTHOR}"),
    (value(author="x" * 65), f"`author` is longer than 64 characters; {AUTHOR}"),
    (value(productInstanceId={}), f"`productInstanceId` is an object; {APPLICATION}"),
    (value(type=...), f"`type` is missing or another word; {TYPE}"),
    (value(type="UPSERT"), f"`type` is missing or another word; {TYPE}"),
    (value(type=1.0), f"`type` is a number with a fraction or an exponent; {TYPE}"),
    (value(type=..., revType=[]), f"`revType` is a list; {TYPE}"),
    (value(updatedAt=...), "`updatedAt` is missing; it must be a text with an ISO 8601 date and "
     "time, as 2025-07-03T11:42:48.510186Z"),
    (value(updatedAt=1751542968), "`updatedAt` is a whole number; it must be a text with an ISO "
     "8601 date and time, as 2025-07-03T11:42:48.510186Z"),
    (value(updatedAt="yesterday"), TIME),
    (value(updatedAt="2025-07-03"), TIME),
    (value(updatedAt="2025-07-03T11:42:Ив"), TIME),
    (value(updatedAt="2025-07-03T11:42:48+24:00"), TIME),
    (value(updatedAt="2026-02-30T00:00:00"), NO_SUCH_TIME),
    (value(updatedAt="2025-07-03T11:42:60"), NO_SUCH_TIME),
    (value(updatedAt="9999-01-01T00:00:00"), f"`updatedAt` is after {WINDOW.newest} in UTC, the "
     "last day that is accepted; check the clock and the offset of the service"),
    (value(data=...), DATA),
    (value(data=None), DATA),
    (value(data="{}"), DATA),
    (value(id="a\0"), "`id`, `clientId`, `author` or `productInstanceId` has a NUL character; only "
     "`data` may"),
    (with_data(nested(501)), DEEP),
    (with_data(nested(100_000)), DEEP),
]  # fmt: skip


def sentence(body: bytes | None, topic: str = TOPIC) -> str:
    with pytest.raises(Rejected) as caught:
        decode(message(body, topic=topic), WINDOW)
    return caught.value.detail


@pytest.mark.parametrize(
    "body, expected", SENTENCES, ids=[str(number) for number in range(len(SENTENCES))]
)
def test_what_is_wrong_where_and_what_is_right(body: bytes | None, expected: str) -> None:
    assert sentence(body) == expected


def test_a_child_without_its_application() -> None:
    assert sentence(value(), CHILD) == f"`productInstanceId` is missing or empty; {APPLICATION}"


def test_a_topic_that_nobody_declared() -> None:
    expected = "no kind of entity is declared for topic top.loan"
    assert sentence(value(), "top.loan") == expected


def test_no_sentence_has_the_words_of_a_program() -> None:
    words = re.compile(r"Expected|`int|`str|float|regex|isoformat|utf-8' codec|\$\.|malformed")
    bodies = [body for name, (_, body) in HOSTILE.items() if name not in LATER]
    for said in map(sentence, bodies):
        assert not words.search(said), said
        assert "\n" not in said


def test_an_error_that_is_not_known_is_still_a_sentence() -> None:
    assert envelope.field("Something new") == "a field is missing or wrong"
