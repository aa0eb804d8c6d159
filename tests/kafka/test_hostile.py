"""Everything bad at once among good messages: the good are stored, the bad are kept byte for byte,
and the consumer runs on."""

from __future__ import annotations

import json
import random

import pytest
from confluent_kafka import Producer

from annals.embedded.daemon import Daemon
from history.entities import ENTITIES
from tests.consuming import Consumers, Database, send, until
from tests.kafka import brokers
from tests.messages import EXPIRED, HOSTILE, STRANGE, TOPIC, value
from tests.processes import consumers, database, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "server"]

HEADERS = [("trace", b"\xff\x00"), ("none", None), ("trace", b"")]


def test_hostile_among_good(consumers: Consumers, database: Database, broker: Daemon) -> None:
    brokers.create(broker, ["top-storage.export.loan"])
    good = {f"good {number}": value(id=f"good {number}") for number in range(300)}
    good |= {json.loads(body)["id"]: body for body in STRANGE.values()}
    stream = [(TOPIC, body, key.encode(), None) for key, body in good.items()]
    stream += [(TOPIC, body, name.encode(), HEADERS) for name, (_, body) in HOSTILE.items()]
    stream += [(TOPIC, EXPIRED, b"expired", HEADERS)] * 3
    stream += [("top-storage.export.loan", value(id="stranger"), b"stranger", None)]
    random.Random(11).shuffle(stream)
    running = consumers.start()
    running.until_reading()
    send(broker.client(), *stream)
    count = len(stream) - 1
    until(lambda: database.read() == count, running.said)
    send(broker.client(), (TOPIC, value(id="after all that"), b"last"))
    until(lambda: database.read() == count + 1, running.said)
    told = running.terminate()
    assert told["stored"] == len(good) + 1
    assert told["expired"] == 3
    assert told["quarantined"] == len(HOSTILE)
    assert {row["id"] for row in database.query("SELECT id FROM product_instance_aud")} == {
        *good, "after all that",
    }  # fmt: skip
    for entity in ENTITIES[1:]:
        assert database.count(entity.table) == 0
    held = {bytes(row["key"]).decode(): row for row in database.quarantined()}
    assert held.keys() == HOSTILE.keys()
    for name, (reason, body) in HOSTILE.items():
        row = held[name]
        assert (row["reason"], row["value"]) == (reason, body), name
        assert row["headers"] == [["trace", "ff00"], ["none", None], ["trace", ""]]
        assert row["timestamp"] is not None
    assert consumers.manage("ledger").returncode == 0


def test_exactly_what_came_is_stored(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    send(broker.client(), *((TOPIC, body, name.encode()) for name, body in STRANGE.items()))
    consumers.drain("--topics", TOPIC)
    for body in STRANGE.values():
        given = json.loads(body, parse_float=str)
        [row] = database.query(
            "SELECT data::text AS data, version FROM product_instance_aud WHERE id = %s",
            given["id"],
        )
        stored = json.loads(row["data"], parse_float=str)
        if given["id"] == "small":
            assert float(stored["a"]) == 0
            assert len(stored["a"]) > 16_000
        else:
            assert stored == given["data"], given["id"]


@pytest.mark.parametrize("stamp", [2**62, 253_402_300_800_000, 1], ids=str)
def test_a_message_that_claims_an_impossible_time(
    consumers: Consumers, database: Database, broker: Daemon, stamp: int
) -> None:
    producer = Producer(broker.client())
    refused: list[object] = []
    for body in (value(id="a"), b"bad"):
        producer.produce(
            TOPIC, body, timestamp=stamp, partition=0,
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(20) == 0
    if refused:  # Apache Kafka itself does not take what is dated far ahead
        assert stamp > 1
        return
    told = consumers.drain("--topics", TOPIC)
    assert (told["stored"], told["quarantined"]) == (1, 1)
    assert consumers.manage("ledger").returncode == 0
