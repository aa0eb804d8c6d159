"""Strange and bad messages through a real broker.

The good ones are stored exactly, the bad ones are in quarantine byte for byte, and the consumer
goes on.
"""

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer

from annals.embedded.broker import KafkaServer
from history.documents.jsonb import from_store
from ingest.kafka.client import NOT_READABLE
from tests.consuming import ConsumerStarter, ProductDatabase, produce_messages
from tests.kafka.raw_producer import open_raw_producer
from tests.messages import EXPIRED, HOSTILE, NOW, STRANGE, TOPIC, make_value
from tests.processes import consumers, database, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "server"]

HEADERS = [("trace", b"\xff\x00"), ("none", None), ("trace", b"")]


@pytest.mark.one_broker
def test_good_messages_that_look_bad_are_stored_exactly(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    produce_messages(
        broker.make_client_config(),
        *((TOPIC, body, name.encode()) for name, body in STRANGE.items()),
    )
    consumers.consume_to_end("--topics", TOPIC)
    for body in STRANGE.values():
        arguments = json.loads(body, parse_float=str)
        [row] = database.query(
            "SELECT data::text AS data, version FROM product_instance_aud WHERE id = %s",
            arguments["id"],
        )
        stored = json.loads(from_store(row["data"].encode()), parse_float=str)
        if arguments["id"] == "small":
            assert float(stored["a"]) == 0
            assert len(stored["a"]) > 16_000
        else:
            assert stored == arguments["data"], arguments["id"]


@pytest.mark.parametrize("stamp", [2**62, 253_402_300_800_000, 1], ids=str)
def test_message_with_extreme_timestamp_is_read(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer, stamp: int
) -> None:
    producer = Producer(broker.make_client_config())
    refused: list[object] = []
    for body in (make_value(id="a"), b"bad"):
        producer.produce(
            TOPIC,
            body,
            timestamp=stamp,
            partition=0,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert producer.flush(20) == 0
    if refused:  # Apache Kafka refuses timestamps far in the future
        assert stamp > 1
        return
    summary = consumers.consume_to_end("--topics", TOPIC)
    assert (summary["stored"], summary["quarantined"]) == (1, 1)
    assert consumers.run_command("ledger").returncode == 0


def decode_headers(row: dict[str, Any]) -> list[tuple[bytes, bytes | None]]:
    """Return the headers of a quarantined message as bytes."""
    return [
        (name.encode(), None if header is None else bytes.fromhex(header))
        for name, header in row["headers"]
    ]


@pytest.mark.parametrize("name", [b"na\xffme", b"\xed\xa0\x80"], ids=["byte", "surrogate"])
def test_message_with_invalid_header_name_is_read_without_headers(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer, name: bytes
) -> None:
    """The client returns none of the message's headers. The message is read all the same. If it is
    bad, quarantine has its key and value."""
    headers = [(b"trace", b"1"), (name, b"\0\xff"), (b"none", None)]
    with open_raw_producer(broker.make_client_config()) as producer:
        producer.send_message(TOPIC, make_value(id="good"), b"k", headers)
        producer.send_message(TOPIC, b"bad", b"k", headers)
        producer.send_message(TOPIC, make_value(id="last"), b"k")
    summary = consumers.consume_to_end("--topics", TOPIC)
    assert (summary["read"], summary["stored"], summary["quarantined"]) == (3, 2, 1)
    [row] = database.list_quarantined()
    assert (row["key"], row["value"]) == (b"k", b"bad")
    assert decode_headers(row) == [(NOT_READABLE.encode(), None)]
    output = consumers.run_command("quarantine", "show", str(row["id"]))
    assert output.returncode == 0, output.stderr
    assert consumers.run_command("quarantine", "retry", "--now").returncode == 0
    assert consumers.run_command("ledger").returncode == 0


def test_every_random_message_is_accounted_for(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer, topics: list[str]
) -> None:
    """A Kafka client sends random keys, values, headers and timestamps. The ledger counts each
    offset, and messages in quarantine have the bytes that were sent."""
    chance = random.Random(7)
    pool = [*STRANGE.values(), *(body for _, body in HOSTILE.values()), EXPIRED, b"\0", None]
    pool = [body for body in pool if len(body or b"") < 20_000]
    sent: dict[int, tuple[Any, ...]] = {}
    with open_raw_producer(broker.make_client_config()) as producer:
        for offset in range(600):
            body = generate_mutated_values(chance, chance.choice(pool))
            key = chance.choice([None, b"", b"\0\xff", chance.randbytes(chance.randrange(2_000))])
            headers = [
                (make_header_name(chance), chance.choice([None, b"", chance.randbytes(9)]))
                for _ in range(chance.choice((0, 0, 1, 1, 4)))
            ]
            stamp = chance.choice([0, 1, 1_700_000_000_000, int(NOW.timestamp() * 1000)])
            producer.send_message(TOPIC, body, key, headers, stamp)
            sent[offset] = key, body, headers, stamp
    summary = consumers.consume_to_end("--topics", TOPIC)
    assert summary["read"] == len(sent)
    assert consumers.run_command("ledger").returncode == 0
    rows = database.list_quarantined()
    assert len(rows) == summary["quarantined"] > 200
    for row in rows:
        key, body, headers, stamp = sent[row["offset"]]
        assert (row["key"], row["value"]) == (key, body)
        are_all_readable = all(is_readable(name) for name, _ in headers)
        assert decode_headers(row) == (
            headers if are_all_readable else [(NOT_READABLE.encode(), None)]
        )
        if stamp:
            assert row["timestamp"] == datetime.fromtimestamp(stamp / 1000, UTC)


def generate_mutated_values(chance: random.Random, body: bytes | None) -> bytes | None:
    if not body or chance.random() < 0.5:
        return body
    changed = bytearray(body)
    for _ in range(chance.randrange(1, 4)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def make_header_name(chance: random.Random) -> bytes:
    """Return a random header name without NUL, because librdkafka ends a name at NUL."""
    return chance.choice(
        [b"", b"trace", b"x" * 500, "имя".encode(), bytes(chance.choices(range(1, 256), k=3))]
    )


def is_readable(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
