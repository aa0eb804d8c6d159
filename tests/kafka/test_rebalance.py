"""Consumers join, leave, freeze and wake under load, and each message is stored once.

A consumer that gets SIGTERM while a broker does not answer ends within 5 seconds.
"""

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
from history.kinds.entities import ENTITIES
from tests.apache.broker import Apache
from tests.consuming import (
    LIVE_TOPICS,
    SESSION_MS,
    ConsumerProcess,
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    assert_complete,
    wait_until,
)
from tests.messages import TOPIC, make_value
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
def lock_table(database: ProductDatabase, table: str) -> Iterator[None]:
    """Lock a table during the `with` block, so that all sessions that use the table wait."""
    with psycopg.connect(database.url) as plain:
        plain.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_nothing_is_lost_or_doubled_when_members_join_and_leave_under_load(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    chance = random.Random(4)
    running: list[ConsumerProcess] = []
    with feed.send_in_background(300):
        for _ in range(6):
            if len(running) > 2:
                running.pop(chance.randrange(len(running))).terminate()
            item = consumers.start_consumer()
            item.wait_until_reading()
            running.append(item)
            time.sleep(chance.uniform(0, 1))
        running.pop(0).terminate()
        running.pop(0).kill_process()
    wait_until(lambda: database.count_read() == feed.produced.total(), running[0].read_log)
    running[0].terminate()
    assert_complete(consumers, database, feed)


@pytest.mark.one_broker
def test_batch_of_consumer_frozen_past_its_session_is_refused(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """The consumer is frozen while its write waits for a lock. Another consumer takes its
    partitions over. After waking, the first consumer cannot store its batch."""

    def freeze(running: ConsumerProcess, _: int) -> None:
        with lock_table(database, FIRST):
            feed.send_many(10)
            wait_until(lambda: database.query(WAITING), "no wait")
            running.freeze_process()

    check_takeover(consumers, database, feed, freeze)


@pytest.mark.one_broker
def test_consumer_frozen_during_a_write_does_not_block_its_successor(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """PostgreSQL waits forever for the remaining rows of the frozen consumer, and keeps the written
    rows locked. The second consumer terminates the session of the frozen consumer."""

    def freeze(running: ConsumerProcess, port: int) -> None:
        for _ in range(5):
            with ExitStack() as later:
                with lock_table(database, FIRST):
                    feed.send_many(1)  # the only message of its batch, for the first table
                    wait_until(lambda: database.query(WAITING), "no wait")
                    feed.send_many(4 * len(LIVE_TOPICS) - 1)  # the next batch, for every table
                    wait_until(lambda: has_taken_all(database, feed, port), running.read_log)
                    later.enter_context(lock_table(database, LAST))
                wait_until(lambda: database.query(WAITING), running.read_log)
                has_written = bool(database.query(WAITING + HAS_WRITTEN))
                if has_written:
                    running.freeze_process()
            if has_written and is_copying(database):
                return
            # The write waits at most ten seconds for the lock. It gave up just before the freeze,
            # or before LAST was locked: then the consumer reads the messages again, and the batch
            # that waits can have messages for LAST only.
            running.wake_process()
            wait_until(lambda: database.count_read() == feed.produced.total(), running.read_log)
        raise AssertionError("the freeze came too late five times")

    check_takeover(consumers, database, feed, freeze, "froze during a write")


def has_taken_all(database: ProductDatabase, feed: MessageFeed, port: int) -> bool:
    """Return whether the consumer has taken every message into a batch, written or not.

    The consumer updates the metric annals_lag_messages before the heartbeat that stores the end
    offsets in the ledger. If these end offsets count all messages, a metric of 0 means that all
    messages are in batches.
    """
    [known_values] = database.query("SELECT sum(high_watermark)::int AS end FROM ingest_ledger")
    if known_values["end"] != feed.produced.total():
        return False
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
        lines = answer.read().decode().splitlines()
    lags = [float(line.split()[-1]) for line in lines if line.startswith("annals_lag_messages{")]
    return bool(lags) and not any(lags)


def is_copying(database: ProductDatabase) -> bool:
    """Return whether the consumer is copying rows into LAST, the table that a batch writes last.

    Block before that until the consumer's PostgreSQL session waits for input from the consumer.
    """
    results: list[dict[str, Any]] = []

    def is_waiting_for_client() -> bool:
        results[:] = database.query(
            "SELECT state, query FROM pg_stat_activity WHERE datname = %s"
            " AND application_name = 'annals-consume' AND wait_event = 'ClientRead'"
            " AND state <> 'idle'",
            database.name,
        )
        return bool(results)

    wait_until(is_waiting_for_client, "PostgreSQL does not wait for the consumer")
    return results[0]["state"] == "active" and f'COPY "{LAST}"' in results[0]["query"]


def check_takeover(
    consumers: ConsumerStarter,
    database: ProductDatabase,
    feed: MessageFeed,
    freeze: Callable[[ConsumerProcess, int], None],
    says: str = "",
) -> None:
    """Freeze a consumer, let a second consumer take over, wake the first consumer, and end both.

    Then check that every message is stored exactly once.

    Args:
        freeze: Freezes the first consumer, which has read all messages. Is called with the consumer
            and the port of the consumer's metrics.
        says: A text that the log of the second consumer must have.
    """
    [port] = process.choose_free_ports([None])
    frozen = consumers.start_consumer("--metrics-port", str(port))
    frozen.wait_until_reading()
    feed.send_many(20 * len(LIVE_TOPICS))
    wait_until(lambda: database.count_read() == feed.produced.total(), frozen.read_log)
    freeze(frozen, port)
    with feed.send_in_background(200):
        time.sleep(2 * SESSION_MS / 1000)
        second = consumers.start_consumer()
        second.wait_until_reading()
        before = database.count_read()
        wait_until(lambda: database.count_read() > before + 200, second.read_log)
        wait_until(lambda: says in second.read_log(), second.read_log)
        [row] = database.query("SELECT min(epoch) AS epoch FROM ingest_ledger")
        assert row["epoch"] > 1
        frozen.wake_process()
        time.sleep(2)
        assert frozen.process.poll() is None
    wait_until(lambda: database.count_read() == feed.produced.total(), second.read_log)
    frozen.terminate()
    second.terminate()
    assert_complete(consumers, database, feed)


TRANSACTIONS, SIZE = 400, 20
# Longer than a consumer needs to notice that its batch was refused, and to claim again.
UNTIL_CLAIMED_AGAIN = 4.5


@contextmanager
def freeze_broker(broker: Apache) -> Iterator[None]:
    """Freeze the broker until the `with` block ends.

    Clients stay connected to the frozen broker, but do not get answers.
    """
    pid = broker.find_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_consumer_ends_on_sigterm_while_it_reads_transactions_from_frozen_broker(
    consumers: ConsumerStarter, database: ProductDatabase, broker: Apache
) -> None:
    """The consumer asks the broker about each transaction marker among the fetched messages."""
    producer = Producer({**broker.make_client_config(), "transactional.id": "upstream"})
    producer.init_transactions(30)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for part in range(SIZE):
            body = make_value(id="a", version=number * SIZE + part)
            producer.produce(TOPIC, body, partition=0)
        producer.commit_transaction(30)
    running = consumers.start_consumer("--topics", TOPIC, ANNALS_BATCH_ROWS="100")
    wait_until(lambda: database.count_read() > 0, running.read_log)
    with freeze_broker(broker):
        time.sleep(1)
        running.terminate()
    assert database.count_read() < TRANSACTIONS * SIZE
    consumers.consume_to_end("--topics", TOPIC)
    assert database.count_rows() == database.count_read() == TRANSACTIONS * SIZE
    assert consumers.run_command("ledger").returncode == 0


@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_consumer_ends_on_sigterm_while_it_waits_for_offsets_from_frozen_broker(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed, broker: Apache
) -> None:
    """The ledger has refused a batch. So the consumer claims all topic partitions again, and asks
    the broker for the offsets of these topic partitions."""
    # The session must not end while the broker is frozen: the member would have nothing to claim.
    running = consumers.start_consumer(ANNALS_KAFKA_SESSION_TIMEOUT_MS="60000")
    running.wait_until_reading()
    with ExitStack() as later:
        with lock_table(database, FIRST):
            feed.send_many(30)
            wait_until(lambda: database.query(WAITING), "no wait")
            database.execute("UPDATE ingest_ledger SET epoch = epoch + 1")
            later.enter_context(freeze_broker(broker))
        wait_until(
            lambda: "another consumer moved the ledger" in running.read_log(), running.read_log
        )
        time.sleep(UNTIL_CLAIMED_AGAIN)
        running.terminate()
    consumers.consume_to_end(group="another")  # the first group waits for its member
    assert_complete(consumers, database, feed)
