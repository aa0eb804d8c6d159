"""The decoder keeps each rule of the message contract, also for mutated messages."""

import random
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.documents.jsonb import MAX_DIGITS
from history.documents.record import ChangeType, Record
from history.store.quarantine_reasons import REASONS
from ingest.messages.decode import (
    MAX_NESTING,
    ExpiredVersionError,
    Reason,
    RejectedMessageError,
    decode,
    parse_time,
)
from ingest.messages.identity import find_parent_and_time, identify_message
from ingest.messages.message import KafkaMessage
from tests import fuzz
from tests.messages import (
    CHILD_TOPIC,
    EXPIRED,
    FOUND_BY_POSTGRESQL,
    HOSTILE,
    NOW,
    STRANGE,
    TOPIC,
    WINDOW,
    make_message,
    make_nested,
    make_value,
    make_value_with_data,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def decode_record(body: bytes, topic: str = TOPIC) -> Record:
    return decode(make_message(body, topic=topic), WINDOW)


def get_reason(body: bytes | None, topic: str = TOPIC) -> Reason:
    with pytest.raises(RejectedMessageError) as caught:
        decode(make_message(body, topic=topic), WINDOW)
    assert caught.value.detail
    return caught.value.reason


def test_record_has_every_field_of_the_message() -> None:
    assert decode_record(make_value_with_data(b'{"a": 1.10, "b":"\\u0041"}')) == Record(
        entity="product-instance",
        id="02xdf2pQLJL5mLfJZodiHa",
        version=7,
        type=1,
        updated_at=(NOW - EPOCH) // MICROSECOND,
        client_id="top-data-client-actualizator",
        author="m.prygunov",
        product_instance_id=None,
        data=b'{"a": 1.10, "b":"\\u0041"}',
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_messages_are_rejected_with_a_reason(name: str) -> None:
    expected, body = HOSTILE[name]
    if name in FOUND_BY_POSTGRESQL:
        assert decode_record(body or b"").data in (body or b"")
    else:
        assert get_reason(body) == expected


@pytest.mark.parametrize("name", STRANGE)
def test_unusual_but_valid_messages_are_decoded(name: str) -> None:
    assert decode_record(STRANGE[name]).id


@pytest.mark.parametrize("kind", ChangeType)
@pytest.mark.parametrize("field", ["type", "revType"])
def test_change_type_may_be_a_word_or_a_number_in_either_of_two_fields(
    kind: ChangeType, field: str
) -> None:
    for spelling in (kind.name, int(kind), str(int(kind))):
        assert decode_record(make_value(**{"type": ..., field: spelling})).type == kind


def test_nesting_count_ignores_brackets_in_strings() -> None:
    assert decode_record(make_value_with_data(make_nested(MAX_NESTING))).data == make_nested(
        MAX_NESTING
    )
    assert get_reason(make_value_with_data(make_nested(MAX_NESTING + 1))) == Reason.TOO_DEEP
    quoted = b'{"a":"' + rb"\"[{\\" * 1000 + b'","b":["[","{"]}'
    assert decode_record(make_value_with_data(quoted)).data == quoted


def test_window_includes_its_first_moment_and_excludes_its_end() -> None:
    def make_value_at(microseconds: int) -> bytes:
        return make_value(updatedAt=(EPOCH + microseconds * MICROSECOND).isoformat())

    assert decode_record(make_value_at(WINDOW.start)).updated_at == WINDOW.start
    assert decode_record(make_value_at(WINDOW.end - 1)).updated_at == WINDOW.end - 1
    assert get_reason(make_value_at(WINDOW.end)) == Reason.FUTURE
    with pytest.raises(ExpiredVersionError):
        decode_record(make_value_at(WINDOW.start - 1))
    with pytest.raises(ExpiredVersionError):
        decode_record(EXPIRED)


def test_explanation_of_bad_message_quotes_no_value_of_the_message() -> None:
    secret = "Иванов-4509"
    for body in (
        make_value(id=[secret]),
        make_value(updatedAt=secret),
        make_value(updatedAt=f"2025-07-03T11:42:{secret[:2]}"),
        make_value(type=secret),
        make_value(data=secret),
        make_value(clientId=secret * 20),
        secret.encode(),
    ):
        with pytest.raises(RejectedMessageError) as caught:
            decode(make_message(body), WINDOW)
        assert secret[:2] not in caught.value.detail


OFFSETS = st.none() | st.integers(-14 * 60, 14 * 60)


@given(st.datetimes(), OFFSETS, st.integers(0, 9), st.integers(0, 999))
def test_parsed_moment_equals_the_moment_that_datetime_parses(
    naive: datetime, offset: int | None, digits: int, nanoseconds: int
) -> None:
    """A fraction may have up to nine digits and is cut off after the sixth. A moment without an
    offset is in UTC."""
    fraction = f"{naive.microsecond:06d}{nanoseconds:03d}"[:digits]
    zone = timezone(timedelta(minutes=offset or 0))
    text = naive.replace(microsecond=0).isoformat() + (f".{fraction}" if digits else "")
    if offset is not None:
        text += naive.replace(tzinfo=zone).isoformat()[-6:] if offset else "Z"
    moment = naive.replace(microsecond=int(fraction[:6].ljust(6, "0") or 0))
    expected = (moment - datetime(1970, 1, 1)) // MICROSECOND - (offset or 0) * 60_000_000  # noqa: DTZ001
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    "text, same",
    [
        ("2025-07-03T11:42", "2025-07-03T11:42:00Z"),
        ("2025-07-03T11:42:48,5", "2025-07-03T11:42:48.500Z"),
        ("2025-07-03T11:42:48+0330", "2025-07-03T08:12:48Z"),
        ("2025-07-03T11:42:48+03", "2025-07-03T08:42:48Z"),
        ("2025-07-03T11:42:48-00:00", "2025-07-03T11:42:48Z"),
        ("2025-07-03T11:42:48.510186999", "2025-07-03T11:42:48.510186Z"),
    ],
)
def test_moment_is_accepted_in_several_notations(text: str, same: str) -> None:
    assert parse_time(text) == (datetime.fromisoformat(same) - EPOCH) // MICROSECOND


@given(
    st.sampled_from(["2025-07-03T11:42:48.", "2025-07-03T11:42:48.51018", "2025-07-03T11:42:48"]),
    st.text(st.sampled_from("0123456789+-:.,Zz T٣"), max_size=10),
)
def test_moment_outside_the_contract_is_refused(start: str, tail: str) -> None:
    with suppress(RejectedMessageError):
        parse_time(start + tail)
        written = r"(Z|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)?"
        full = rf"[-\dT]{{13}}:42:48([.,]\d{{1,9}})?{written}"
        assert re.fullmatch(full, start + tail, re.ASCII)


def test_every_mutated_message_is_decoded_or_rejected_in_the_same_way_each_time() -> None:
    """`python -m tests.fuzz --messages 1000000` runs the same with more messages."""
    counts = fuzz.run_mutations(random.Random(7), 20_000)
    assert counts.total() == 20_000
    assert counts["record"] > 1_000
    assert {"not_json", "bad_field", "bad_updated_at", "expired"} <= set(counts)


def make_numbers(text: bytes, count: int) -> bytes:
    return make_value_with_data(b'{"a":[' + b",".join([text] * count) + b"]}")


@pytest.mark.parametrize("text", [b"1e131071", b"1E+131071", b"-1.5e00131070", b"7e-16383"])
def test_numbers_with_too_many_digits_are_refused(text: bytes) -> None:
    """A message of 81 KB can have 9,000 numbers with the largest exponent. PostgreSQL would write
    them with 1.2 GB of digits."""
    digits = 16_383 if b"-1" in text[1:] else 131_071
    maximum = MAX_DIGITS // digits
    decode_record(make_numbers(text, maximum - 5))
    assert get_reason(make_numbers(text, maximum + 5)) is Reason.TOO_LARGE
    assert get_reason(make_numbers(text, 9_000)) is Reason.TOO_LARGE


ID = "it must be a text of 1 to 32 characters"
VERSION = "it must be a whole number from 0 to 2147483647, written in digits without quotes"
AUTHOR = "it must be a text of up to 64 characters, null or absent"
TIME = (
    "`updatedAt` must look like 2025-07-03T11:42:48.510186035, then Z, an offset such as +03:00, "
    "or nothing"
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
SENTENCES: list[tuple[bytes | None, str]] = [
    (None, "the message has no value; a deletion is a message whose `type` is DELETE"),
    (b"<xml/>", "the message is not JSON in UTF-8: invalid character at byte 0, counted from 0"),
    (make_value()[:-9], "the message ends before its JSON does; it was cut off"),
    (
        make_value(id="é").replace("é".encode(), b"\xe9"),
        "a text has bytes that are not UTF-8; the message must be JSON in UTF-8",
    ),
    (
        b'{"data":{"a":NaN}}',
        "the message is not JSON in UTF-8: invalid character at byte 13, counted from 0",
    ),
    (make_value_with_data(rb'{"a":"\ud800"}'), SURROGATE),
    (b"null", "the message is null; it must be a JSON object with the fields of the contract"),
    (b"[]", "the message is a list; it must be a JSON object with the fields of the contract"),
    (make_value(id=...), f"`id` is missing; {ID}"),
    (make_value(id=""), f"`id` is empty; {ID}"),
    (make_value(id=5), f"`id` is a whole number; {ID}"),
    (make_value(id="x" * 33), f"`id` is longer than 32 characters; {ID}"),
    (make_value(version="7"), f"`version` is a text; {VERSION}"),
    (make_value(version=7.0), f"`version` is a number with a fraction or an exponent; {VERSION}"),
    (make_value(version=True), f"`version` is true or false; {VERSION}"),
    (make_value(version=-1), f"`version` is less than 0; {VERSION}"),
    (make_value(version=2**31), f"`version` is more than 2147483647; {VERSION}"),
    (make_value(clientId=...), f"`clientId` is missing; {ID.replace('32', '64')}"),
    (make_value(author=1), f"`author` is a whole number; {AUTHOR}"),
    (make_value(productInstanceId={}), f"`productInstanceId` is an object; {APPLICATION}"),
    (make_value(type=...), f"`type` is missing or another word; {TYPE}"),
    (make_value(type=..., revType=[]), f"`revType` is a list; {TYPE}"),
    (
        make_value(updatedAt=...),
        "`updatedAt` is missing; it must be a text with an ISO 8601 date "
        "and time, as 2025-07-03T11:42:48.510186Z",
    ),
    (make_value(updatedAt="yesterday"), TIME),
    (make_value(updatedAt="2025-07-03T11:42:48+24:00"), TIME),
    (make_value(updatedAt="2026-02-30T00:00:00"), NO_SUCH_TIME),
    (
        make_value(updatedAt="9999-01-01T00:00:00"),
        f"`updatedAt` is after {WINDOW.newest} in UTC, "
        "the last day that is accepted; check the clock and the offset of the service",
    ),
    (make_value(data=...), DATA),
    (
        make_value(id="a\0"),
        "`id`, `clientId`, `author` or `productInstanceId` has a NUL character; only `data` may",
    ),
    (make_value_with_data(make_nested(501)), DEEP),
]


def get_detail(body: bytes | None, topic: str = TOPIC) -> str:
    with pytest.raises(RejectedMessageError) as caught:
        decode(make_message(body, topic=topic), WINDOW)
    return caught.value.detail


@pytest.mark.parametrize("body, expected", SENTENCES, ids=range(len(SENTENCES)))
def test_explanation_of_bad_message_names_field_and_fault_and_rule(
    body: bytes | None, expected: str
) -> None:
    assert get_detail(body) == expected


def test_child_without_application_is_refused() -> None:
    assert (
        get_detail(make_value(), CHILD_TOPIC)
        == f"`productInstanceId` is missing or empty; {APPLICATION}"
    )


def test_explanation_of_bad_message_contains_no_programming_terms() -> None:
    words = re.compile(r"Expected|`int|`str|float|regex|isoformat|utf-8' codec|\$\.|malformed")
    bodies = [body for name, (_, body) in HOSTILE.items() if name not in FOUND_BY_POSTGRESQL]
    for detail in map(get_detail, bodies):
        assert not words.search(detail), detail
        assert "\n" not in detail


def name_version(
    body: bytes | None, key: bytes | None = b"K1", topic: str = TOPIC
) -> tuple[Any, ...]:
    return tuple(identify_message(KafkaMessage(topic, 0, 0, -1, key, body)))


@pytest.mark.parametrize(
    "body, expected",
    [
        (make_value(id="A1", version=5, updatedAt="never"), ("A1", 5)),
        (make_value(id="A1", version="5"), ("A1", 5)),
        (make_value(id="A1", version=-1), ("A1", None)),
        (make_value(id="A1", version=2**31), ("A1", None)),
        (make_value(id="A1", version=5.5), ("A1", None)),
        (make_value(id=7, version=5), ("K1", 5)),
        (make_value(id="x" * 33, version=5), ("K1", 5)),
        (make_value(id="a\0b", version=5), ("K1", 5)),
        (make_value(id=..., version=...), ("K1", None)),
        (make_value(id="A1", version=5)[:-9], ("K1", 5)),
        (b'{"version": 5', ("K1", None)),
        (b"[]", ("K1", None)),
        (b"\xff", ("K1", None)),
        (make_nested(100_000), ("K1", None)),
        (None, ("K1", None)),
    ],
    ids=map(str, range(15)),  # messages contain the present time, and ids must not change
)
def test_document_and_version_of_bad_message_are_identified_when_readable(
    body: bytes | None, expected: tuple[Any, ...]
) -> None:
    assert name_version(body) == ("product-instance", *expected)


@pytest.mark.parametrize(
    "key, id",
    [
        (b'"A1"', "A1"),
        (b'"\\u0410"', "А"),
        (b'{"id": "A1", "more": [1]}', "A1"),
        (b'{"number": "A1"}', '{"number": "A1"}'),
        (b'{"id": 7}', '{"id": 7}'),
        (b'"A1', '"A1'),
        (b'"' + b"x" * 33 + b'"', ""),
        (b'"\xff"', ""),
        (b"{" * 100_000, ""),
        (b"A1", "A1"),
        (b"", ""),
        (None, ""),
    ],
    ids=map(str, range(12)),
)
def test_id_of_undecodable_message_is_read_from_its_key_even_when_the_key_is_json(
    key: bytes | None, id: str
) -> None:
    """Some serialisers write the key A1 as `"A1"`, with quotation marks that do not belong to the
    id."""
    assert name_version(b"cut", key) == ("product-instance", id, None)


def test_no_document_is_identified_for_message_of_unknown_topic() -> None:
    assert name_version(make_value(), topic="other") == ("", "", None)


def test_every_reason_of_bad_messages_has_a_text() -> None:
    assert set(REASONS) == {str(reason) for reason in Reason}


@pytest.mark.parametrize(
    "changes, application, made_at",
    [
        ({"productInstanceId": "A1", "version": "x"}, "A1", True),
        ({"productInstanceId": "A1", "updatedAt": "never"}, "A1", False),
        ({"productInstanceId": ""}, "", True),
        ({"productInstanceId": 7}, "", True),
        ({"productInstanceId": "x" * 33}, "", True),
        ({"productInstanceId": "a\0b"}, "", True),
        ({"productInstanceId": "A1", "updatedAt": 5}, "A1", False),
        ({"productInstanceId": "A1", "updatedAt": "0001-01-01T00:00:00+23:59"}, "A1", False),
    ],
)
def test_valid_application_and_moment_are_read_from_a_bad_message_of_a_child(
    changes: dict[str, Any], application: str, made_at: bool
) -> None:
    place = find_parent_and_time(KafkaMessage(CHILD_TOPIC, 0, 0, -1, b"K1", make_value(**changes)))
    assert (place.application, place.updated_at is not None) == (application, made_at)
    assert (
        find_parent_and_time(
            KafkaMessage(TOPIC, 0, 0, -1, b"K1", make_value(**changes))
        ).application
        == ""
    )


def test_message_that_is_not_json_names_no_application_and_no_moment() -> None:
    body = make_value(productInstanceId="A1")[:-5]
    assert find_parent_and_time(KafkaMessage(CHILD_TOPIC, 0, 0, -1, b"K1", body)) == ("", None)
