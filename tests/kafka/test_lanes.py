"""Two batches of one consumer at the same time, over two connections."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psycopg
import pytest
from confluent_kafka import Producer

from annals.embedded.broker import Daemon
from tests.consuming import Consumers, Database, until
from tests.messages import TOPIC, TWIN, value
from tests.processes import consumers, database, server

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("topics")]
__all__ = ["consumers", "database", "server"]

CONNECTIONS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = %s AND application_name = 'annals-consume'"
)

GOES_ON = "SELECT 1 FROM product_instance_aud WHERE id = 'goes on'"


def send(broker: Daemon, topic: str, partition: int, versions: Iterable[tuple[str, int]]) -> None:
    """Produce versions of documents to one partition, in this order."""
    producer = Producer({**broker.client(), "acks": "all"})
    for name, version in versions:
        body = value(id=name, version=version, data={"number": f"N-{name}", "n": version})
        producer.produce(topic, body, name, partition=partition)
    assert producer.flush(60) == 0


def test_the_same_versions_from_two_lanes_are_stored_once(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    """The twin topic has them in other partitions and in another order: both writers insert the
    same keys at the same time, and wait for each other."""
    versions = [(f"d{number % 40}", number // 40) for number in range(4_000)]
    for round_ in range(4):
        part = versions[round_ * 1_000 : (round_ + 1) * 1_000]
        send(broker, TOPIC, 0, part)
        send(broker, TWIN, 1, reversed(part))
    summary = consumers.drain(ANNALS_BATCH_ROWS="400")
    assert (summary["read"], summary["stored"], summary["repeated"]) == (8_000, 4_000, 4_000)
    assert database.count() == 4_000
    assert database.unfindable() == []
    assert consumers.manage("ledger").returncode == 0


def test_a_write_that_waits_stops_no_other_lane(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    running = consumers.start()
    running.until_reading()
    for partition in range(2):
        send(broker, TOPIC, partition, [(f"first-{partition}", 0)])
    until(lambda: database.read() == 2, running.said)
    assert len(database.query(CONNECTIONS, database.name)) == 2
    with psycopg.connect(database.url) as plain:
        plain.execute(
            "SELECT FROM ingest_ledger WHERE topic = %s AND partition = 0 FOR UPDATE", (TOPIC,)
        )
        send(broker, TOPIC, 0, [("waits", 0)])
        for number in range(5):
            send(broker, TOPIC, 1, [("goes on", number)])
            until(lambda number=number: database.count() == 3 + number, running.said)  # type: ignore[misc]
    until(lambda: database.count() == 8, running.said)
    running.terminate()
    assert consumers.manage("ledger").returncode == 0


def test_a_large_write_that_waits_does_not_hold_small_ones_back(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    """A batch that is smaller than the one in flight waits for that, but not for as long as a lock
    is held. What was read before reading pauses is written, too."""
    running = consumers.start(ANNALS_BATCH_ROWS="200")
    running.until_reading()
    with psycopg.connect(database.url) as plain:
        plain.execute(
            "SELECT FROM ingest_ledger WHERE topic = %s AND partition = 0 FOR UPDATE", (TOPIC,)
        )
        send(broker, TOPIC, 0, [("waits", number) for number in range(90)])
        for number in range(3):
            send(broker, TOPIC, 1, [("goes on", number)])
            until(lambda number=number: database.count() == 1 + number, running.said)  # type: ignore[misc]
        send(broker, TOPIC, 1, [("is read", number) for number in range(10)])
        time.sleep(0.2)  # a consumer that gets both at once may read what fills the batch first
        send(broker, TOPIC, 0, [("fills the batch", number) for number in range(300)])
        until(lambda: database.count() == 13, running.said)
    until(lambda: database.count() == 403, running.said)
    running.terminate()
    assert consumers.manage("ledger").returncode == 0


def test_a_backlog_of_one_lane_does_not_hold_the_other_back(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    """Batch follows batch in one lane, each larger than what little the other one has."""
    backlog = 90_000
    send(broker, TOPIC, 0, [("backlog", number) for number in range(backlog)])
    running = consumers.start()
    until(lambda: database.read() > 0, running.said)
    send(broker, TOPIC, 1, [("goes on", 0)])
    until(lambda: database.query(GOES_ON), running.said)
    assert database.read() < backlog
    running.terminate()


def test_one_writer_has_one_connection(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    running = consumers.start(ANNALS_WRITERS="1")
    running.until_reading()
    for partition in range(2):
        send(broker, TOPIC, partition, [(f"d{partition}", 0)])
    until(lambda: database.read() == 2, running.said)
    assert len(database.query(CONNECTIONS, database.name)) == 1
    running.terminate()
