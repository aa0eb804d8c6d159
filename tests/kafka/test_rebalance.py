"""Consumers join, leave, freeze and wake under a load: each message is stored once."""

from __future__ import annotations

import random
import signal
import time

import psycopg
import pytest

from tests.consuming import SESSION_MS, Consumers, Database, Feed, Running, complete, until
from tests.processes import consumers, database, feed, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "feed", "server"]


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


def test_frozen_past_its_session_and_woken(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    """Frozen while its write waits for a lock: another takes its partitions over, and what the
    woken one had in hand is refused."""
    frozen = consumers.start()
    frozen.until_reading()
    with feed.pouring(200):
        until(lambda: database.read() > 100, frozen.said)
        with psycopg.connect(database.url) as plain:
            plain.execute("LOCK TABLE product_instance_aud IN ACCESS EXCLUSIVE MODE")
            until(lambda: database.query("SELECT 1 FROM pg_locks WHERE NOT granted"), "no wait")
            frozen.process.send_signal(signal.SIGSTOP)
        time.sleep(2 * SESSION_MS / 1000)
        other = consumers.start()
        other.until_reading()
        before = database.read()
        until(lambda: database.read() > before + 200, other.said)
        [taken] = database.query("SELECT min(epoch) AS epoch FROM ingest_ledger")
        assert taken["epoch"] > 1
        frozen.process.send_signal(signal.SIGCONT)
        time.sleep(2)
        assert frozen.process.poll() is None
    until(lambda: database.read() == feed.produced.total(), other.said)
    frozen.terminate()
    other.terminate()
    complete(consumers, database, feed)


def test_what_was_paused_for_a_slow_database_is_read_after_a_rebalance(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    small = {"ANNALS_BATCH_ROWS": "10"}
    first = consumers.start(**small)
    first.until_reading()
    with psycopg.connect(database.url) as plain:
        plain.execute("LOCK TABLE product_instance_aud IN ACCESS EXCLUSIVE MODE")
        feed.send(500)
        time.sleep(1)  # both batches are full: reading is paused
        second = consumers.start(**small)
        second.until_reading()
    until(lambda: first.said().count("reading ") >= 2, first.said)
    second.terminate()
    feed.send(500)
    until(lambda: database.read() == 1_000, first.said)
    first.terminate()
    complete(consumers, database, feed)
