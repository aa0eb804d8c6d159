"""`manage.py consume` on both brokers, from the message to the row."""

from __future__ import annotations

import time

import pytest

from tests.consuming import Consumers, Database, Feed, complete, until
from tests.processes import consumers, database, feed, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "feed", "server"]


def test_what_was_produced_is_what_is_stored(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    feed.send(3_000)
    told = consumers.drain()
    assert told["read"] == told["stored"] == 3_000
    complete(consumers, database, feed)
    again = consumers.drain()
    assert again["read"] == 0
    complete(consumers, database, feed)


def test_a_running_one_stores_at_once_and_ends_at_sigterm(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    running = consumers.start()
    running.until_reading()
    feed.send(1)
    until(lambda: database.total() == 1, running.said(), seconds=10)
    with feed.pouring(500):
        time.sleep(1)
        told = running.terminate()
    assert told["read"] == told["stored"] == database.total() > 1
    assert database.read() == told["read"]
    consumers.drain()
    complete(consumers, database, feed)
