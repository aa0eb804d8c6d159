"""Consumers are killed or stopped at bad moments, and no message is lost or stored twice."""

import random
import secrets
import time

import psutil
import pytest

from annals.embedded.broker import KafkaServer
from ingest.consumer.periodic_work import HEARTBEAT_SECONDS
from tests.consuming import (
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    assert_complete,
    wait_until,
)
from tests.processes import consumers, database, feed, server

pytestmark = [pytest.mark.system, pytest.mark.one_broker]
__all__ = ["consumers", "database", "feed", "server"]

KILLS = 8
STOPS = 6


def test_consumer_killed_under_load_loses_and_doubles_nothing(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """Every consumer is in a new consumer group, because a broker takes seconds to notice that a
    group member died. The next consumer continues at the positions in the ledger."""
    moments = random.Random(25)
    with feed.send_in_background(400):
        for number in range(KILLS):
            running = consumers.start_consumer(group=secrets.token_hex(6))
            running.wait_until_reading()
            if number % 3:  # two of three consumers have written before they are killed
                before = database.count_read()
                wait_until(lambda: database.count_read() > before, running.read_log)  # noqa: B023 - used at once
            time.sleep(moments.uniform(0, 0.5))
            running.kill_process()
    consumers.consume_to_end()
    assert_complete(consumers, database, feed)


def test_consumer_that_is_stopped_under_load_skips_no_message(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """Batches are small, so messages that were read wait for a batch when the consumer stops."""
    feed.send_many(6_000)
    stops_while_writing = 0
    for _ in range(STOPS):
        running = consumers.start_consumer(ANNALS_BATCH_ROWS="10")
        read_before = database.count_read()
        wait_until(lambda: database.count_read() > read_before + 50, running.read_log)  # noqa: B023 - used at once
        running.terminate()
        stops_while_writing += 50 < database.count_read() - read_before < 5_000
    assert stops_while_writing > STOPS / 2
    consumers.consume_to_end()
    assert_complete(consumers, database, feed)


@pytest.mark.parametrize("count", [0, 500], ids=["idle", "busy"])
def test_consumer_ends_on_sigterm_while_the_broker_is_frozen(
    consumers: ConsumerStarter,
    database: ProductDatabase,
    feed: MessageFeed,
    broker: KafkaServer,
    count: int,
) -> None:
    running = consumers.start_consumer()
    running.wait_until_reading()
    feed.send_many(10)
    wait_until(lambda: database.count_read() == 10, running.read_log)
    pid = broker.find_pid()
    assert pid is not None
    feed.send_many(count)
    broker_process = psutil.Process(pid)
    broker_process.suspend()
    try:
        time.sleep(2 * HEARTBEAT_SECONDS + 1)
        running.terminate()
    finally:
        broker_process.resume()
    consumers.consume_to_end()
    assert_complete(consumers, database, feed)


def test_consumer_ends_on_sigterm_before_it_has_joined_its_group(
    consumers: ConsumerStarter, database: ProductDatabase
) -> None:
    running = consumers.start_consumer()
    wait_until(
        lambda: running.process.poll() is not None or _has_sigterm_handler(running.process.pid), ""
    )
    time.sleep(0.2)
    assert running.terminate()["read"] == 0


def _has_sigterm_handler(pid: int) -> bool:
    """Return whether the process has a handler for SIGTERM already."""
    with open(f"/proc/{pid}/status") as status:  # noqa: PTH123
        [mask] = [int(line.split()[1], 16) for line in status if line.startswith("SigCgt:")]
    return bool(mask >> 14 & 1)
