"""The end offsets of partitions in the ledger."""

import time
from datetime import datetime

import psycopg
import pytest

from annals.embedded.broker import KafkaServer
from history.kinds.entities import ROOT
from tests.consuming import (
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    produce_messages,
    wait_until,
)
from tests.messages import CHILD_TOPIC, make_value
from tests.processes import consumers, database, feed, server

pytestmark = [pytest.mark.kafka, pytest.mark.one_broker]
__all__ = ["consumers", "database", "feed", "server"]

PARTITIONS = 30


def list_end_times(database: ProductDatabase) -> list[datetime]:
    """Return when the end offset was last confirmed, for each partition that is read to its end."""
    rows = database.query(
        "SELECT end_known_at FROM ingest_ledger"
        " WHERE next_offset = high_watermark AND end_known_at IS NOT NULL"
    )
    return [row["end_known_at"] for row in rows]


def test_end_offsets_of_empty_partitions_stay_known_while_brokers_answer(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed, broker: KafkaServer
) -> None:
    """Only one of thirty partitions has a message. After the broker is gone, the end offsets are
    not confirmed any more, but the consumer still writes heartbeats."""
    feed.send_many(1)
    running = consumers.start_consumer()
    wait_until(lambda: len(list_end_times(database)) == PARTITIONS, running.read_log, seconds=120)
    first = min(list_end_times(database))
    wait_until(lambda: min(list_end_times(database)) > first, running.read_log, seconds=120)
    broker.kill()
    time.sleep(6)  # an answer from before the kill may still count
    last = max(list_end_times(database))
    time.sleep(16)
    assert max(list_end_times(database)) == last
    [row] = database.query("SELECT min(checked_at) AS seen FROM ingest_ledger")
    assert (row["seen"] - last).total_seconds() > 12
    running.terminate()


def test_run_until_idle_writes_a_heartbeat_before_it_ends(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """The run ends before its first periodic heartbeat."""
    feed.send_many(1)
    consumers.consume_to_end(idle=0.5)
    assert len(list_end_times(database)) == PARTITIONS


def test_lag_counts_messages_that_arrive_while_reading_is_paused(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    """Reading is paused while a batch waits for a lock. Meanwhile a message arrives in a second
    topic."""
    running = consumers.start_consumer(ANNALS_BATCH_ROWS="2")
    running.wait_until_reading()
    with psycopg.connect(database.url) as blocking:
        blocking.execute(f"LOCK TABLE {ROOT.table}")
        produce_messages(
            broker.make_client_config(),
            *((ROOT.topics[0], make_value(id="A1", version=n)) for n in range(20)),
        )
        wait_until(lambda: is_any_session_waiting_for_lock(database), running.read_log, seconds=120)
        time.sleep(2)  # by then the consumer has paused reading
        produce_messages(
            broker.make_client_config(),
            (CHILD_TOPIC, make_value(id="B1", version=0, productInstanceId="A1")),
        )
        wait_until(lambda: get_lag(database, CHILD_TOPIC) == 1, running.read_log, seconds=120)
    running.terminate()


def is_any_session_waiting_for_lock(database: ProductDatabase) -> bool:
    [row] = database.query("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return bool(row["count"])


def get_lag(database: ProductDatabase, topic: str) -> int:
    rows = database.query(
        "SELECT coalesce(sum(high_watermark - next_offset), 0)::int AS lag FROM ingest_ledger"
        " WHERE topic = %s",
        topic,
    )
    return int(rows[0]["lag"])
