"""What the benchmarks measure with: a database on the given server, a broker, our processes."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
from django.conf import settings
from django.db import connection
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from annals.embedded import Broker
from annals.embedded.process import free_ports
from history.entities import ENTITIES
from ingest.source.producer import KafkaProducer

DATABASE: Final = "annals_bench"
HOST: Final = "127.0.0.1"
PROGRAM: Final = Path(__file__).parents[1] / "manage.py"


class Harness:
    """The database and the broker of one benchmark."""

    def __init__(self, conninfo: str, broker: Broker) -> None:
        self.conninfo = conninfo
        self.broker = broker
        self._round = 0
        self._consumers: list[subprocess.Popen[str]] = []

    def connect(self) -> psycopg.Connection[Any]:
        """A connection in autocommit mode."""
        return psycopg.connect(self.conninfo, autocommit=True)

    def empty(self) -> None:
        """Delete all rows and positions, and write a checkpoint, so that all runs start alike."""
        self.next_round()
        tables = [entity.table for entity in ENTITIES]
        tables += ["ingest_ledger", "ingest_gap", "ingest_quarantine", "search_key"]
        with self.connect() as connection:
            names = sql.SQL(", ").join(map(sql.Identifier, tables))
            connection.execute(sql.SQL("TRUNCATE {}").format(names))
            connection.execute("CHECKPOINT")

    def next_round(self) -> None:
        """The next consumer uses a new group, without members of earlier runs."""
        self._round += 1

    def producer(self) -> KafkaProducer:
        return KafkaProducer({"bootstrap.servers": self.broker.bootstrap_servers(),
                         "message.max.bytes": 8_000_000})  # fmt: skip

    def environment(self) -> dict[str, str]:
        """The environment in which a command uses this database and this broker."""
        return {
            **os.environ,
            "DATABASE_URL": self.conninfo,
            "KAFKA_BOOTSTRAP_SERVERS": self.broker.bootstrap_servers(),
            "ANNALS_KAFKA_SESSION_TIMEOUT_MS": "6000",
        }

    def manage(self, *words: str) -> None:
        """Run a management command to its end."""
        manage(self.environment(), *words)

    def consume(self, count: int = 1, until_idle: float = 3, **env: str) -> list[Any]:
        """Run `count` consumers at once until the topics are read; gives their summaries."""
        processes = [self.start_consumer(until_idle, **env) for _ in range(count)]
        return [finish(process) for process in processes]

    def start_consumer(
        self, until_idle: float | None = None, *more: str, **env: str
    ) -> subprocess.Popen[str]:
        words = ["consume", "--json", "--group", f"bench-{self._round}", *more]
        words += [] if until_idle is None else ["--until-idle", str(until_idle)]
        started = subprocess.Popen(
            [sys.executable, str(PROGRAM), *words], env={**self.environment(), **env},
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._consumers.append(started)
        return started

    def end(self) -> None:
        """Kill the consumers that still run: the benchmark was interrupted."""
        for consumer in self._consumers:
            consumer.kill()
            consumer.wait()

    def server_cpu(self) -> float | None:
        """CPU seconds used by the database server; None if it is on another machine."""
        with self.connect() as connection:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            try:
                postmaster = psutil.Process(row[0]).parent()
                if postmaster is None or "postgres" not in postmaster.name():
                    return None
                return sum(map(cpu, (postmaster, *postmaster.children())))
            except psutil.Error:
                return None

    def broker_cpu(self) -> float | None:
        """CPU seconds used by the broker; None if it does not run."""
        pid = self.broker.pid()
        return None if pid is None else cpu(psutil.Process(pid))


@contextmanager
def new_database(name: str) -> Iterator[str]:
    """The address of a new, empty database. At the end it is removed, and Django, which may have
    used it, is connected to its own again."""
    server = settings.ANNALS.database_url or ""
    recreate(server, name)
    try:
        yield make_conninfo(server, dbname=name)
    finally:
        use(server)
        _drop(server, name)


def recreate(server: str, name: str) -> None:
    """Make this database, empty."""
    _drop(server, name)
    with psycopg.connect(server, autocommit=True) as plain:
        plain.execute(f"CREATE DATABASE {name}")


def _drop(server: str, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as plain:
        plain.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def use(conninfo: str) -> None:
    """Connect Django to this database."""
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]
    connection.settings_dict["NAME"] = conninfo_to_dict(conninfo)["dbname"]


@contextmanager
def harness(partitions: int) -> Iterator[Harness]:
    """Create the database and start the embedded broker; remove both at the end."""
    with new_database(DATABASE) as conninfo:
        broker = Broker(settings.ANNALS.home / "bench" / "broker")
        broker.stop()
        shutil.rmtree(broker.home, ignore_errors=True)  # files of an interrupted run
        broker.start()
        found = Harness(conninfo, broker)
        try:
            found.manage("migrate")
            found.manage("partitions", "maintain")
            topics = [topic for entity in ENTITIES for topic in entity.topics]
            found.producer().create_topics(topics, partitions)
            yield found
        finally:
            found.end()
            broker.stop()


def finish(process: subprocess.Popen[str]) -> Any:
    """Wait for the end of a consumer and read its summary."""
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"the consumer ended with {process.returncode}")
    return json.loads(output.splitlines()[-1])


def bare_copy(
    bench: Harness, batches: Sequence[Sequence[tuple[str, bytes]]], connections: int
) -> float:
    """Seconds to COPY prepared batches, one transaction each, over `connections` connections.

    A batch is a list of statements with their binary payloads.
    """

    def send(mine: Iterable[Sequence[tuple[str, bytes]]], ready: threading.Barrier) -> None:
        with bench.connect() as connection, connection.cursor() as cursor:
            ready.wait()
            for batch in mine:
                with connection.transaction():
                    for statement, payload in batch:
                        with cursor.copy(statement) as copy:
                            copy.write(payload)

    barrier = threading.Barrier(connections + 1)
    threads = [
        threading.Thread(target=send, args=(batches[n::connections], barrier))
        for n in range(connections)
    ]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def cpu(process: psutil.Process) -> float:
    """Processor seconds of a process, and of those that it started and that have ended."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def manage(environment: Mapping[str, str], *words: str) -> None:
    """Run a management command to its end."""
    subprocess.run(
        [sys.executable, str(PROGRAM), *words], env=environment, check=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@contextmanager
def web(
    environment: Mapping[str, str], *, quiet: bool = False
) -> Iterator[tuple[int, psutil.Process]]:
    """gunicorn as in production, just started: its port on HOST, and its main process. Ends it.
    quiet: its log is not shown."""
    [port] = free_ports([None])
    words = ["--config", "python:annals.server", "--bind", f"{HOST}:{port}", "annals.wsgi"]
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *words],
        env=dict(environment), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if quiet else None,
    )  # fmt: skip
    try:
        yield port, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait(30)


def print_json(bench: str, figures: Mapping[str, Any], met: bool | None = None) -> None:
    """met: whether the figures are within the limits that decide the exit code; None where there
    are none."""
    print(json.dumps({"bench": bench, "met": met, "figures": figures}))
