"""CONTRACT.md section 1, rule by rule; moments against datetime; mutations of all kinds."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.documents.jsonb import MOST_DIGITS
from history.entities import ENTITIES, ROOT
from history.record import ChangeType, Record
from history.window import MICROSECONDS_PER_DAY
from ingest.source.decode import (
    MAX_NESTING,
    Expired,
    Reason,
    Rejected,
    decode,
    moment,
)
from tests import fuzz
from tests.messages import (
    CHILD,
    EXPIRED,
    HOSTILE,
    NOW,
    STRANGE,
    TOPIC,
    WINDOW,
    message,
    nested,
    value,
    with_data,
)

# What only PostgreSQL finds, in the snapshot.
LATER = {"no UTF-8 in data", "1e400000", "1e-400000", "1 MB and bad"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def record(body: bytes, topic: str = TOPIC) -> Record:
    return decode(message(body, topic=topic), WINDOW)


def reason(body: bytes | None, topic: str = TOPIC) -> Reason:
    with pytest.raises(Rejected) as caught:
        decode(message(body, topic=topic), WINDOW)
    assert caught.value.detail
    return caught.value.reason


def test_every_field_arrives() -> None:
    assert record(with_data(b'{"a": 1.10, "b":"\\u0041"}')) == Record(
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


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: entity.name)
def test_both_topics_of_a_pair_carry_the_entity(entity: Any) -> None:
    for topic in entity.topics:
        found = record(value(productInstanceId="A1"), topic)
        assert found.entity == entity.name
        assert found.product_instance_id == (None if entity is ROOT else "A1")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str) -> None:
    expected, body = HOSTILE[name]
    if name in LATER:
        assert record(body or b"").data in (body or b"")
    else:
        assert reason(body) == expected


@pytest.mark.parametrize("name", STRANGE)
def test_strange_but_good(name: str) -> None:
    assert record(STRANGE[name]).id


@pytest.mark.parametrize("kind", ChangeType)
@pytest.mark.parametrize("field", ["type", "revType"])
def test_a_type_is_a_word_or_a_number_in_either_field(kind: ChangeType, field: str) -> None:
    for spelling in (kind.name, int(kind), str(int(kind))):
        assert record(value(**{"type": ..., field: spelling})).type == kind


@pytest.mark.parametrize("wrong", ["update", "", "3", -1, 3, "ОБНОВЛЕНО"])
def test_other_types_are_none(wrong: object) -> None:
    assert reason(value(type=wrong)) == Reason.BAD_TYPE
    assert reason(value(type=..., revType=wrong)) == Reason.BAD_TYPE


@pytest.mark.parametrize("wrong", [True, 1.0, [], {}])
def test_a_type_of_another_json_type_is_a_bad_field(wrong: object) -> None:
    assert reason(value(type=wrong)) == Reason.BAD_FIELD


def test_null_is_allowed_for_delete_only() -> None:
    assert record(value(data=None, type="DELETE")).data == b"null"
    assert reason(value(data=..., type="DELETE")) == Reason.BAD_DATA
    for kind in ("CREATE", "UPDATE"):
        assert reason(value(data=None, type=kind)) == Reason.BAD_DATA


@pytest.mark.parametrize("author", [..., None, ""])
def test_an_author_may_be_missing(author: object) -> None:
    assert record(value(author=author)).author is None


@pytest.mark.parametrize("application", [..., None, ""])
def test_a_child_names_its_application(application: object) -> None:
    body = value(productInstanceId=application)
    assert reason(body, CHILD) == Reason.NO_APPLICATION
    assert record(body, TOPIC).product_instance_id is None


def test_lengths_count_characters_not_bytes() -> None:
    found = record(value(id="😀" * 32, clientId="ы" * 64, author="ы" * 64))
    assert (len(found.id), len(found.client_id), len(found.author or "")) == (32, 64, 64)
    for field, length in (("id", 33), ("clientId", 65), ("author", 65), ("productInstanceId", 33)):
        assert (
            reason(value(**{"productInstanceId": "A1", field: "я" * length}), CHILD) == "bad_field"
        )


@pytest.mark.parametrize("field", ["id", "clientId", "author", "productInstanceId"])
def test_nul_is_text_that_cannot_be_stored(field: str) -> None:
    body = value(**{"productInstanceId": "A1", field: "a\0b"})
    assert reason(body, CHILD) == Reason.BAD_TEXT


def test_the_first_version_and_the_last() -> None:
    assert record(value(version=0)).version == 0
    assert record(value(version=2**31 - 1)).version == 2**31 - 1


def test_a_topic_that_nobody_declared() -> None:
    assert reason(value(), "top-storage.export.loan") == Reason.UNKNOWN_TOPIC


def test_nesting_is_counted_in_the_snapshot_whatever_its_strings_hold() -> None:
    assert record(with_data(nested(MAX_NESTING))).data == nested(MAX_NESTING)
    assert reason(with_data(nested(MAX_NESTING + 1))) == Reason.TOO_DEEP
    quoted = b'{"a":"' + rb"\"[{\\" * 1000 + b'","b":["[","{"]}'
    assert record(with_data(quoted)).data == quoted


def test_the_window_is_half_open() -> None:
    def at(microseconds: int) -> bytes:
        return value(updatedAt=(EPOCH + microseconds * MICROSECOND).isoformat())

    assert record(at(WINDOW.start)).updated_at == WINDOW.start
    assert record(at(WINDOW.end - 1)).updated_at == WINDOW.end - 1
    assert reason(at(WINDOW.end)) == Reason.FUTURE
    with pytest.raises(Expired):
        record(at(WINDOW.start - 1))
    with pytest.raises(Expired):
        record(EXPIRED)


def test_what_is_bad_and_old_is_bad() -> None:
    assert reason(value(updatedAt="2001-01-01T00:00:00", data=None)) == Reason.BAD_DATA


def test_no_detail_quotes_the_document() -> None:
    secret = "Иванов-4509"
    for body in (
        value(id=[secret]),
        value(updatedAt=secret),
        value(updatedAt=f"2025-07-03T11:42:{secret[:2]}"),
        value(type=secret),
        value(data=secret),
        value(clientId=secret * 20),
        secret.encode(),
    ):
        with pytest.raises(Rejected) as caught:
            decode(message(body), WINDOW)
        assert secret[:2] not in caught.value.detail


OFFSETS = st.none() | st.integers(-14 * 60, 14 * 60)


@given(st.datetimes(), OFFSETS, st.integers(0, 9), st.integers(0, 999))
def test_a_moment_is_what_datetime_says(
    naive: datetime, offset: int | None, digits: int, rest: int
) -> None:
    """Up to nine digits, cut off after the sixth; UTC where no offset is named."""
    fraction = f"{naive.microsecond:06d}{rest:03d}"[:digits]
    zone = timezone(timedelta(minutes=offset or 0))
    text = naive.replace(microsecond=0).isoformat() + (f".{fraction}" if digits else "")
    if offset is not None:
        text += naive.replace(tzinfo=zone).isoformat()[-6:] if offset else "Z"
    kept = naive.replace(microsecond=int(fraction[:6].ljust(6, "0") or 0))
    expected = (kept - datetime(1970, 1, 1)) // MICROSECOND - (offset or 0) * 60_000_000  # noqa: DTZ001
    assert moment(text) == expected


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
def test_other_ways_to_write_a_moment(text: str, same: str) -> None:
    assert moment(text) == (datetime.fromisoformat(same) - EPOCH) // MICROSECOND


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2025-07-03", "20250703T114248", "2025-W27-4T11:42", "2025-07-03 11:42:48"),
        *("2025-07-03t11:42:48", "2025-07-03T11:42:48z", " 2025-07-03T11:42:48"),
        *("2025-07-03T11:42:48\n", "2025-07-03T24:00:00", "2025-07-03T11:42:60"),
        *("2025-02-29T00:00:00", "0000-01-01T00:00:00", "2025-07-03T11:42:48."),
        *("2025-07-03T11:42:48.1234567890", "2025-07-03T11:42:48+25:00", "٢٠٢٥-07-03T11:42:48"),
        *("2025-07-03T11:42:48 Europe/Moscow", "1751542968", "2025-07-03T114248"),
        *("2025-07-03T11", "2025-07-03T11:42:48.12345678901", "2025-07-03T11:42:48.5 ", "2025-07"),
        *("2025-07-03T11:42:48.2169716:Z", "2025-07-03T11:42:48.304209 5Z"),
        *(
            "2025-07-03T11:42:48.510186٣Z",
            "2025-07-03T11:42:48.5+030015",
            "2025-07-03T11:42:48.5+03.5",
        ),
        *("2025-07-03T11:42:48+03:60", "2025-07-03T11:42:48.5+03:60", "2025-07-03T11:42:48+24:00"),
        *("2025-07-03T1142", "2025-07-03T11:42:48.-1", "2025-07-03T11:42:48.+03:00"),
    ],
)
def test_no_moment(text: str) -> None:
    assert reason(value(updatedAt=text)) == Reason.BAD_TIME


@given(
    st.sampled_from(["2025-07-03T11:42:48.", "2025-07-03T11:42:48.51018", "2025-07-03T11:42:48"]),
    st.text(st.sampled_from("0123456789+-:.,Zz T٣"), max_size=10),
)
def test_nothing_is_a_moment_that_is_not_written_as_the_contract_has_it(
    start: str, rest: str
) -> None:
    with suppress(Rejected):
        moment(start + rest)
        written = r"(Z|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)?"
        full = rf"[-\dT]{{13}}:42:48([.,]\d{{1,9}})?{written}"
        assert re.fullmatch(full, start + rest, re.ASCII)


@given(st.text())
def test_no_text_as_moment_raises_anything_else(text: str) -> None:
    with suppress(Rejected):
        assert isinstance(moment(text), int)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    fuzz.outcome(body, TOPIC)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(
        st.sampled_from(["id", "version", "type", "revType", "updatedAt", "clientId", "author",
                         "productInstanceId", "data", "other"]),
        JSON,
    ),
    st.sampled_from([TOPIC, CHILD]),
)  # fmt: skip
def test_fields_of_any_type_and_absence(changes: dict[str, Any], topic: str) -> None:
    fuzz.outcome(value(**changes), topic)


def test_mutated_messages_give_a_record_or_a_reason_and_the_same_again() -> None:
    """`python -m tests.fuzz --messages 1000000` runs as many as one likes."""
    counts = fuzz.run(random.Random(7), 20_000)
    assert counts.total() == 20_000
    assert counts["record"] > 1_000
    assert {"not_json", "bad_field", "bad_updated_at", "expired"} <= set(counts)


def test_microseconds_of_a_day() -> None:
    assert WINDOW.end - WINDOW.start == 105 * MICROSECONDS_PER_DAY


def numbers(text: bytes, count: int) -> bytes:
    return with_data(b'{"a":[' + b",".join([text] * count) + b"]}")


@pytest.mark.parametrize("text", [b"1e131071", b"1E+131071", b"-1.5e00131070", b"7e-16383"])
def test_exponents_of_more_digits_than_can_be_returned(text: bytes) -> None:
    """9,000 numbers of the largest exponent are 81 KB in the message and 1.2 GB as text."""
    digits = 16_383 if b"-1" in text[1:] else 131_071
    most = MOST_DIGITS // digits
    record(numbers(text, most - 5))
    assert reason(numbers(text, most + 5)) is Reason.TOO_LARGE
    assert reason(numbers(text, 9_000)) is Reason.TOO_LARGE


def test_a_small_document_cannot_exceed_the_limit() -> None:
    """So it is not looked through. The shortest way to write the most digits:"""
    body = numbers(b"1e131071", 512)
    assert len(body) > 9 * 512
    record(body)


@pytest.mark.parametrize(
    "text", [b'"stage1000000"', b'"1e131071"', rb'"\"1e131071"', b'{"e131071":1}', b"0.5", b"1e5"]
)
def test_what_only_looks_like_an_exponent(text: bytes) -> None:
    record(numbers(text, 9_000))


def either_way(body: bytes, topic: str) -> list[object]:
    """What becomes of a message, and of the same one with a space after it: that is not read in one
    pass with its snapshot."""
    found: list[object] = []
    for each in (body, body + b" "):
        try:
            found.append(decode(message(each, topic=topic), WINDOW))
        except Rejected as error:
            found.append(error.reason)
        except Expired as error:
            found.append(("expired", error.record))
    return found


GOOD = with_data(b'{"number":"N1"}')


@pytest.mark.parametrize(
    "body",
    [
        GOOD,
        GOOD.replace(b'"data":', b'"data": '),
        GOOD.replace(b'"data":', b'"data" : '),
        GOOD.replace(b'"data":', rb'"x\"data":'),
        GOOD.replace(b'"data":', rb'"d\u0061ta":7,"data":'),
        GOOD.replace(b'"data":', rb'"d\u0061ta":7,"x\"data":'),
        GOOD.replace(b'"data":', b'"data":{"a":1},"data":'),
        GOOD.replace(b'"data":', b'"x":{"data":{"a":1}},"data":'),
        GOOD.replace(b'"data":', b'"x":{"data":'),
        GOOD.replace(b'"data":', b'"x":["data":'),
        GOOD.replace(b'"data":', b'"x":"data":'),
        GOOD.replace(b'"data":', b'"x" "data":'),
        GOOD.replace(b'"N1"}', b'"N1"} '),
        GOOD.replace(b'"N1"}', b'"N1"},"x":{}'),
        GOOD.replace(b'"N1"}', b'"N1"}}'),
        GOOD.replace(b'"N1"', b"1.5"),
        GOOD.replace(b'"N1"', b'"\xff"'),
        GOOD.replace(b'{"number"', b'{"a":1,,"number"'),
        GOOD.replace(b'"version":7', b'"version":-7'),
        GOOD[:1] + b'"data":{}' + GOOD[-2:],
        b'"data":{}}',
    ],
)
def test_a_snapshot_at_the_end_is_read_as_one_elsewhere(body: bytes) -> None:
    one_pass, other = either_way(body, TOPIC)
    assert one_pass == other


def test_the_snapshot_at_the_end_of_mutated_messages() -> None:
    found: set[object] = set()
    pool = [each for each in fuzz.seeds() if each.endswith(b"}}")]
    source = random.Random(13)
    for _ in range(5_000):
        body = bytearray(source.choice(pool))
        source.choice(fuzz.MUTATIONS)(source, body, pool)
        if not body.endswith(b"}}"):
            body += b"}}"
        for topic in (TOPIC, CHILD):
            one_pass, other = either_way(bytes(body), topic)
            assert one_pass == other, bytes(body)
            found.add("record" if isinstance(one_pass, Record) else one_pass)
    assert {"record", Reason.NOT_JSON, Reason.BAD_FIELD} <= found


@given(st.lists(st.booleans(), min_size=MAX_NESTING - 2, max_size=MAX_NESTING - 2), st.booleans())
def test_nesting_of_objects_and_arrays_in_few_bytes(kinds: list[bool], deep: bool) -> None:
    # Whole messages of 1,000 to 2,500 bytes, in which arrays are counted before objects are.
    opened = b"".join(b'{"":' if kind else b"[" for kind in kinds)
    closed = b"".join(b"}" if kind else b"]" for kind in reversed(kinds))
    data = b'{"":' + opened + (b"[[]]" if deep else b"[]") + closed + b"}"
    if deep:
        assert reason(with_data(data)) == Reason.TOO_DEEP
    else:
        assert record(with_data(data)).data == data
