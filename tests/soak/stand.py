"""The servers and processes of a soak: PostgreSQL, Apache Kafka, two consumers, a web server."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psycopg

from annals.demo.supervisor import is_answering
from annals.embedded import logins, process
from annals.embedded.postgres import EmbeddedPostgres
from history.kinds.entities import ENTITIES
from tests.apache.broker import Apache
from tests.consuming import ROOT, make_tables, wait_until
from tests.kafka import brokers
from tests.soak.clock import FILE_VARIABLE, MovedClock, build_moved_url

RETENTION, AHEAD, HOLD, SEAL = 3, 1, 2, 1
CONSUMERS = 2
SETTINGS = {
    "ANNALS_DEMO": "true",
    "ANNALS_RETENTION_DAYS": str(RETENTION),
    "ANNALS_AHEAD_DAYS": str(AHEAD),
    "ANNALS_HOLD_DAYS": str(HOLD),
    "ANNALS_SEAL_DAYS": str(SEAL),
    "ANNALS_LOG_FORMAT": "json",
}
# With these settings the embedded server logs all errors.
LOUD_SETTINGS = {"log_min_messages": "warning", "log_min_error_statement": "panic", "fsync": "off"}
TIMEOUT_S = 600


@dataclass(frozen=True)
class SoakCommandResult:
    """A command that has ended."""

    words: tuple[str, ...]
    code: int
    out: str
    errors: str


@dataclass
class SoakStand:
    """The servers and processes of one soak, in a folder.

    Call start_all(), and stop_all() even if the start failed.
    """

    home: Path
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    logs: list[tuple[str, Path]] = field(default_factory=list)
    results: list[SoakCommandResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.postgres = EmbeddedPostgres(self.home / "postgres", LOUD_SETTINGS)
        self.broker = Apache(self.home / "kafka", settings={"auto.create.topics.enable": "false"})
        self.archive = self.home / "archive"
        self.archive.mkdir()

    def start_all(self) -> None:
        """Start the servers, create tables, logins and days, and start consumers and web server."""
        self.postgres.start()
        self.broker.start(timeout=180)
        brokers.create_topics(
            self.broker, [topic for entity in ENTITIES for topic in entity.topics]
        )
        self.logs += [("postgres", self.postgres.log), ("broker", self.broker.log)]
        make_tables(self._make_environment(logins.OWNER), self.postgres)
        self.clock = MovedClock(self.home / "clock", self.postgres.build_url())
        self.run_command("partitions", "maintain")
        for number in range(CONSUMERS):
            name = f"consumer-{number + 1}"
            self.start_process(name, logins.CONSUMER, "manage.py", "consume", "--group", "soak")
        [port] = process.choose_free_ports([None])
        self.address = f"http://{process.HOST}:{port}"
        bind = ("--bind", f"{process.HOST}:{port}", "annals.wsgi")
        self.start_process("web", logins.WEB, "gunicorn", "--config", "python:annals.server", *bind)
        log = self.logs[-1][1]
        wait_until(
            lambda: is_answering(f"{self.address}/readyz"), lambda: process.read_tail(log), 120
        )

    def start_process(
        self, name: str, login: str, *arguments: str, out: IO[bytes] | int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        """Start a program through tests.soak.moved, with the moved clock of this stand.

        Args:
            name: The process writes its log to the file {name}.log in the folder `home`.
            login: The database login of the process.
            arguments: The program and its arguments.
        """
        log = self.home / f"{name}.log"
        if (name, log) not in self.logs:
            self.logs.append((name, log))
        with log.open("ab") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.moved", *arguments],
                cwd=ROOT,
                env=self._make_environment(login),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
            )
        self.children[name] = child
        return child

    def run_command(self, *arguments: str, login: str = logins.OWNER) -> SoakCommandResult:
        """Run a command of manage.py to its end, with the moved clock of this stand."""
        finished = subprocess.run(
            [sys.executable, "-m", "tests.soak.moved", "manage.py", *arguments],
            cwd=ROOT,
            env=self._make_environment(login),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        self.results.append(
            SoakCommandResult(arguments, finished.returncode, finished.stdout, finished.stderr)
        )
        return self.results[-1]

    def query(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query as the superuser. In this query now() returns the real time."""
        with psycopg.connect(self.postgres.build_url(), autocommit=True) as plain:
            return plain.execute(text, values).fetchall()

    def list_dead(self) -> list[str]:
        """Return a sentence for each process, except simulators, that has ended too early."""
        return [
            f"{name} ended with {child.returncode}"
            for name, child in self.children.items()
            if child.poll() is not None and not name.startswith("simulate")
        ]

    def stop_all(self) -> dict[str, int]:
        """Stop all processes and servers, and return the exit codes of the processes."""
        codes = {}
        for child in self.children.values():
            if child.poll() is None:
                child.terminate()
        for name, child in self.children.items():
            try:
                codes[name] = child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
                codes[name] = child.wait()
        self.broker.stop(timeout=30)
        self.postgres.stop()
        return codes

    def _make_environment(self, login: str) -> dict[str, str]:
        inherited = {
            name: text for name, text in os.environ.items() if not name.startswith("ANNALS_")
        }
        bootstrap = self.broker.get_bootstrap_servers()
        return {
            **inherited,
            **SETTINGS,
            "DATABASE_URL": build_moved_url(self.postgres.build_url(login=login))
            if (self.home / "clock").exists()
            else self.postgres.build_url(login=login),
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "ANNALS_HOME": str(self.home),
            "ANNALS_ARCHIVE_URL": str(self.archive),
            FILE_VARIABLE: str(self.home / "clock"),
        }
