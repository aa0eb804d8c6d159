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
from ingest.consumer import metrics as ingest_metrics
from ingest.consumer.periodic_work import HEARTBEAT_SECONDS
from tests.consuming import (
    ROOT,
    ConsumerProcess,
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    assert_complete,
    wait_until,
)
from tests.metric_faults import find_metric_faults
from tests.processes import consumers, database, feed, server

pytestmark = [pytest.mark.system, pytest.mark.one_broker]
__all__ = ["consumers", "database", "feed", "server"]

REGISTERS = [module.REGISTER for module in (annals_metrics, history_metrics, ingest_metrics)]
TURN_METRIC = "annals_consumer_turn_timestamp_seconds"
IN_FLIGHT_METRIC = "annals_batch_in_flight_seconds"
DATABASE_UP_METRIC = "annals_database_up"
# Small batches: while one is written the other is soon full, and reading pauses.
SMALL_BATCHES = {"ANNALS_BATCH_ROWS": "10"}
MESSAGES = 100
# A loop that goes round turns within this time, even if it polls for a while.
TURNS_SECONDS = 3


def scrape_metrics(port: int) -> dict[str, float] | None:
    """The metrics without labels as Prometheus gets them; None if the endpoint does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as response:
            text = response.read().decode()
    except (urllib.error.URLError, TimeoutError):
        return None
    families = list(text_string_to_metric_families(text))
    assert list(find_metric_faults(families, REGISTERS)) == []
    return {sample.name: sample.value for family in families for sample in family.samples}


def start_consumer(
    consumers: ConsumerStarter, feed: MessageFeed, **env: str
) -> tuple[ConsumerProcess, int]:
    """A consumer that has stored something, and the port of its metrics."""
    [port] = process.choose_free_ports([None])
    running = consumers.start_consumer("--metrics-port", str(port), **env)
    running.wait_until_reading()
    feed.send_many(10)
    return running, port


def wait_for_metric(
    port: int, name: str, above: float, running: ConsumerProcess
) -> dict[str, float]:
    """Wait for a metric; gives all metrics of that scrape."""
    metrics_: dict[str, float] = {}

    def is_above() -> bool:
        metrics_.update(scrape_metrics(port) or {})
        return metrics_.get(name, -1) > above

    wait_until(is_above, running.read_log)
    return metrics_


def load_last_beat(database: ProductDatabase) -> datetime | None:
    """When a consumer wrote its last beat."""
    [row] = database.query("SELECT max(checked_at) AS at FROM ingest_ledger")
    checked_at: datetime | None = row["at"]
    return checked_at


def wait_for_two_beats(database: ProductDatabase, running: ConsumerProcess) -> None:
    """Wait for two beats: the first may have been on its way already."""
    for _ in range(2):
        earlier_beat = load_last_beat(database)
        wait_until(
            lambda earlier_beat=earlier_beat: load_last_beat(database) != earlier_beat,  # type: ignore[misc]
            running.read_log,
        )


def assert_goes_on(
    database: ProductDatabase, feed: MessageFeed, running: ConsumerProcess, port: int
) -> None:
    """What was in its way is gone: it stores everything, and shows no batch in flight."""
    wait_until(lambda: database.count_read() == feed.produced.total(), running.read_log)
    wait_until(lambda: (scrape_metrics(port) or {}).get(IN_FLIGHT_METRIC) == 0, running.read_log)
    running.terminate()


def test_metrics_show_a_write_that_waits_for_a_lock(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """The age of the batch grows, and the write is retried. The consumer loop continues, and its
    heartbeats too."""
    running, port = start_consumer(consumers, feed, **SMALL_BATCHES)
    with psycopg.connect(database.url) as plain:
        plain.execute("LOCK TABLE product_instance_aud IN ACCESS EXCLUSIVE MODE")
        feed.send_many(MESSAGES)
        first = wait_for_metric(port, "annals_paused", 0, running)
        wait_for_two_beats(database, running)
        later = wait_for_metric(
            port, IN_FLIGHT_METRIC, first[IN_FLIGHT_METRIC] + HEARTBEAT_SECONDS, running
        )
        assert later[TURN_METRIC] > first[TURN_METRIC]
        wait_until(
            lambda: (scrape_metrics(port) or {}).get(DATABASE_UP_METRIC) == 0, running.read_log
        )
    assert_goes_on(database, feed, running, port)
    assert_complete(consumers, database, feed)


def find_backend(database: ProductDatabase, purpose: str) -> psutil.Process:
    """A process of PostgreSQL that serves such a connection."""
    row, *_ = database.query(
        "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = %s",
        *(purpose, database.name),
    )
    return psutil.Process(row["pid"])


def test_metrics_show_a_write_that_gets_no_answer(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """One of the consumer's two server processes hangs, as on a disk that does not answer. There is
    no error: only the age of the batch tells."""
    running, port = start_consumer(consumers, feed, **SMALL_BATCHES)
    wait_until(lambda: database.count_read() == 10, running.read_log)
    backend_process = find_backend(database, "annals-consume")
    backend_process.suspend()
    try:
        feed.send_many(MESSAGES)
        first = wait_for_metric(port, "annals_paused", 0, running)
        wait_for_two_beats(database, running)
        later = wait_for_metric(
            port, IN_FLIGHT_METRIC, first[IN_FLIGHT_METRIC] + HEARTBEAT_SECONDS, running
        )
        assert later[TURN_METRIC] > first[TURN_METRIC]
        assert later[DATABASE_UP_METRIC] == 1
    finally:
        backend_process.resume()
    assert_goes_on(database, feed, running, port)
    assert_complete(consumers, database, feed)


# While there is the file that HANG names, the loop does not come back from its poll.
HANGING = """
import os, time
from ingest.kafka import source as kafka_source

