"""What the ledger knows of the end of each partition."""

import time
from datetime import datetime

import psycopg
import pytest

from annals.embedded.broker import Daemon
from history.entities import ROOT
from tests.consuming import Consumers, Database, Feed, send, until
from tests.messages import CHILD, value
from tests.processes import consumers, database, feed, server

pytestmark = [pytest.mark.kafka, pytest.mark.one_broker]
__all__ = ["consumers", "database", "feed", "server"]

PARTITIONS = 30


def known(database: Database) -> list[datetime]:
    """When the end was known, of the partitions that are read to it."""
    rows = database.query(
        "SELECT end_known_at FROM ingest_ledger"
        " WHERE next_offset = high_watermark AND end_known_at IS NOT NULL"
    )
    return [row["end_known_at"] for row in rows]


def test_the_end_of_an_empty_partition_is_known_as_long_as_the_brokers_answer(
    consumers: Consumers, database: Database, feed: Feed, broker: Daemon
) -> None:
    """One message on thirty partitions. What is known grows older once the broker is gone, and has
    taken the partitions away; the consumer is seen all the same."""
    feed.send(1)
    running = consumers.start()
    until(lambda: len(known(database)) == PARTITIONS, running.said, seconds=30)
    first = min(known(database))
    until(lambda: min(known(database)) > first, running.said, seconds=20)
    broker.kill()
    time.sleep(6)  # an answer that was on its way may still count
    last = max(known(database))
    time.sleep(16)
    assert max(known(database)) == last
    [row] = database.query("SELECT min(checked_at) AS seen FROM ingest_ledger")
    assert (row["seen"] - last).total_seconds() > 12
    running.terminate()


def test_a_consumer_that_ends_by_itself_says_what_it_has_seen(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    """Sooner than its first look at the brokers is written."""
    feed.send(1)
    consumers.drain(idle=0.5)
    assert len(known(database)) == PARTITIONS


def test_what_is_not_fetched_is_not_known_to_be_the_end(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    """While a batch waits for a lock, reading is paused. What is sent to another topic meanwhile
    counts as unread."""
    running = consumers.start(ANNALS_BATCH_ROWS="2")
    running.until_reading()
    with psycopg.connect(database.url) as blocking:
        blocking.execute(f"LOCK TABLE {ROOT.table}")
        send(broker.client(), *((ROOT.topics[0], value(id="A1", version=n)) for n in range(20)))
        until(lambda: "waits" in blocked(database), running.said, seconds=20)
        time.sleep(2)  # longer than the consumer reads on
        send(broker.client(), (CHILD, value(id="B1", version=0, productInstanceId="A1")))
        until(lambda: lag(database, CHILD) == 1, running.said, seconds=20)
    running.terminate()


def blocked(database: Database) -> str:
    """Says whether a session waits for a lock."""
    [row] = database.query("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return "waits" if row["count"] else ""


def lag(database: Database, topic: str) -> int:
    rows = database.query(
        "SELECT coalesce(sum(high_watermark - next_offset), 0)::int AS lag FROM ingest_ledger"
        " WHERE topic = %s",
        topic,
    )
    return int(rows[0]["lag"])
