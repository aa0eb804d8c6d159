"""A log that lost its end and grew again: what is new in it is read, and the cut is reported."""

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.apache.broker import Apache
from tests.consuming import Consumers, Database, until
from tests.kafka import brokers
from tests.messages import TOPIC, value
from tests.processes import consumers, database, server

# Only Apache Kafka keeps its log in a file.
pytestmark = [pytest.mark.kafka, pytest.mark.parametrize("broker", ["apache"], indirect=True)]
__all__ = ["consumers", "database", "server"]


def produce(broker: Apache, name: str, count: int, partition: int = 0) -> None:
    """Versions 0 to count - 1 of an application, each in a batch of its own."""
    producer = Producer({**broker.client(), "acks": "all", "batch.num.messages": 1})
    for number in range(count):
        producer.produce(TOPIC, value(id=name, version=number), partition=partition)
    assert producer.flush(60) == 0


def stored(database: Database) -> set[tuple[str, int]]:
    rows = database.query("SELECT id, version FROM product_instance_aud")
    return {(row["id"], row["version"]) for row in rows}


def versions(**names: int) -> set[tuple[str, int]]:
    return {(name, number) for name, count in names.items() for number in range(count)}


def cuts(consumers: Consumers) -> list[dict[str, Any]]:
    """What `annals ledger` reports of logs that were cut."""
    told = consumers.manage("ledger", "--json")
    assert told.returncode == 0, told.stdout + told.stderr
    return [each for each in json.loads(told.stdout)["partitions"] if each["logCut"]]


def test_cut_and_grown_again_while_no_consumer_ran(
    consumers: Consumers, database: Database, broker: Apache
) -> None:
    """A log that is shorter than before, as long, longer, and one with a marker of a transaction
    where the last message was."""
    brokers.delete(broker, [TOPIC])
    brokers.create(broker, [TOPIC], partitions=4)
    for partition in range(4):
        produce(broker, f"old{partition}", 20, partition)
    assert consumers.drain("--topics", TOPIC)["read"] == 80
    brokers.cut(broker, TOPIC, 10, partitions=4)
    for partition, count in enumerate((2, 10, 30)):
        produce(broker, f"new{partition}", count, partition)
    producer = Producer({**broker.client(), "transactional.id": "upstream"})
    producer.init_transactions(30)
    for number in range(10):
        producer.begin_transaction()
        producer.produce(TOPIC, value(id="new3", version=number), partition=3)
        producer.commit_transaction(30)
    consumers.drain("--topics", TOPIC)
    old = versions(**{f"old{partition}": 20 for partition in range(4)})
    assert stored(database) == old | versions(new0=2, new1=10, new2=30, new3=10)
    assert "was cut" in consumers.all[-1].said()
    found = {each["partition"]: (each["nextOffset"], each["current"]) for each in cuts(consumers)}
    assert found == dict.fromkeys(range(4), (20, False))
    assert consumers.manage("ledger").stdout.count("CUT") == 4
    # From then on reading continues where it was.
    produce(broker, "later", 3)
    assert consumers.drain("--topics", TOPIC)["read"] == 3


@pytest.mark.parametrize("session_ms", [2_000, 60_000], ids=["new session", "same session"])
def test_cut_and_grown_again_while_the_consumer_is_frozen(
    consumers: Consumers, database: Database, broker: Apache, session_ms: int
) -> None:
    """It had nothing to read since its claim: it knows only what the ledger remembers."""
    produce(broker, "old", 20)
    consumers.drain("--topics", TOPIC)
    running = consumers.start("--topics", TOPIC, ANNALS_KAFKA_SESSION_TIMEOUT_MS=str(session_ms))
    running.until_reading()
    running.freeze()
    brokers.cut(broker, TOPIC, 10)
    produce(broker, "new", 30)
    running.wake()
    until(lambda: stored(database) == versions(old=20, new=30), running.said)
    running.terminate()
    assert len(cuts(consumers)) == 1


def test_an_unchanged_log_is_not_taken_for_a_cut_one(
    consumers: Consumers, database: Database, broker: Apache
) -> None:
    """Also after another leader was elected, and after a restart in which nothing was read."""
    produce(broker, "a", 5)
    for _ in range(2):
        assert consumers.drain("--topics", TOPIC)["batches"] <= 5
        broker.kill()
        broker.start()
    produce(broker, "b", 5)
    assert consumers.drain("--topics", TOPIC)["read"] == 5
    assert cuts(consumers) == []
    assert database.count() == 10
