"""A consumer that cannot write, or that hangs: its metrics show the cause, and SIGTERM ends it.

docs/operations.md says which alert fires for each cause.
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
# With small batches the second batch is full while the first is written, and reading pauses.
SMALL_BATCHES = {"ANNALS_BATCH_ROWS": "10"}
MESSAGES = 100
# The consumer loop needs less than this time for a turn, even if its poll waits.
TURNS_SECONDS = 3


def scrape_metrics(port: int) -> dict[str, float] | None:
    """Return the metrics by name, without labels, or None if the endpoint does not answer."""
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
    """Start a consumer, send it some messages, and return it with the port of its metrics."""
    [port] = process.choose_free_ports([None])
    running = consumers.start_consumer("--metrics-port", str(port), **env)
    running.wait_until_reading()
    feed.send_many(10)
    return running, port


def wait_for_metric(
    port: int, name: str, above: float, running: ConsumerProcess
) -> dict[str, float]:
    """Wait until a metric is above a value, and return all metrics of that scrape."""
    values: dict[str, float] = {}

    def is_above() -> bool:
        values.update(scrape_metrics(port) or {})
        return values.get(name, -1) > above

    wait_until(is_above, running.read_log)
    return values


def load_last_heartbeat(database: ProductDatabase) -> datetime | None:
    """Return when a consumer wrote its last heartbeat."""
    [row] = database.query("SELECT max(checked_at) AS at FROM ingest_ledger")
    checked_at: datetime | None = row["at"]
    return checked_at


def wait_for_two_heartbeats(database: ProductDatabase, running: ConsumerProcess) -> None:
    """Wait for two new heartbeats, because the first may have begun before the call."""
    for _ in range(2):
        earlier = load_last_heartbeat(database)
        wait_until(
            lambda earlier=earlier: load_last_heartbeat(database) != earlier,  # type: ignore[misc]
            running.read_log,
        )


def assert_recovers(
    database: ProductDatabase, feed: MessageFeed, running: ConsumerProcess, port: int
) -> None:
    """Assert that the consumer stores everything, and then has no batch in flight."""
    wait_until(lambda: database.count_read() == feed.produced.total(), running.read_log)
    wait_until(lambda: (scrape_metrics(port) or {}).get(IN_FLIGHT_METRIC) == 0, running.read_log)
    running.terminate()


def test_metrics_show_a_write_that_waits_for_a_lock(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """The age of the batch grows, and the consumer retries the write. Meanwhile the consumer still
    writes heartbeats."""
    running, port = start_consumer(consumers, feed, **SMALL_BATCHES)
    with psycopg.connect(database.url) as plain:
        plain.execute("LOCK TABLE product_instance_aud IN ACCESS EXCLUSIVE MODE")
        feed.send_many(MESSAGES)
        first = wait_for_metric(port, "annals_paused", 0, running)
        wait_for_two_heartbeats(database, running)
        later = wait_for_metric(
            port, IN_FLIGHT_METRIC, first[IN_FLIGHT_METRIC] + HEARTBEAT_SECONDS, running
        )
        assert later[TURN_METRIC] > first[TURN_METRIC]
        wait_until(
            lambda: (scrape_metrics(port) or {}).get(DATABASE_UP_METRIC) == 0, running.read_log
        )
    assert_recovers(database, feed, running, port)
    assert_complete(consumers, database, feed)


def find_backend(database: ProductDatabase, application_name: str) -> psutil.Process:
    """Return the process of PostgreSQL that serves the connection with this application name."""
    row, *_ = database.query(
        "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = %s",
        application_name,
        database.name,
    )
    return psutil.Process(row["pid"])


def test_metrics_show_a_write_that_gets_no_answer(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """One of the consumer's two server processes hangs, as on a disk that does not answer. There is
    no error: in the metrics, only the age of the batch shows that the write hangs."""
    running, port = start_consumer(consumers, feed, **SMALL_BATCHES)
    wait_until(lambda: database.count_read() == 10, running.read_log)
    backend_process = find_backend(database, "annals-consume")
    backend_process.suspend()
    try:
        feed.send_many(MESSAGES)
        first = wait_for_metric(port, "annals_paused", 0, running)
        wait_for_two_heartbeats(database, running)
        later = wait_for_metric(
            port, IN_FLIGHT_METRIC, first[IN_FLIGHT_METRIC] + HEARTBEAT_SECONDS, running
        )
        assert later[TURN_METRIC] > first[TURN_METRIC]
        assert later[DATABASE_UP_METRIC] == 1
    finally:
        backend_process.resume()
    assert_recovers(database, feed, running, port)
    assert_complete(consumers, database, feed)


# Program text that makes the poll of the consumer loop hang while the file named by HANG exists.
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
    time.sleep(TURNS_SECONDS)  # a turn and a heartbeat may have begun before
    first, earlier_heartbeat = scrape_metrics(port), load_last_heartbeat(database)
    time.sleep(HEARTBEAT_SECONDS + TURNS_SECONDS)
    later = scrape_metrics(port)
    assert first is not None
    assert later is not None
    assert later[TURN_METRIC] == first[TURN_METRIC]
    assert later[IN_FLIGHT_METRIC] == 0
    assert load_last_heartbeat(database) == earlier_heartbeat
    running.process.send_signal(signal.SIGUSR1)  # as the runbook says
    wait_until(lambda: "Thread 0x" in running.read_log(), running.read_log)
    file.unlink()
    wait_for_metric(port, TURN_METRIC, first[TURN_METRIC], running)
    assert_recovers(database, feed, running, port)


@contextmanager
def freeze_postgresql(database: ProductDatabase) -> Iterator[None]:
    """Suspend all processes of PostgreSQL during the `with` block.

    The operating system still accepts connections and data for PostgreSQL, so clients get neither
    an error nor an answer.
    """
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
            with suppress(psutil.NoSuchProcess):  # the process has ended meanwhile
                module.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("count", [0, 500], ids=["idle", "busy"])
def test_consumer_ends_on_sigterm_while_postgresql_is_frozen(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed, count: int
) -> None:
    """Two cases: only a heartbeat waits for PostgreSQL, or a batch waits, too."""
    running, _ = start_consumer(consumers, feed)
    wait_until(lambda: database.count_read() == 10, running.read_log)
    with freeze_postgresql(database):
        feed.send_many(count)
        time.sleep(2 * HEARTBEAT_SECONDS + 1)
        running.terminate()
    consumers.consume_to_end()
    assert_complete(consumers, database, feed)
