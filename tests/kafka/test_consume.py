"""`annals consume` on both brokers, from the message to the row."""

import time
from collections.abc import Iterable
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer

from annals.embedded.broker import Daemon
from tests.consuming import Consumers, Database, Feed, complete, environment, send, until
from tests.kafka import brokers
from tests.messages import TOPIC, TWIN, value
from tests.processes import consumers, database, feed, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "feed", "server"]


def test_what_was_produced_is_what_is_stored(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    feed.send(3_000)
    summary = consumers.drain()
    assert summary["read"] == summary["stored"] == 3_000
    complete(consumers, database, feed)
    again = consumers.drain()
    assert again["read"] == 0
    complete(consumers, database, feed)


@pytest.mark.one_broker
def test_without_topics_there_is_nothing_to_wait_for(
    broker: Daemon, database: Database, tmp_path: Path
) -> None:
    """No broker assigns a partition then; the embedded one does not even form the group."""
    consumers = Consumers(environment(broker, database), tmp_path)
    try:
        ended = consumers.start("--until-idle", "1")
        assert ended.process.wait(60) == 1
        assert "annals: the brokers have no topic top-storage.export." in ended.said()
        running = consumers.start()
        until(lambda: "the brokers have no topic " in running.said(), running.said, seconds=60)
        assert "top-storage.export.product-task" in running.said()
        running.terminate()
    finally:
        consumers.stop()


def test_a_running_one_stores_at_once_and_ends_at_sigterm(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    running = consumers.start()
    running.until_reading()
    feed.send(1)
    until(lambda: database.total() == 1, running.said, seconds=10)
    with feed.pouring(500):
        time.sleep(1)
        summary = running.terminate()
    assert summary["read"] == summary["stored"] == database.total() > 1
    assert database.read() == summary["read"]
    consumers.drain()
    complete(consumers, database, feed)


@pytest.mark.one_broker
def test_only_the_topics_that_are_named(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    send(broker.client(), (TOPIC, value(id="live"), "a"), (TWIN, value(id="old"), "a"))
    summary = consumers.drain("--topics", TWIN)
    assert summary["read"] == 1
    assert [row["id"] for row in database.query("SELECT id FROM product_instance_aud")] == ["old"]
    wrong = consumers.manage("consume", "--topics", "top-storage.export.loan")
    assert wrong.returncode != 0
    assert "top-storage.export.loan" in wrong.stderr


def test_a_topic_made_again_is_read_from_its_start(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    send(broker.client(), *((TOPIC, value(id="a", version=n), "a") for n in range(10)))
    assert consumers.drain("--topics", TOPIC)["stored"] == 10
    brokers.delete(broker, [TOPIC])
    brokers.create(broker, [TOPIC])
    send(broker.client(), *((TOPIC, value(id="b", version=n), "b") for n in range(4)))
    assert consumers.drain("--topics", TOPIC)["stored"] == 4
    assert database.count() == 14
    figures = consumers.ledger()
    assert figures["ok"]
    mine = [each for each in figures["partitions"] if each["partition"] == 0]
    assert {(each["current"], each["read"]) for each in mine} == {(False, 10), (True, 4)}


# Not on the embedded broker: what that answers to a fetch of the old topic's id makes
# librdkafka 2.16 itself crash (rd_kafka_metadata_update_op).
@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_a_topic_made_again_under_a_running_consumer(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    running = consumers.start("--topics", TOPIC)
    running.until_reading()
    send(broker.client(), *((TOPIC, value(id="a", version=n), "a") for n in range(10)))
    until(lambda: database.count() == 10, running.said)
    brokers.delete(broker, [TOPIC])
    brokers.create(broker, [TOPIC])
    send(broker.client(), *((TOPIC, value(id="b", version=n), "b") for n in range(4)))
    until(lambda: database.count() == 14, running.said, seconds=90)
    running.terminate()
    assert consumers.manage("ledger").returncode == 0


CONNECTIONS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = %s AND application_name = 'annals-consume'"
)


def produce(
    broker: Daemon, topic: str, partition: int, versions: Iterable[tuple[str, int]]
) -> None:
    """Produce versions of documents to one partition, in this order."""
    producer = Producer({**broker.client(), "acks": "all"})
    for name, version in versions:
        body = value(id=name, version=version, data={"number": f"N-{name}", "n": version})
        producer.produce(topic, body, name, partition=partition)
    assert producer.flush(60) == 0


@pytest.mark.one_broker
def test_a_write_that_waits_stops_no_other_lane(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    """Two batches of one consumer at the same time, over two connections."""
    running = consumers.start()
    running.until_reading()
    for partition in range(2):
        produce(broker, TOPIC, partition, [(f"first-{partition}", 0)])
    until(lambda: database.read() == 2, running.said)
    assert len(database.query(CONNECTIONS, database.name)) == 2
    with psycopg.connect(database.url) as plain:
        plain.execute(
            "SELECT FROM ingest_ledger WHERE topic = %s AND partition = 0 FOR UPDATE", (TOPIC,)
        )
        produce(broker, TOPIC, 0, [("waits", 0)])
        for number in range(5):
            produce(broker, TOPIC, 1, [("goes on", number)])
            until(lambda number=number: database.count() == 3 + number, running.said)  # type: ignore[misc]
    until(lambda: database.count() == 8, running.said)
    running.terminate()
    assert consumers.manage("ledger").returncode == 0
