"""Servers for an upgrade: PostgreSQL, a broker, and processes of two releases."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from annals.embedded import logins, process
from annals.embedded.broker import Broker, Daemon
from annals.embedded.postgres import Postgres
from history.entities import ENTITIES
from tests.apache.broker import Apache
from tests.attack.web import Web
from tests.consuming import ROOT, Consumers, Database, Feed, environment
from tests.kafka import brokers

PARTITIONS = 3
START_S = 60
# Those that a consumer has in production: tests shorten them.
PRODUCTION = ("ANNALS_KAFKA_SESSION_TIMEOUT_MS", "ANNALS_KAFKA_HEARTBEAT_INTERVAL_MS")


class Refused(Exception):
    """A command or a process ended with an error. The message is what it wrote."""


class Stand:
    """One database with one group of consumers. `earlier` and `ROOT` are the two projects."""

    def __init__(self, folder: Path, server: Postgres, broker: Daemon, earlier: Path) -> None:
        self.folder, self.earlier = folder, earlier
        folder.mkdir()
        self.database = Database(server, "annals", server.url())
        env = environment(broker, self.database)
        for name in PRODUCTION:
            env.pop(name)
        env |= {"ANNALS_DEMO": "true", "ANNALS_API_RATE": "100000"}
        self.env = env | {"ANNALS_HOME": str(server.home), "TMPDIR": str(folder)}
        self.consumers = Consumers(self.env, folder)
        self.feed = Feed(broker.client() | {"log_level": 0}, documents=40)

    def manage(self, root: Path, *words: str, login: str = logins.OWNER) -> str:
        """Run a command of a project. What it wrote; raises Refused."""
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=root, env=self.env | {"DATABASE_URL": self.database.url_of(login)},
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        if done.returncode != 0:
            raise Refused(done.stderr.strip())
        return done.stdout + done.stderr

    def grants(self, root: Path) -> None:
        """The rights of the web and the consumer, as this release has them, and their logins, which
        not every release makes."""
        self.manage(root, "grants", "--apply")
        for role, login in (("annals_web", logins.WEB), ("annals_consumer", logins.CONSUMER)):
            if not self.database.query("SELECT 1 FROM pg_roles WHERE rolname = %s", login):
                password = self.database.server.password_file(login).read_text()
                with psycopg.connect(self.database.url_of(logins.OWNER)) as owner:
                    owner.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{password}'")
                    owner.execute(f"GRANT {role} TO {login}")

    def tables(self, root: Path) -> None:
        """Migrate with a project, and make the days."""
        self.manage(root, "migrate", "--verbosity", "0")
        self.grants(root)
        self.manage(root, "partitions", "maintain")

    @contextmanager
    def web(self, root: Path, ready: str = "/readyz") -> Iterator[Web]:
        """A web of a project; ready: what answers 200 when it may be asked."""
        (port,) = process.free_ports([None])
        log = self.folder / f"web-{port}.log"
        with log.open("w") as file:
            server = subprocess.Popen(
                [*(sys.executable, "-m", "gunicorn", "--config", "python:annals.server"),
                 *("--workers", "1", "--bind", f"127.0.0.1:{port}", "annals.wsgi")],
                cwd=root, env=self.env | {"DATABASE_URL": self.database.url_of(logins.WEB)},
                stdout=file, stderr=file,
            )  # fmt: skip
        web = Web(port, log, self.database.url, server.pid)
        try:
            deadline = time.monotonic() + START_S
            while web.get(ready).status != 200:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise Refused(f"the web of {root} does not get ready:\n{log.read_text()}")
                time.sleep(0.1)
            yield web
        finally:
            server.terminate()
            server.wait(30)


@contextmanager
def stand(folder: Path, kind: str, earlier: Path) -> Iterator[Stand]:
    """A stand with the tables of the earlier release. kind: `apache` or `embedded`."""
    folder.mkdir()
    server = Postgres(folder / "postgres", {"fsync": "off"})
    broker: Daemon = {"apache": Apache, "embedded": Broker}[kind](folder / "broker")
    try:
        server.start()
        broker.start()
        brokers.create(broker, [t for entity in ENTITIES for t in entity.topics], PARTITIONS)
        made = Stand(folder / "files", server, broker, earlier)
        made.tables(earlier)
        try:
            yield made
        finally:
            made.consumers.stop()
    finally:
        broker.kill()
        server.stop("immediate")


__all__ = ["ROOT", "Refused", "Stand", "stand"]
