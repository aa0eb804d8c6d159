"""A log that lost its end and grew again: what is new in it is read, and the cut is reported."""

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from history.entities import ENTITIES
from tests.apache.broker import Apache
from tests.consuming import Consumers, Database, send, until
from tests.kafka import brokers
from tests.messages import TOPIC, value
from tests.processes import consumers, database, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "server"]


@pytest.fixture
def broker(apache: Apache) -> Apache:
    """Only Apache Kafka keeps its log in a file."""
    return apache


@pytest.fixture
def topics(broker: Apache) -> list[str]:
    return brokers.create(broker, [topic for entity in ENTITIES for topic in entity.topics])


def produce(broker: Apache, name: str, count: int) -> None:
    """Versions 0 to count - 1 of an application, each in a batch of its own."""
    client = {**broker.client(), "batch.num.messages": 1}
    send(client, *((TOPIC, value(id=name, version=n)) for n in range(count)))


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


@pytest.mark.parametrize("new", [2, 10, 30], ids=["shorter", "as long", "longer"])
def test_cut_and_grown_again_while_no_consumer_ran(
    consumers: Consumers, database: Database, broker: Apache, new: int
) -> None:
    produce(broker, "old", 20)
    assert consumers.drain("--topics", TOPIC)["read"] == 20
    brokers.cut(broker, TOPIC, 10)
    produce(broker, "new", new)
    consumers.drain("--topics", TOPIC)
    assert stored(database) == versions(old=20, new=new)
    assert "was cut" in consumers.all[-1].said()
    [cut] = cuts(consumers)
    assert (cut["partition"], cut["nextOffset"], cut["current"]) == (0, 20, False)
    assert "CUT" in consumers.manage("ledger").stdout
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


def test_a_marker_is_where_the_last_message_was(
    consumers: Consumers, database: Database, broker: Apache
) -> None:
    produce(broker, "old", 20)
    consumers.drain("--topics", TOPIC)
    brokers.cut(broker, TOPIC, 10)
    producer = Producer({**broker.client(), "transactional.id": "upstream"})
    producer.init_transactions(30)
    for number in range(10):
        producer.begin_transaction()
        producer.produce(TOPIC, value(id="new", version=number), partition=0)
        producer.commit_transaction(30)
    consumers.drain("--topics", TOPIC)
    assert stored(database) == versions(old=20, new=10)
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
