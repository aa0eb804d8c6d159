"""PostgreSQL stopped, cut off, failed over, full, and its days taken away under a load: the
consumer waits and goes on, and what was produced is what is stored."""

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
from annals.embedded.broker import Daemon
from annals.embedded.postgres import Postgres
from tests.consuming import Consumers, Database, Feed, command, complete, send, until
from tests.messages import NOW, TOPIC, value
from tests.processes import consumers, database, feed, server
from tests.standby import configure, promote, standby_of

pytestmark = [pytest.mark.system, pytest.mark.one_broker]
__all__ = ["consumers", "database", "feed", "server"]

# To make the days of a whole retention takes seconds.
FEW_DAYS = {"ANNALS_RETENTION_DAYS": "10", "ANNALS_AHEAD_DAYS": "1"}


def test_stopped_and_started_again(consumers: Consumers, database: Database, feed: Feed) -> None:
    running = consumers.start()
    running.until_reading()
    moments = random.Random(10)
    with feed.pouring(400):
        for _ in range(5):
            before = database.read()
            until(lambda before=before: database.read() > before, running.said)  # type: ignore[misc]
            time.sleep(moments.uniform(0, 0.3))
            database.server.stop("immediate")
            time.sleep(moments.uniform(0, 0.5))
            database.server.start()
    until(lambda: database.read() == feed.produced.total(), running.said)
    running.terminate()
    complete(consumers, database, feed)


def test_sigterm_while_the_database_is_away(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    running = consumers.start()
    running.until_reading()
    database.server.stop("immediate")
    feed.send(500)
    until(lambda: "trying again" in running.said(), running.said)
    running.terminate()
    database.server.start()
    consumers.drain()
    complete(consumers, database, feed)


def test_connections_cut(consumers: Consumers, database: Database, feed: Feed) -> None:
    running = consumers.start()
    running.until_reading()
    moments, cut = random.Random(20), 0
    with feed.pouring(800):
        for _ in range(30):
            time.sleep(moments.uniform(0, 0.2))
            cut += len(
                database.query(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'annals-consume' AND datname = %s",
                    database.name,
                )
            )
    assert cut > 10
    until(lambda: database.read() == feed.produced.total(), running.said)
    running.terminate()
    complete(consumers, database, feed)


@pytest.fixture
def standby(server: Postgres, database: Database) -> Iterator[Postgres]:
    """A synchronous standby of the server."""
    home = Path(tempfile.mkdtemp(prefix="annals-standby-"))
    copy = standby_of(server, home / "postgres", "second", {"fsync": "off"})
    copy.start()
    configure(server, {"synchronous_standby_names": "second"})
    sync = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
    until(lambda: database.query(sync), "no synchronous standby")
    yield copy
    configure(server, {"synchronous_standby_names": ""})
    copy.stop("immediate")
    shutil.rmtree(home)


def test_the_primary_dies_and_the_standby_is_promoted(
    consumers: Consumers, database: Database, feed: Feed, standby: Postgres
) -> None:
    server = database.server
    account = database.url_of(logins.CONSUMER).partition("@")[0]
    hosts = f"127.0.0.1:{server.port()},127.0.0.1:{standby.port()}"
    url = f"{account}@{hosts}/{database.name}?target_session_attrs=read-write"
    consumers.env["DATABASE_URL"] = url
    running = consumers.start()
    running.until_reading()
    promoted = replace(database, server=standby, url=standby.url(database.name))
    with feed.pouring(400):
        until(lambda: database.read() > 200, running.said)
        server.kill()
        time.sleep(0.5)
        promote(standby)
        before = promoted.read()
        until(lambda: promoted.read() > before + 200, running.said)
    until(lambda: promoted.read() == feed.produced.total(), running.said)
    running.terminate()
    complete(consumers, promoted, feed)


@contextmanager
def no_room(server: Postgres, megabytes: int) -> Iterator[None]:
    """Run the server so that none of its files can grow beyond so much: what would is refused by
    the system, as on a full disk. (A limit, because to mount a small disk takes more than root.)"""
    server.stop()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (megabytes << 20, before[1]))
    try:
        server.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    try:
        yield
    finally:
        server.stop()
        server.start()


def test_no_room_on_the_disk(
    consumers: Consumers, database: Database, feed: Feed, broker: Daemon
) -> None:
    """Files of the write-ahead log have 16 MB, so that is where the room ends."""
    noise = random.Random(1)
    with no_room(database.server, 17):
        running = consumers.start()
        running.until_reading()
        for number in range(30):
            text = base64.b64encode(noise.randbytes(900_000)).decode()
            send(broker.client(), (TOPIC, value(id=f"large {number}", data={"text": text})))
        until(lambda: "could not extend file" in running.said(), running.said)
        feed.send(500)
        time.sleep(2)
        assert running.process.poll() is None
        assert database.read() < 530
        assert database.quarantined() == []
    until(lambda: database.read() == 530, running.said)
    running.terminate()
    assert database.quarantined() == []
    assert database.total() == 530
    assert consumers.manage("ledger").returncode == 0


def test_today_is_missing_and_only_maintain_may_create_it(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    """The limits for bad messages are low: none of these may count as one."""
    consumers.env |= FEW_DAYS
    database.drop_days()
    running = consumers.start(ANNALS_MAX_BAD_IN_A_ROW="5")
    running.until_reading()
    feed.send(200)
    until(lambda: running.said().count("run `annals partitions maintain`") > 2, running.said)
    assert (database.read(), database.quarantined()) == (0, [])
    assert consumers.manage("partitions", "maintain").returncode == 0
    until(lambda: database.read() == feed.produced.total(), running.said)
    running.terminate()
    complete(consumers, database, feed)


@contextmanager
def maintaining(consumers: Consumers, **env: str) -> Iterator[list[int]]:
    """Run `partitions maintain --force` again and again around a block; gives its exit codes."""
    stop, codes = threading.Event(), []

    def run() -> None:
        while not stop.is_set():
            done = command(consumers.env | env, "partitions", "maintain", "--force")
            codes.append(done.returncode)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield codes
    finally:
        stop.set()
        thread.join()


def test_days_detached_while_they_are_written(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    """Somebody keeps fewer days than the consumer writes: days that go come again, and no good
    message is taken for a bad one."""
    consumers.env |= FEW_DAYS
    feed.dates = [NOW - timedelta(days=5 + number) for number in range(5)]
    running = consumers.start(DATABASE_URL=database.url_of(logins.OWNER))
    running.until_reading()
    short = {"ANNALS_RETENTION_DAYS": "3"}
    with maintaining(consumers, **short) as codes, feed.pouring(200):
        until(lambda: len(codes) > 2, running.said, 120)
    assert 2 not in codes
    until(lambda: database.read() == feed.produced.total(), running.said)
    gone = feed.produced.total() - database.total()
    assert gone > 0
    assert database.quarantined() == []
    feed.send(1_000)
    until(lambda: database.read() == feed.produced.total(), running.said)
    running.terminate()
    assert feed.produced.total() - database.total() == gone
    assert consumers.manage("ledger").returncode == 0
