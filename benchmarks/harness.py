"""Parts of all benchmarks: a database, the embedded broker, processes of Annals, and output."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
from django.conf import settings
from django.db import connection
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from annals.embedded import EmbeddedBroker
from annals.embedded.process import choose_free_ports
from history.kinds.entities import ENTITIES
from ingest.kafka.producer import KafkaProducer

DATABASE: Final = "annals_bench"
HOST: Final = "127.0.0.1"
PROGRAM: Final = Path(__file__).parents[1] / "manage.py"


class Harness:
    """The database and the broker of one benchmark."""

    def __init__(self, conninfo: str, broker: EmbeddedBroker) -> None:
        self.conninfo = conninfo
        self.broker = broker
        self._round = 0
        self._consumers: list[subprocess.Popen[str]] = []

    def connect(self) -> psycopg.Connection[Any]:
        """Open a connection in autocommit mode."""
        return psycopg.connect(self.conninfo, autocommit=True)

    def empty_tables(self) -> None:
        """Delete all rows, set all positions back, and write a checkpoint, before a measurement."""
        self.start_round()
        tables = [entity.table for entity in ENTITIES]
        tables += ["ingest_ledger", "ingest_gap", "ingest_quarantine", "search_key"]
        with self.connect() as connection:
            names = sql.SQL(", ").join(map(sql.Identifier, tables))
            connection.execute(sql.SQL("TRUNCATE {}").format(names))
            connection.execute("CHECKPOINT")

    def start_round(self) -> None:
        """Begin a round. Its consumers form a new group, without the members of earlier rounds."""
        self._round += 1

    def make_producer(self) -> KafkaProducer:
        return KafkaProducer(
            {
                "bootstrap.servers": self.broker.get_bootstrap_servers(),
                "message.max.bytes": 8_000_000,
            }
        )

    def make_environment(self) -> dict[str, str]:
        """Return the environment for a command that uses this database and this broker."""
        return {
            **os.environ,
            "DATABASE_URL": self.conninfo,
            "KAFKA_BOOTSTRAP_SERVERS": self.broker.get_bootstrap_servers(),
            "ANNALS_KAFKA_SESSION_TIMEOUT_MS": "6000",
        }

    def run_command(self, *arguments: str) -> None:
        """Run a management command to its end."""
        run_command(self.make_environment(), *arguments)

    def run_consumers(self, count: int = 1, until_idle: float = 3, **env: str) -> list[Any]:
        """Run `count` consumers until all topics are read, and return their summaries.

        Args:
            until_idle: A consumer ends after so many seconds without a message.
            env: Environment variables of the consumers.
        """
        processes = [self.start_consumer(until_idle, **env) for _ in range(count)]
        return [finish_consumer(process) for process in processes]

    def start_consumer(
        self, until_idle: float | None = None, *more_arguments: str, **env: str
    ) -> subprocess.Popen[str]:
        arguments = ["consume", "--json", "--group", f"bench-{self._round}", *more_arguments]
        arguments += [] if until_idle is None else ["--until-idle", str(until_idle)]
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            env={**self.make_environment(), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._consumers.append(process)
        return process

    def kill_consumers(self) -> None:
        """Kill the consumers that still run after an interruption."""
        for consumer in self._consumers:
            consumer.kill()
            consumer.wait()

    def measure_server_cpu(self) -> float | None:
        """Return the CPU seconds of the database server since its start.

        Return None if the server is on another machine.
        """
        with self.connect() as connection:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            try:
                postmaster = psutil.Process(row[0]).parent()
                if postmaster is None or "postgres" not in postmaster.name():
                    return None
                return sum(map(measure_cpu, (postmaster, *postmaster.children())))
            except psutil.Error:
                return None

    def measure_broker_cpu(self) -> float | None:
        """Return the CPU seconds of the broker since its start, or None if it does not run."""
        pid = self.broker.find_pid()
        return None if pid is None else measure_cpu(psutil.Process(pid))


@contextmanager
def create_database(name: str) -> Iterator[str]:
    """Create an empty database, yield its URI, and drop the database after the `with` block.

    Django is not connected to the database: call `use_database` for that. At the end, Django is
    connected to its usual database again.
    """
    server = settings.ANNALS.database_url or ""
    recreate_database(server, name)
    try:
        yield make_conninfo(server, dbname=name)
    finally:
        use_database(server)
        _drop_database(server, name)


def recreate_database(server: str, name: str) -> None:
    """Drop the database of this name if it exists, and create an empty one."""
    _drop_database(server, name)
    with psycopg.connect(server, autocommit=True) as plain_connection:
        plain_connection.execute(f"CREATE DATABASE {name}")


def _drop_database(server: str, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as plain_connection:
        plain_connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def use_database(conninfo: str) -> None:
    """Connect Django to this database."""
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]
    parts = conninfo_to_dict(conninfo)
    connection.settings_dict["NAME"] = parts["dbname"]
    for name in ("host", "port", "user", "password"):
        connection.settings_dict[name.upper()] = parts.get(name, "")


@contextmanager
def start_harness(partitions: int) -> Iterator[Harness]:
    """Create the database and start the embedded broker. Remove both after the `with` block.

    Args:
        partitions: The number of partitions of each topic.
    """
    with create_database(DATABASE) as conninfo:
        broker = EmbeddedBroker(settings.ANNALS.home / "bench" / "broker")
        broker.stop()
        shutil.rmtree(broker.home, ignore_errors=True)  # files of an interrupted run
        broker.start()
        harness = Harness(conninfo, broker)
        try:
            harness.run_command("migrate")
            harness.run_command("partitions", "maintain")
            topics = [topic for entity in ENTITIES for topic in entity.topics]
            harness.make_producer().create_topics(topics, partitions)
            yield harness
        finally:
            harness.kill_consumers()
            broker.stop()


def finish_consumer(process: subprocess.Popen[str]) -> Any:
    """Wait for the end of a consumer, and return its summary."""
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the consumer ended with {process.returncode}")
    return json.loads(output.splitlines()[-1])


def time_bare_copy(
    bench: Harness, batches: Sequence[Sequence[tuple[str, bytes]]], connections: int
) -> float:
    """Return how many seconds it takes to COPY prepared batches over several connections.

    Args:
        batches: Each batch is a list of statements with their binary payloads. It is sent in one
            transaction.
    """

    def send_batches(
        own_batches: Iterable[Sequence[tuple[str, bytes]]], ready: threading.Barrier
    ) -> None:
        with bench.connect() as connection, connection.cursor() as cursor:
            ready.wait()
            for batch in own_batches:
                with connection.transaction():
                    for statement, payload in batch:
                        with cursor.copy(statement) as copy:
                            copy.write(payload)

    barrier = threading.Barrier(connections + 1)
    threads = [
        threading.Thread(target=send_batches, args=(batches[n::connections], barrier))
        for n in range(connections)
    ]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def measure_cpu(process: psutil.Process) -> float:
    """Return the processor seconds of a process and of those of its children that have ended."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def run_command(environment: Mapping[str, str], *words: str) -> None:
    """Run a management command to its end."""
    subprocess.run(
        [sys.executable, str(PROGRAM), *words],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextmanager
def start_web(
    environment: Mapping[str, str], *, quiet: bool = False
) -> Iterator[tuple[int, psutil.Process]]:
    """Run gunicorn as in production during a `with` block, and yield its port and main process.

    Args:
        quiet: Whether to hide the log of gunicorn.
    """
    [port] = choose_free_ports([None])
    arguments = [
        "--config",
        "python:annals.server",
        "--bind",
        f"{HOST}:{port}",
        "annals.wsgi",
    ]
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *arguments],
        env=dict(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if quiet else None,
    )
    try:
        yield port, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait(30)


def print_json(bench: str, figures: Mapping[str, Any], is_met: bool | None = None) -> None:
    """Print the figures as JSON.

    Args:
        is_met: Whether the figures meet the targets that decide the exit code. None: there are no
            targets.
    """
    print(json.dumps({"bench": bench, "met": is_met, "figures": figures}))


def report_figures(
    bench: str, figures: Mapping[str, Any], print_figures: Callable[[Any], None], as_json: bool
) -> int:
    """Print the figures and the targets. Return 0 if all targets are met, else 1.

    Args:
        figures: The figures, with a list `targets`. Each target has `name`, `value`, `limit` and
            `met`.
        print_figures: Prints the figures for people, but not the targets.
        as_json: Print JSON instead.
    """
    is_met = all(target["met"] for target in figures["targets"])
    if as_json:
        print_json(bench, figures, is_met)
    else:
        print_figures(figures)
        for target in figures["targets"]:
            word = "met" if target["met"] else "MISSED"
            print(f"{target['name']}: {target['value']} (limit {target['limit']}) {word}")
    return 0 if is_met else 1
