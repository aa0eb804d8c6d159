"""Faults of PostgreSQL under load: the consumer waits and continues, and no message is lost.

The server is stopped, cut off or full, fails over to a standby, or loses its days.
"""

import base64
import random
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from annals.embedded import logins
from annals.embedded.broker import KafkaServer
from annals.embedded.postgres import EmbeddedPostgres
from tests.consuming import (
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    assert_complete,
    produce_messages,
    run_command,
    wait_until,
)
from tests.messages import NOW, TOPIC, make_value
from tests.processes import consumers, database, feed, server
from tests.standby import change_settings, create_standby, promote_standby

pytestmark = [pytest.mark.system, pytest.mark.one_broker]
__all__ = ["consumers", "database", "feed", "server"]

# Creating the days of a whole retention takes seconds.
FEW_DAYS = {"ANNALS_RETENTION_DAYS": "10", "ANNALS_AHEAD_DAYS": "1"}


def test_consumer_continues_after_postgresql_restarts(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    running = consumers.start_consumer()
    running.wait_until_reading()
    moments = random.Random(10)
    with feed.send_in_background(400):
        for _ in range(5):
            read_before = database.count_read()
            wait_until(
                lambda read_before=read_before: database.count_read() > read_before,  # type: ignore[misc]
                running.read_log,
            )
            time.sleep(moments.uniform(0, 0.3))
            database.server.stop("immediate")
            time.sleep(moments.uniform(0, 0.5))
            database.server.start()
    wait_until(lambda: database.count_read() == feed.produced.total(), running.read_log)
    running.terminate()
    assert_complete(consumers, database, feed)


def test_consumer_ends_on_sigterm_while_postgresql_is_down(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    running = consumers.start_consumer()
    running.wait_until_reading()
    database.server.stop("immediate")
    feed.send_many(500)
    wait_until(lambda: "trying again" in running.read_log(), running.read_log)
    running.terminate()
    database.server.start()
    consumers.consume_to_end()
    assert_complete(consumers, database, feed)


def test_consumer_continues_after_its_database_connections_are_cut(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    running = consumers.start_consumer()
    running.wait_until_reading()
    moments, cut_count = random.Random(20), 0
    with feed.send_in_background(800):
        for _ in range(30):
            time.sleep(moments.uniform(0, 0.2))
            cut_count += len(
                database.query(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'annals-consume' AND datname = %s",
                    database.name,
                )
            )
    assert cut_count > 10
    wait_until(lambda: database.count_read() == feed.produced.total(), running.read_log)
    running.terminate()
    assert_complete(consumers, database, feed)


@pytest.fixture
def standby(server: EmbeddedPostgres, database: ProductDatabase) -> Iterator[EmbeddedPostgres]:
    """A synchronous standby of the server."""
    home = Path(tempfile.mkdtemp(prefix="annals-standby-"))
    copy = create_standby(server, home / "postgres", "second", {"fsync": "off"})
    copy.start()
    change_settings(server, {"synchronous_standby_names": "second"})
    sync = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
    wait_until(lambda: database.query(sync), "no synchronous standby")
    yield copy
    change_settings(server, {"synchronous_standby_names": ""})
    copy.stop("immediate")
    shutil.rmtree(home)


def test_consumer_continues_at_the_standby_that_was_promoted(
    consumers: ConsumerStarter,
    database: ProductDatabase,
    feed: MessageFeed,
    standby: EmbeddedPostgres,
) -> None:
    server = database.server
    account = database.build_url(logins.CONSUMER).partition("@")[0]
    hosts = f"127.0.0.1:{server.get_port()},127.0.0.1:{standby.get_port()}"
    url = f"{account}@{hosts}/{database.name}?target_session_attrs=read-write"
    consumers.env["DATABASE_URL"] = url
    running = consumers.start_consumer()
    running.wait_until_reading()
    promoted = replace(database, server=standby, url=standby.build_url(database.name))
    with feed.send_in_background(400):
        wait_until(lambda: database.count_read() > 200, running.read_log)
        server.kill()
        time.sleep(0.5)
        promote_standby(standby)
        read_before = promoted.count_read()
        wait_until(lambda: promoted.count_read() > read_before + 200, running.read_log)
    wait_until(lambda: promoted.count_read() == feed.produced.total(), running.read_log)
    running.terminate()
    assert_complete(consumers, promoted, feed)


@contextmanager
def limit_file_size(server: EmbeddedPostgres, megabytes: int) -> Iterator[None]:
    """Run PostgreSQL with a limit for the size of its files during the `with` block.

    The operating system refuses larger files as if the disk was full. A small file system is not
    used, because in some containers even root cannot mount one.
    """
    server.stop()
    earlier_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (megabytes << 20, earlier_limit[1]))
    try:
        server.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, earlier_limit)
    try:
        yield
    finally:
        server.stop()
        server.start()


def test_consumer_waits_while_the_disk_is_full(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed, broker: KafkaServer
) -> None:
    """The size of files is limited to 17 MB, because files of the write-ahead log have 16 MB."""
    random_source = random.Random(1)
    with limit_file_size(database.server, 17):
        running = consumers.start_consumer()
        running.wait_until_reading()
        for number in range(30):
            text = base64.b64encode(random_source.randbytes(900_000)).decode()
            produce_messages(
                broker.make_client_config(),
                (TOPIC, make_value(id=f"large {number}", data={"text": text})),
            )
        wait_until(lambda: "could not extend file" in running.read_log(), running.read_log)
        feed.send_many(500)
        time.sleep(2)
        assert running.process.poll() is None
        assert database.count_read() < 530
        assert database.list_quarantined() == []
    wait_until(lambda: database.count_read() == 530, running.read_log)
    running.terminate()
    assert database.list_quarantined() == []
    assert database.count_stored_versions() == 530
    assert consumers.run_command("ledger").returncode == 0


def test_consumer_waits_for_maintain_when_today_has_no_partition(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """The limit for bad messages is low. The waiting messages must not count as bad messages."""
    consumers.env |= FEW_DAYS
    database.drop_days()
    running = consumers.start_consumer(ANNALS_MAX_BAD_IN_A_ROW="5")
    running.wait_until_reading()
    feed.send_many(200)
    wait_until(
        lambda: running.read_log().count("run `annals partitions maintain`") > 2, running.read_log
    )
    assert (database.count_read(), database.list_quarantined()) == (0, [])
    assert consumers.run_command("partitions", "maintain").returncode == 0
    wait_until(lambda: database.count_read() == feed.produced.total(), running.read_log)
    running.terminate()
    assert_complete(consumers, database, feed)


@contextmanager
def maintain_repeatedly(consumers: ConsumerStarter, **env: str) -> Iterator[list[int]]:
    """Repeat `partitions maintain --force` during the `with` block, and yield its exit codes."""
    stop, codes = threading.Event(), []

    def run_maintain() -> None:
        while not stop.is_set():
            finished = run_command(consumers.env | env, "partitions", "maintain", "--force")
            codes.append(finished.returncode)

    thread = threading.Thread(target=run_maintain)
    thread.start()
    try:
        yield codes
    finally:
        stop.set()
        thread.join()


def test_message_is_not_quarantined_when_its_day_is_detached_during_the_write(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """`maintain` runs with a shorter retention than the consumer. So it drops days that the
    consumer creates again."""
    consumers.env |= FEW_DAYS
    feed.dates = [NOW - timedelta(days=5 + number) for number in range(5)]
    running = consumers.start_consumer(DATABASE_URL=database.build_url(logins.OWNER))
    running.wait_until_reading()
    short_retention = {"ANNALS_RETENTION_DAYS": "3"}
    with maintain_repeatedly(consumers, **short_retention) as codes, feed.send_in_background(200):
        wait_until(lambda: len(codes) > 2, running.read_log, 120)
    assert 2 not in codes
    wait_until(lambda: database.count_read() == feed.produced.total(), running.read_log)
    removed = feed.produced.total() - database.count_stored_versions()
    assert removed > 0
    assert database.list_quarantined() == []
    feed.send_many(1_000)
    wait_until(lambda: database.count_read() == feed.produced.total(), running.read_log)
    running.terminate()
    assert feed.produced.total() - database.count_stored_versions() == removed
    assert consumers.run_command("ledger").returncode == 0
