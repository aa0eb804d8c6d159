"""SIGTERM while a broker owes an answer: the consumer ends within 5 seconds, nothing is lost."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Producer

from tests.apache.broker import Apache
from tests.consuming import Consumers, Database, Feed, complete, until
from tests.kafka.test_rebalance import FIRST, WAITING, locked
from tests.messages import TOPIC, value
from tests.processes import consumers, database, feed, server

# Only Apache Kafka has transactions.
pytestmark = [pytest.mark.kafka, pytest.mark.parametrize("broker", ["apache"], indirect=True)]
__all__ = ["consumers", "database", "feed", "server"]

TRANSACTIONS, SIZE = 400, 20
# Longer than it takes to notice that a batch was refused, and to claim again.
UNTIL_CLAIMED_AGAIN = 4.5


@contextmanager
def frozen(broker: Apache) -> Iterator[None]:
    """The broker answers nothing inside the block; its connections stay open."""
    pid = broker.pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_while_transactions_are_read(
    consumers: Consumers, database: Database, broker: Apache
) -> None:
    """The messages are fetched; each marker between them makes a question to the broker."""
    producer = Producer({**broker.client(), "transactional.id": "upstream"})
    producer.init_transactions(30)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for part in range(SIZE):
            body = value(id="a", version=number * SIZE + part)
            producer.produce(TOPIC, body, partition=0)
        producer.commit_transaction(30)
    running = consumers.start("--topics", TOPIC, ANNALS_BATCH_ROWS="100")
    until(lambda: database.read() > 0, running.said)
    with frozen(broker):
        time.sleep(1)
        running.terminate()
    assert database.read() < TRANSACTIONS * SIZE
    consumers.drain("--topics", TOPIC)
    assert database.count() == database.read() == TRANSACTIONS * SIZE
    assert consumers.manage("ledger").returncode == 0


def test_while_partitions_are_claimed(
    consumers: Consumers, database: Database, feed: Feed, broker: Apache
) -> None:
    """A batch is refused, so everything is claimed again, and the broker is asked."""
    # A member whose session has ended has nothing to claim.
    running = consumers.start(ANNALS_KAFKA_SESSION_TIMEOUT_MS="60000")
    running.until_reading()
    with ExitStack() as later:
        with locked(database, FIRST):
            feed.send(30)
            until(lambda: database.query(WAITING), "no wait")
            database.execute("UPDATE ingest_ledger SET epoch = epoch + 1")
            later.enter_context(frozen(broker))
        until(lambda: "another consumer moved the ledger" in running.said(), running.said)
        time.sleep(UNTIL_CLAIMED_AGAIN)
        running.terminate()
    consumers.drain(group="another")  # the first group waits for its member
    complete(consumers, database, feed)
