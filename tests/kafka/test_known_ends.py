"""What the ledger knows of the end of each partition, on both brokers."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from annals.embedded.daemon import Daemon
from tests.consuming import Consumers, Database, Feed, until
from tests.processes import consumers, database, feed, server

pytestmark = pytest.mark.kafka
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
    """One message on thirty partitions. What is known grows older once the broker is gone."""
    feed.send(1)
    running = consumers.start()
    until(lambda: len(known(database)) == PARTITIONS, running.said, seconds=30)
    first = min(known(database))
    until(lambda: min(known(database)) > first, running.said, seconds=20)
    broker.kill()
    time.sleep(6)  # an answer that was on its way may still count
    last = max(known(database))
    time.sleep(7)
    assert max(known(database)) == last
    running.terminate()
