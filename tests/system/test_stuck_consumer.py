"""A consumer that is frozen or hangs: the metrics tell which, and SIGTERM still ends it in time.

docs/operations.md says which alert fires for each.
"""

import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import psutil
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from annals import metrics as annals_metrics
from annals.embedded import process
from history import metrics as history_metrics
from ingest import metrics as ingest_metrics
from ingest.consumer.periodic_work import HEARTBEAT_SECONDS
from tests.consuming import ROOT, Consumers, Database, Feed, Running, complete, until
from tests.metric_faults import faults
from tests.processes import consumers, database, feed, server

pytestmark = [pytest.mark.system, pytest.mark.one_broker]
__all__ = ["consumers", "database", "feed", "server"]

REGISTERS = [each.REGISTER for each in (annals_metrics, history_metrics, ingest_metrics)]
TURN = "annals_consumer_turn_timestamp_seconds"
IN_FLIGHT = "annals_batch_in_flight_seconds"
UP = "annals_database_up"
# Small batches: while one is written the other is soon full, and reading pauses.
SMALL = {"ANNALS_BATCH_ROWS": "10"}
MESSAGES = 100
# A loop that goes round turns within this time, even if it polls for a while.
TURNS_SECONDS = 3


def scrape(port: int) -> dict[str, float] | None:
    """The metrics without labels as Prometheus gets them; None if the endpoint does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, TimeoutError):
        return None
    families = list(text_string_to_metric_families(text))
    assert list(faults(families, REGISTERS)) == []
    return {sample.name: sample.value for family in families for sample in family.samples}


def started(consumers: Consumers, feed: Feed, **env: str) -> tuple[Running, int]:
    """A consumer that has stored something, and the port of its metrics."""
    [port] = process.free_ports([None])
    running = consumers.start("--metrics-port", str(port), **env)
    running.until_reading()
    feed.send(10)
    return running, port


def until_metric(port: int, name: str, above: float, running: Running) -> dict[str, float]:
    """Wait for a metric; gives all metrics of that scrape."""
    found: dict[str, float] = {}

    def reached() -> bool:
        found.update(scrape(port) or {})
        return found.get(name, -1) > above

    until(reached, running.said)
    return found


def beaten(database: Database) -> datetime | None:
    """When a consumer wrote its last beat."""
    [row] = database.query("SELECT max(checked_at) AS at FROM ingest_ledger")
    at: datetime | None = row["at"]
    return at


def until_two_beats(database: Database, running: Running) -> None:
    """Wait for two beats: the first may have been on its way already."""
    for _ in range(2):
        before = beaten(database)
        until(lambda before=before: beaten(database) != before, running.said)  # type: ignore[misc]


def goes_on(database: Database, feed: Feed, running: Running, port: int) -> None:
    """What was in its way is gone: it stores everything, and shows no batch in flight."""
    until(lambda: database.read() == feed.produced.total(), running.said)
    until(lambda: (scrape(port) or {}).get(IN_FLIGHT) == 0, running.said)
    running.terminate()


def test_a_write_that_waits_for_a_lock(
    consumers: Consumers, database: Database, feed: Feed
) -> None:
    """The batch grows old and the write is retried; the loop turns, the beats go on."""
    running, port = started(consumers, feed, **SMALL)
    with psycopg.connect(database.url) as plain:
        plain.execute("LOCK TABLE product_instance_aud IN ACCESS EXCLUSIVE MODE")
        feed.send(MESSAGES)
        first = until_metric(port, "annals_paused", 0, running)
        until_two_beats(database, running)
        later = until_metric(port, IN_FLIGHT, first[IN_FLIGHT] + HEARTBEAT_SECONDS, running)
        assert later[TURN] > first[TURN]
        until(lambda: (scrape(port) or {}).get(UP) == 0, running.said)
    goes_on(database, feed, running, port)
    complete(consumers, database, feed)


def backend(database: Database, purpose: str) -> psutil.Process:
    """A process of PostgreSQL that serves such a connection."""
    row, *_ = database.query(
        "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = %s",
        *(purpose, database.name),
    )
    return psutil.Process(row["pid"])


def test_a_write_that_gets_no_answer(consumers: Consumers, database: Database, feed: Feed) -> None:
    """One of the server's processes for writes hangs, as on a disk that does not answer: no error
    comes, and only the age of the batch tells, also while the other one works."""
    running, port = started(consumers, feed, **SMALL)
    until(lambda: database.read() == 10, running.said)
    serving = backend(database, "annals-consume")
    serving.suspend()
    try:
        feed.send(MESSAGES)
        first = until_metric(port, "annals_paused", 0, running)
        until_two_beats(database, running)
        later = until_metric(port, IN_FLIGHT, first[IN_FLIGHT] + HEARTBEAT_SECONDS, running)
        assert later[TURN] > first[TURN]
        assert later[UP] == 1
    finally:
        serving.resume()
    goes_on(database, feed, running, port)
    complete(consumers, database, feed)


# While there is the file that HANG names, the loop does not come back from its poll.
HANGING = """
import os, time
from ingest.source import kafka

poll = kafka.GroupMember.poll

def hang(source, limit, timeout):
    while os.path.exists(os.environ["HANG"]):
        time.sleep(0.05)
    return poll(source, limit, timeout)

kafka.GroupMember.poll = hang
"""


def test_a_loop_that_hangs(
    consumers: Consumers, database: Database, feed: Feed, tmp_path: Path
) -> None:
    """The process answers; the time of the last turn and the beats stand still."""
    (tmp_path / "sitecustomize.py").write_text(HANGING)
    file, path = tmp_path / "hang", os.pathsep.join([str(tmp_path), str(ROOT)])
    running, port = started(consumers, feed, HANG=str(file), PYTHONPATH=path)
    until(lambda: database.read() == 10, running.said)
    file.touch()
    time.sleep(TURNS_SECONDS)  # it may have been in a turn, and a beat on its way
    first, before = scrape(port), beaten(database)
    time.sleep(HEARTBEAT_SECONDS + TURNS_SECONDS)
    later = scrape(port)
    assert first is not None
    assert later is not None
    assert later[TURN] == first[TURN]
    assert later[IN_FLIGHT] == 0
    assert beaten(database) == before
    running.process.send_signal(signal.SIGUSR1)  # as the runbook says
    until(lambda: "Thread 0x" in running.said(), running.said)
    file.unlink()
    until_metric(port, TURN, first[TURN], running)
    goes_on(database, feed, running, port)


@contextmanager
def frozen(database: Database) -> Iterator[None]:
    """All processes of PostgreSQL are stopped inside the block. The system still takes connections
    and bytes for them."""
    pid = database.server.pid()
    assert pid is not None
    parent = psutil.Process(pid)
    family = [parent, *parent.children()]
    for each in family:
        each.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for each in family:
            with suppress(psutil.NoSuchProcess):  # it had ended already
                each.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("count", [0, 500], ids=["idle", "busy"])
def test_sigterm_while_postgresql_is_frozen(
    consumers: Consumers, database: Database, feed: Feed, count: int
) -> None:
    """Also when nothing but beats waits for it, or work that failed connects again."""
    running, _ = started(consumers, feed)
    until(lambda: database.read() == 10, running.said)
    with frozen(database):
        feed.send(count)
        time.sleep(2 * HEARTBEAT_SECONDS + 1)
        running.terminate()
    consumers.drain()
    complete(consumers, database, feed)
