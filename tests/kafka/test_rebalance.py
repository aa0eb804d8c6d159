"""Consumers join, leave, freeze and wake under a load: each message is stored once. SIGTERM while a
broker owes an answer: the consumer ends within 5 seconds, nothing is lost."""

import os
import random
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from annals.embedded import process
from history.entities import ENTITIES
from tests.apache.broker import Apache
from tests.consuming import LIVE, SESSION_MS, Consumers, Database, Feed, Running, complete, until
from tests.messages import TOPIC, value
from tests.processes import consumers, database, feed, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "feed", "server"]

FIRST, LAST = ENTITIES[0].table, ENTITIES[-1].table  # in the order in which a batch writes them
WAITING = "SELECT 1 FROM pg_locks AS waiting WHERE NOT granted"
HAS_WRITTEN = (
    " AND EXISTS (SELECT 1 FROM pg_locks AS own WHERE own.pid = waiting.pid"
    " AND own.locktype = 'transactionid' AND own.granted)"
)


@contextmanager
def locked(database: Database, table: str) -> Iterator[None]:
    """Nobody reads or writes the table inside the block."""
    with psycopg.connect(database.url) as plain:
        plain.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_joining_and_leaving_under_load(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    chance = random.Random(4)
    running: list[Running] = []
    with feed.pouring(300):
        for _ in range(6):
            if len(running) > 2:
                running.pop(chance.randrange(len(running))).terminate()
            each = consumers.start()
            each.until_reading()
            running.append(each)
            time.sleep(chance.uniform(0, 1))
        running.pop(0).terminate()
        running.pop(0).kill()
    until(lambda: database.read() == feed.produced.total(), running[0].said)
    running[0].terminate()
    complete(consumers, database, feed)


@pytest.mark.one_broker
def test_frozen_past_its_session_and_woken(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    """Frozen while its write waits for a lock: another takes its partitions over, and what the
    woken one had in hand is refused."""

    def freeze(running: Running, _: int) -> None:
        with locked(database, FIRST):
            feed.send(10)
            until(lambda: database.query(WAITING), "no wait")
            running.freeze()

    taken_over(consumers, database, feed, freeze)


@pytest.mark.one_broker
def test_frozen_between_the_rows_of_a_write(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    """The rows that it has written are not committed and locked, and PostgreSQL waits for more of
    them for as long as it takes: who has its partitions now does not."""

    def freeze(running: Running, port: int) -> None:
        for _ in range(5):
            with ExitStack() as later:
                with locked(database, FIRST):
                    feed.send(1)  # alone in its batch, for the first table
                    until(lambda: database.query(WAITING), "no wait")
                    feed.send(4 * len(LIVE) - 1)  # the next batch: rows for every table
                    until(lambda: all_taken(database, feed, port), running.said)
                    later.enter_context(locked(database, LAST))
                until(lambda: database.query(WAITING + HAS_WRITTEN), "no wait with rows written")
                running.freeze()
            if is_copying(database):
                return
            # The write gave up the lock in the moment before the freeze: it waits ten seconds.
            running.wake()
            until(lambda: database.read() == feed.produced.total(), running.said)
        raise AssertionError("five times too slow")

    taken_over(consumers, database, feed, freeze, "froze during a write")


def all_taken(database: Database, feed: Feed, port: int) -> bool:
    """Whether the consumer has taken every message into a batch, written or not. It counts the lag
    before each heartbeat."""
    [known] = database.query("SELECT sum(high_watermark)::int AS end FROM ingest_ledger")
    if known["end"] != feed.produced.total():
        return False
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    lags = [float(line.split()[-1]) for line in lines if line.startswith("annals_lag_messages{")]
    return bool(lags) and not any(lags)


def is_copying(database: Database) -> bool:
    """Whether PostgreSQL waits for the rest of a COPY. The lock that it waited for is free now."""
    found: list[dict[str, Any]] = []

    def waits_for_client() -> bool:
        found[:] = database.query(
            "SELECT state, query FROM pg_stat_activity WHERE datname = %s"
            " AND application_name = 'annals-consume' AND wait_event = 'ClientRead'"
            " AND state <> 'idle'",
            database.name,
        )
        return bool(found)

    until(waits_for_client, "PostgreSQL does not wait for the consumer")
    return found[0]["state"] == "active" and f'COPY "{LAST}"' in found[0]["query"]


def taken_over(
    consumers: Consumers,
    database: Database,
    feed: Feed,
    freeze: Callable[[Running, int], None],
    says: str = "",
) -> None:
    """A consumer freezes, another goes on where it was and says something, it wakes, both end:
    nothing is lost and nothing there twice. freeze: gets the consumer and its port for metrics;
    everything is read then."""
    [port] = process.free_ports([None])
    frozen = consumers.start("--metrics-port", str(port))
    frozen.until_reading()
    feed.send(20 * len(LIVE))
    until(lambda: database.read() == feed.produced.total(), frozen.said)
    freeze(frozen, port)
    with feed.pouring(200):
        time.sleep(2 * SESSION_MS / 1000)
        other = consumers.start()
        other.until_reading()
        before = database.read()
        until(lambda: database.read() > before + 200, other.said)
        until(lambda: says in other.said(), other.said)
        [taken] = database.query("SELECT min(epoch) AS epoch FROM ingest_ledger")
        assert taken["epoch"] > 1
        frozen.wake()
        time.sleep(2)
        assert frozen.process.poll() is None
    until(lambda: database.read() == feed.produced.total(), other.said)
    frozen.terminate()
    other.terminate()
    complete(consumers, database, feed)


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


@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_sigterm_while_transactions_are_read(
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


@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_sigterm_while_partitions_are_claimed(
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
