"""Messages as they come from Kafka, for the tests of ingest: good ones, and bad in every way."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

from history.daily.window import Window
from history.entities import BY_NAME, root
from ingest.source.message import Message, TopicPartition

TOPIC = root().topics[0]
TWIN = root().topics[1]
CHILD = BY_NAME["product-task"].topics[0]
PARTICIPANT = BY_NAME["participant-role"].topics[0]
# The kinds that the simulator makes; others may be declared.
SIMULATED = ("product-instance", "participant-role", "product-task", "realty-info", "product-car")

NOW = datetime.now(UTC).replace(microsecond=0)
WINDOW = Window.at(NOW, 90, 14)
SOURCE = TopicPartition(TOPIC, "id-of-topic", 0)


def today() -> date:
    """Today (UTC), also when the tests began yesterday."""
    return datetime.now(UTC).date()


def fields(**changes: Any) -> dict[str, Any]:
    """The contract's fields of a good message; `...` as a value leaves a field out."""
    found = {
        "id": "02xdf2pQLJL5mLfJZodiHa",
        "version": 7,
        "type": "UPDATE",
        "updatedAt": NOW.replace(tzinfo=None).isoformat(),
        "clientId": "top-data-client-actualizator",
        "author": "m.prygunov",
        "data": {"rate": "18.4", "amount": 1},
        **changes,
    }
    return {name: value for name, value in found.items() if value is not ...}


def value(**changes: Any) -> bytes:
    """A good message's value, or one that is bad by these changes."""
    return json.dumps(fields(**changes), ensure_ascii=False).encode("utf-8", "surrogatepass")


def with_data(text: bytes, **changes: Any) -> bytes:
    """A message whose snapshot is exactly this text."""
    return value(data="@", **changes).replace(b'"@"', text)


def message(
    body: bytes | None, offset: int = 0, topic: str = TOPIC, partition: int = 0, **more: Any
) -> Message:
    """The value as a message of a topic."""
    return Message(topic, partition, offset, -1, b"key", body, **more)


def nested(depth: int) -> bytes:
    """An object nested so deep, itself counted."""
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


BIG = 1_000_000
DAY = timedelta(days=1)

# Name of each way to be bad, what decoding or PostgreSQL says of it, and the value.
HOSTILE: dict[str, tuple[str, bytes | None]] = {
    "no value": ("empty_value", None),
    "empty value": ("empty_value", b""),
    "not JSON": ("not_json", b"<xml/>"),
    "cut off": ("not_json", value()[:-9]),
    "two values": ("not_json", value() + b"{}"),
    "no UTF-8": ("not_json", b"\xff\xfe" + value()),
    "UTF-16": ("not_json", value().decode().encode("utf-16")),
    "NaN": ("not_json", with_data(b'{"a":NaN}')),
    "surrogate in an identifier": ("not_json", with_data(b"{}").replace(b"02xdf2pQLJ", rb"\ud800")),
    "JSON null": ("bad_field", b"null"),
    "an array": ("bad_field", b"[" + value() + b"]"),
    "no id": ("bad_field", value(id=...)),
    "empty id": ("bad_field", value(id="")),
    "long id": ("bad_field", value(id="x" * 33)),
    "number as id": ("bad_field", value(id=5)),
    "no version": ("bad_field", value(version=...)),
    "text as version": ("bad_field", value(version="7")),
    "true as version": ("bad_field", value(version=True)),
    "negative version": ("bad_field", value(version=-1)),
    "huge version": ("bad_field", value(version=2**31)),
    "no clientId": ("bad_field", value(clientId=...)),
    "long clientId": ("bad_field", value(clientId="x" * 65)),
    "long author": ("bad_field", value(author="x" * 65)),
    "number as author": ("bad_field", value(author=1)),
    "no type": ("bad_type", value(type=...)),
    "unknown type": ("bad_type", value(type="UPSERT")),
    "type 3": ("bad_type", value(type=3)),
    "no updatedAt": ("bad_field", value(updatedAt=...)),
    "word as updatedAt": ("bad_updated_at", value(updatedAt="yesterday")),
    "30 February": ("bad_updated_at", value(updatedAt="2026-02-30T00:00:00")),
    "far future": ("in_the_future", value(updatedAt="9999-12-31T23:59:59")),
    "no data": ("bad_data", value(data=...)),
    "null as data": ("bad_data", value(data=None)),
    "text as data": ("bad_data", value(data="{}")),
    "array as data": ("bad_data", value(data=[])),
    "NUL in id": ("text_not_storable", value(id="a\0")),
    "lone surrogate": ("not_json", with_data(rb'{"a":"\ud800"}')),
    "wrong surrogate pair": ("not_json", with_data(rb'{"a":"\ud800\ud800"}')),
    "no UTF-8 in data": ("text_not_storable", with_data(b'{"a":"\xff"}')),
    "1e400000": ("number_out_of_range", with_data(b'{"a":1e400000}')),
    "1e-400000": ("number_out_of_range", with_data(b'{"a":1e-400000}')),
    "9,000 x 1e131071": ("too_large", with_data(b'{"a":[' + b"1e131071," * 9_000 + b"0]}")),
    "501 deep": ("nested_too_deep", with_data(nested(501))),
    "100,000 deep": ("nested_too_deep", with_data(nested(100_000))),
    "NUL and a lone surrogate": ("not_json", with_data(rb'{"a":"\u0000\ud800"}')),
    "1 MB and bad": ("number_out_of_range", with_data(b'{"a":"' + b"x" * BIG + b'","b":1e400000}')),
}

# What only PostgreSQL finds, in the snapshot.
LATER = ("no UTF-8 in data", "1e400000", "1e-400000", "1 MB and bad")

# Good, though they look bad.
STRANGE: dict[str, bytes] = {
    "1 MB": with_data(b'{"a":"' + b"x" * BIG + b'"}', id="1 MB"),
    "5 MB": with_data(b'{"a":"' + b"x" * 5 * BIG + b'"}', id="5 MB"),
    "NUL in a value": with_data(rb'{"a":"\u0000"}', id="NUL in a value"),
    "NUL in a name": with_data(rb'{"\u0000":1}', id="NUL in a name"),
    "1 MB and NUL": with_data(b'{"a":"' + b"x" * BIG + rb'\u0000"}', id="1 MB and NUL"),
    "500 deep and NUL": with_data(nested(500).replace(b"[]", rb'["\u0000"]'), id="500 and NUL"),
    "500 deep": with_data(nested(500), id="500 deep"),
    "an exact number": with_data(b'{"a":12345678901234567890.10}', id="exact"),
    "a small number": with_data(b'{"a":1e-16000}', id="small"),
    "a pair of surrogates": with_data(rb'{"a":"\ud83d\ude00"}', id="pair"),
    "32 characters": value(id="ы" * 32),
    "deleted": value(id="deleted", type="DELETE", data=None),
    "revType": value(id="revType", type=..., revType=0),
    "unknown field": value(id="unknown field", extra={"deep": [1, 2]}),
    "an offset": value(id="an offset", updatedAt=f"{NOW:%Y-%m-%dT%H:%M:%S}+03:00"),
    "nine digits": value(id="nine digits", updatedAt=f"{NOW:%Y-%m-%dT%H:%M:%S}.123456999"),
}

EXPIRED = value(id="expired", updatedAt="0001-01-01T00:00:00")

# Every value above.
ALL = [*STRANGE.values(), *(body for _, body in HOSTILE.values()), EXPIRED]
