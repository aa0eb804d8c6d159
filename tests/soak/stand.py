"""The servers and processes of a soak: PostgreSQL, Apache Kafka, two consumers, the web."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psycopg

from annals.demo.supervisor import answers
from annals.embedded import logins, process
from annals.embedded.postgres import Postgres
from history.entities import ENTITIES
from tests.apache.broker import Apache
from tests.consuming import ROOT, make_tables, until
from tests.kafka import brokers
from tests.soak.clock import FILE_VARIABLE, Clock, moved

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
# All errors, which the embedded server otherwise keeps out of its log.
LOUD = {"log_min_messages": "warning", "log_min_error_statement": "panic", "fsync": "off"}
TIMEOUT_S = 600


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    words: tuple[str, ...]
    code: int
    out: str
    said: str


@dataclass
class Stand:
    """Everything that runs, in a folder of its own. Call start(), and close() whatever happened."""

    home: Path
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    logs: list[tuple[str, Path]] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.postgres = Postgres(self.home / "postgres", LOUD)
        self.broker = Apache(self.home / "kafka", settings={"auto.create.topics.enable": "false"})
        self.archive = self.home / "archive"
        self.archive.mkdir()

    def start(self) -> None:
        """Start the servers, create tables, logins and days, then the consumers and the web."""
        self.postgres.start()
        self.broker.start(timeout=180)
        brokers.create(self.broker, [topic for entity in ENTITIES for topic in entity.topics])
        self.logs += [("postgres", self.postgres.log), ("broker", self.broker.log)]
        make_tables(self._env(logins.OWNER), self.postgres)
        self.clock = Clock(self.home / "clock", self.postgres.url())
        self.manage("partitions", "maintain")
        for number in range(CONSUMERS):
            name = f"consumer-{number + 1}"
            self.run(name, logins.CONSUMER, "manage.py", "consume", "--group", "soak")
        [port] = process.free_ports([None])
        self.address = f"http://{process.HOST}:{port}"
        bind = ("--bind", f"{process.HOST}:{port}", "annals.wsgi")
        self.run("web", logins.WEB, "gunicorn", "--config", "python:annals.server", *bind)
        log = self.logs[-1][1]
        until(lambda: answers(f"{self.address}/readyz"), lambda: process.tail(log), 120)

    def run(
        self, name: str, login: str, *words: str, out: IO[bytes] | int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        """Start a process on the moved clock. Its log is in the folder, under its name."""
        log = self.home / f"{name}.log"
        if (name, log) not in self.logs:
            self.logs.append((name, log))
        with log.open("ab") as errors:
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.moved", *words], cwd=ROOT,
                env=self._env(login), stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
            )  # fmt: skip
        self.children[name] = child
        return child

    def manage(self, *words: str, login: str = logins.OWNER) -> Done:
        """Run a command of manage.py to its end, on the moved clock."""
        ended = subprocess.run(
            [sys.executable, "-m", "tests.soak.moved", "manage.py", *words], cwd=ROOT,
            env=self._env(login), capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        self.done.append(Done(words, ended.returncode, ended.stdout, ended.stderr))
        return self.done[-1]

    def query(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """As the superuser, on the real clock."""
        with psycopg.connect(self.postgres.url(), autocommit=True) as plain:
            return plain.execute(text, values).fetchall()

    def dead(self) -> list[str]:
        """The processes that should run and have ended."""
        return [
            f"{name} ended with {child.returncode}"
            for name, child in self.children.items()
            if child.poll() is not None and not name.startswith("simulate")
        ]

    def close(self) -> dict[str, int]:
        """Stop everything. Returns the exit codes of the processes."""
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

    def _env(self, login: str) -> dict[str, str]:
        given = {name: text for name, text in os.environ.items() if not name.startswith("ANNALS_")}
        bootstrap = self.broker.bootstrap_servers()
        return {
            **given, **SETTINGS,
            "DATABASE_URL": moved(self.postgres.url(login=login))
            if (self.home / "clock").exists() else self.postgres.url(login=login),
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
            "ANNALS_HOME": str(self.home),
            "ANNALS_ARCHIVE_URL": str(self.archive),
            FILE_VARIABLE: str(self.home / "clock"),
        }  # fmt: skip
