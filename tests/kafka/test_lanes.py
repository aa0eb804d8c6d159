"""Two batches of one consumer at the same time, over two connections."""

from collections.abc import Iterable

import psycopg
import pytest
from confluent_kafka import Producer

from annals.embedded.broker import Daemon
from tests.consuming import Consumers, Database, until
from tests.messages import TOPIC, value
from tests.processes import consumers, database, server

pytestmark = [pytest.mark.kafka, pytest.mark.one_broker, pytest.mark.usefixtures("topics")]
__all__ = ["consumers", "database", "server"]

CONNECTIONS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = %s AND application_name = 'annals-consume'"
)


def send(broker: Daemon, topic: str, partition: int, versions: Iterable[tuple[str, int]]) -> None:
    """Produce versions of documents to one partition, in this order."""
    producer = Producer({**broker.client(), "acks": "all"})
    for name, version in versions:
        body = value(id=name, version=version, data={"number": f"N-{name}", "n": version})
        producer.produce(topic, body, name, partition=partition)
    assert producer.flush(60) == 0


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
