"""Consumers killed or stopped at bad moments: nothing is lost and nothing is stored twice."""

import random
import secrets
import time

import psutil
import pytest

from annals.embedded.broker import Daemon
from ingest.consumer.periodic_work import HEARTBEAT_SECONDS
from tests.consuming import Consumers, Database, Feed, complete, until
from tests.processes import consumers, database, feed, server

pytestmark = [pytest.mark.system, pytest.mark.one_broker]
__all__ = ["consumers", "database", "feed", "server"]

KILLS = 8
STOPS = 6


def test_killed_at_many_moments_of_a_load(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    """A group of its own each time: the broker takes seconds to notice that a member is dead, and
    it is the ledger that says where to go on."""
    moments = random.Random(25)
    with feed.pouring(400):
        for number in range(KILLS):
            running = consumers.start(group=secrets.token_hex(6))
            running.until_reading()
            if number % 3:  # these have written before the kill: more than half of all
                before = database.read()
                until(lambda: database.read() > before, running.said)  # noqa: B023 - used at once
            time.sleep(moments.uniform(0, 0.5))
            running.kill()
    consumers.drain()
    complete(consumers, database, feed)


def test_stopped_at_moments_of_a_load(consumers: Consumers, database: Database, feed: Feed) -> None:
    """Batches are small, so that read messages wait for room: none may be skipped."""
    feed.send(6_000)
    wrote = 0
    for _ in range(STOPS):
        running = consumers.start(ANNALS_BATCH_ROWS="10")
        before = database.read()
        until(lambda: database.read() > before + 50, running.said)  # noqa: B023 - used at once
        running.terminate()
        wrote += 50 < database.read() - before < 5_000
    assert wrote > STOPS / 2
    consumers.drain()
    complete(consumers, database, feed)


@pytest.mark.parametrize("count", [0, 500], ids=["idle", "busy"])
def test_sigterm_while_the_broker_is_frozen(
    consumers: Consumers, database: Database, feed: Feed, broker: Daemon, count: int
) -> None:
    running = consumers.start()
    running.until_reading()
    feed.send(10)
    until(lambda: database.read() == 10, running.said)
    pid = broker.pid()
    assert pid is not None
    feed.send(count)
    serving = psutil.Process(pid)
    serving.suspend()
    try:
        time.sleep(2 * HEARTBEAT_SECONDS + 1)
        running.terminate()
    finally:
        serving.resume()
    consumers.drain()
    complete(consumers, database, feed)


def test_sigterm_before_the_group_has_answered(consumers: Consumers, database: Database) -> None:
    running = consumers.start()
    until(lambda: running.process.poll() is not None or _catches_sigterm(running.process.pid), "")
    time.sleep(0.2)
    assert running.terminate()["read"] == 0


def _catches_sigterm(pid: int) -> bool:
    """Whether the process has a handler for SIGTERM by now."""
    with open(f"/proc/{pid}/status") as status:  # noqa: PTH123
        [mask] = [int(line.split()[1], 16) for line in status if line.startswith("SigCgt:")]
    return bool(mask >> 14 & 1)
