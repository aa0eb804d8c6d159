"""Kafka messages for the tests of ingest: good messages, and bad messages of every kind."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

from history.kinds.entities import BY_NAME, get_root
from history.store.days.window import Window
from ingest.messages.message import KafkaMessage, TopicPartition

TOPIC = get_root().topics[0]
TWIN_TOPIC = get_root().topics[1]
CHILD_TOPIC = BY_NAME["product-task"].topics[0]
PARTICIPANT_TOPIC = BY_NAME["participant-role"].topics[0]
# The kinds that the simulator makes; others may be declared.
SIMULATED = ("product-instance", "participant-role", "product-task", "realty-info", "product-car")

NOW = datetime.now(UTC).replace(microsecond=0)
WINDOW = Window.at(NOW, 90, 14)
SOURCE = TopicPartition(TOPIC, "id-of-topic", 0)


def get_today() -> date:
    """Return today's date in UTC, even if the tests began yesterday."""
    return datetime.now(UTC).date()


def make_fields(**changes: Any) -> dict[str, Any]:
    """Return the fields of a good message, with some changes.

    A field that is changed to Ellipsis is left out.
    """
    all_fields = {
        "id": "02xdf2pQLJL5mLfJZodiHa",
        "version": 7,
        "type": "UPDATE",
        "updatedAt": NOW.replace(tzinfo=None).isoformat(),
        "clientId": "top-data-client-actualizator",
        "author": "m.prygunov",
        "data": {"rate": "18.4", "amount": 1},
        **changes,
    }
    return {name: value for name, value in all_fields.items() if value is not ...}


def make_value(**changes: Any) -> bytes:
    """Return the value of a good message with some changed fields, which can make it bad."""
    return json.dumps(make_fields(**changes), ensure_ascii=False).encode("utf-8", "surrogatepass")


def make_value_with_data(text: bytes, **changes: Any) -> bytes:
    """Return a message whose snapshot is exactly this text."""
    return make_value(data="@", **changes).replace(b'"@"', text)


def make_message(
    body: bytes | None, offset: int = 0, topic: str = TOPIC, partition: int = 0, **more: Any
) -> KafkaMessage:
    """Return a message of a topic with this value."""
    return KafkaMessage(topic, partition, offset, -1, b"key", body, **more)


def make_nested(depth: int) -> bytes:
    """Return a JSON object with nested arrays. The object is the first of `depth` levels."""
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


BIG = 1_000_000
DAY = timedelta(days=1)