poll = kafka_source.GroupMember.poll

def hang(source, limit, timeout):
    while os.path.exists(os.environ["HANG"]):
        time.sleep(0.05)
    return poll(source, limit, timeout)

kafka_source.GroupMember.poll = hang
"""


def test_metrics_show_a_consumer_loop_that_hangs(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed, tmp_path: Path
) -> None:
    """The process still serves metrics, but the time of the last turn and the heartbeats do not
    advance."""
    (tmp_path / "sitecustomize.py").write_text(HANGING)
    file, path = tmp_path / "hang", os.pathsep.join([str(tmp_path), str(ROOT)])
    running, port = start_consumer(consumers, feed, HANG=str(file), PYTHONPATH=path)
    wait_until(lambda: database.count_read() == 10, running.read_log)
    file.touch()
    time.sleep(TURNS_SECONDS)  # it may have been in a turn, and a beat on its way
    first, earlier_beat = scrape_metrics(port), load_last_beat(database)
    time.sleep(HEARTBEAT_SECONDS + TURNS_SECONDS)
    later = scrape_metrics(port)
    assert first is not None
    assert later is not None
    assert later[TURN_METRIC] == first[TURN_METRIC]
    assert later[IN_FLIGHT_METRIC] == 0
    assert load_last_beat(database) == earlier_beat
    running.process.send_signal(signal.SIGUSR1)  # as the runbook says
    wait_until(lambda: "Thread 0x" in running.read_log(), running.read_log)
    file.unlink()
    wait_for_metric(port, TURN_METRIC, first[TURN_METRIC], running)
    assert_goes_on(database, feed, running, port)


@contextmanager
def freeze_postgresql(database: ProductDatabase) -> Iterator[None]:
    """All processes of PostgreSQL are stopped inside the block. The system still takes connections
    and bytes for them."""
    pid = database.server.find_pid()
    assert pid is not None
    parent = psutil.Process(pid)
    family = [parent, *parent.children()]
    for module in family:
        module.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for module in family:
            with suppress(psutil.NoSuchProcess):  # it had ended already
                module.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("count", [0, 500], ids=["idle", "busy"])
def test_consumer_ends_on_sigterm_while_postgresql_is_frozen(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed, count: int
) -> None:
    """This holds even if only a heartbeat waits for PostgreSQL."""
    running, _ = start_consumer(consumers, feed)
    wait_until(lambda: database.count_read() == 10, running.read_log)
    with freeze_postgresql(database):
        feed.send_many(count)
        time.sleep(2 * HEARTBEAT_SECONDS + 1)
        running.terminate()
    consumers.consume_to_end()
    assert_complete(consumers, database, feed)