# Bad messages by the name of the fault: the reject reason, and the value of the message.
HOSTILE: dict[str, tuple[str, bytes | None]] = {
    "no value": ("empty_value", None),
    "empty value": ("empty_value", b""),
    "not JSON": ("not_json", b"<xml/>"),
    "cut off": ("not_json", make_value()[:-9]),
    "two values": ("not_json", make_value() + b"{}"),
    "no UTF-8": ("not_json", b"\xff\xfe" + make_value()),
    "UTF-16": ("not_json", make_value().decode().encode("utf-16")),
    "NaN": ("not_json", make_value_with_data(b'{"a":NaN}')),
    "surrogate in an identifier": (
        "not_json",
        make_value_with_data(b"{}").replace(b"02xdf2pQLJ", rb"\ud800"),
    ),
    "JSON null": ("bad_field", b"null"),
    "an array": ("bad_field", b"[" + make_value() + b"]"),
    "no id": ("bad_field", make_value(id=...)),
    "empty id": ("bad_field", make_value(id="")),
    "long id": ("bad_field", make_value(id="x" * 33)),
    "number as id": ("bad_field", make_value(id=5)),
    "no version": ("bad_field", make_value(version=...)),
    "text as version": ("bad_field", make_value(version="7")),
    "true as version": ("bad_field", make_value(version=True)),
    "negative version": ("bad_field", make_value(version=-1)),
    "huge version": ("bad_field", make_value(version=2**31)),
    "no clientId": ("bad_field", make_value(clientId=...)),
    "long clientId": ("bad_field", make_value(clientId="x" * 65)),
    "long author": ("bad_field", make_value(author="x" * 65)),
    "number as author": ("bad_field", make_value(author=1)),
    "no type": ("bad_type", make_value(type=...)),
    "unknown type": ("bad_type", make_value(type="UPSERT")),
    "type 3": ("bad_type", make_value(type=3)),
    "no updatedAt": ("bad_field", make_value(updatedAt=...)),
    "word as updatedAt": ("bad_updated_at", make_value(updatedAt="yesterday")),
    "30 February": ("bad_updated_at", make_value(updatedAt="2026-02-30T00:00:00")),
    "far future": ("in_the_future", make_value(updatedAt="9999-12-31T23:59:59")),
    "no data": ("bad_data", make_value(data=...)),
    "null as data": ("bad_data", make_value(data=None)),
    "text as data": ("bad_data", make_value(data="{}")),
    "array as data": ("bad_data", make_value(data=[])),
    "NUL in id": ("text_not_storable", make_value(id="a\0")),
    "lone surrogate": ("not_json", make_value_with_data(rb'{"a":"\ud800"}')),
    "wrong surrogate pair": ("not_json", make_value_with_data(rb'{"a":"\ud800\ud800"}')),
    "no UTF-8 in data": ("text_not_storable", make_value_with_data(b'{"a":"\xff"}')),
    "1e400000": ("number_out_of_range", make_value_with_data(b'{"a":1e400000}')),
    "1e-400000": ("number_out_of_range", make_value_with_data(b'{"a":1e-400000}')),
    "9,000 x 1e131071": (
        "too_large",
        make_value_with_data(b'{"a":[' + b"1e131071," * 9_000 + b"0]}"),
    ),
    "501 deep": ("nested_too_deep", make_value_with_data(make_nested(501))),
    "100,000 deep": ("nested_too_deep", make_value_with_data(make_nested(100_000))),
    "NUL and a lone surrogate": ("not_json", make_value_with_data(rb'{"a":"\u0000\ud800"}')),
    "1 MB and bad": (
        "number_out_of_range",
        make_value_with_data(b'{"a":"' + b"x" * BIG + b'","b":1e400000}'),
    ),
}

# Names of faults in the snapshot that only PostgreSQL detects.
FOUND_BY_POSTGRESQL = ("no UTF-8 in data", "1e400000", "1e-400000", "1 MB and bad")

# Good messages that look bad.
STRANGE: dict[str, bytes] = {
    "1 MB": make_value_with_data(b'{"a":"' + b"x" * BIG + b'"}', id="1 MB"),
    "5 MB": make_value_with_data(b'{"a":"' + b"x" * 5 * BIG + b'"}', id="5 MB"),
    "NUL in a value": make_value_with_data(rb'{"a":"\u0000"}', id="NUL in a value"),
    "NUL in a name": make_value_with_data(rb'{"\u0000":1}', id="NUL in a name"),
    "1 MB and NUL": make_value_with_data(b'{"a":"' + b"x" * BIG + rb'\u0000"}', id="1 MB and NUL"),
    "500 deep and NUL": make_value_with_data(
        make_nested(500).replace(b"[]", rb'["\u0000"]'), id="500 and NUL"
    ),
    "500 deep": make_value_with_data(make_nested(500), id="500 deep"),
    "an exact number": make_value_with_data(b'{"a":12345678901234567890.10}', id="exact"),
    "a small number": make_value_with_data(b'{"a":1e-16000}', id="small"),
    "a pair of surrogates": make_value_with_data(rb'{"a":"\ud83d\ude00"}', id="pair"),
    "32 characters": make_value(id="ы" * 32),
    "deleted": make_value(id="deleted", type="DELETE", data=None),
    "revType": make_value(id="revType", type=..., revType=0),
    "unknown field": make_value(id="unknown field", extra={"deep": [1, 2]}),
    "an offset": make_value(id="an offset", updatedAt=f"{NOW:%Y-%m-%dT%H:%M:%S}+03:00"),
    "nine digits": make_value(id="nine digits", updatedAt=f"{NOW:%Y-%m-%dT%H:%M:%S}.123456999"),
}

EXPIRED = make_value(id="expired", updatedAt="0001-01-01T00:00:00")

# Every value above.
ALL = [*STRANGE.values(), *(body for _, body in HOSTILE.values()), EXPIRED]
