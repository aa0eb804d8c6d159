"""Servers for an upgrade, processes of two releases, and what users of Annals see meanwhile."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

from annals.embedded import logins
from annals.embedded.broker import Broker, Daemon
from annals.embedded.postgres import Postgres
from history.entities import ENTITIES
from tests.apache.broker import Apache
from tests.attack.web import Web, gunicorn
from tests.consuming import ROOT, Consumers, Database, Feed, Running, command, environment, until
from tests.kafka import brokers

SESSION_S = 10.0
# Those that a consumer has in production: tests shorten them.
PRODUCTION = ("ANNALS_KAFKA_SESSION_TIMEOUT_MS", "ANNALS_KAFKA_HEARTBEAT_INTERVAL_MS")
PATHS = (
    "/api/v1/history/product-instance/d0?pageSize=5",
    "/api/v1/applications/d0/history?pageSize=5",
    "/api/v1/search?q=N-5",
    "/api/v1/completeness",
)


class Refused(Exception):
    """A command ended with an error. The message is what it wrote."""


class Stand:
    """One database with one group of consumers. earlier: the project of the earlier release. web:
    the one that is asked, if any. faults: what a user would complain about."""

    def __init__(self, folder: Path, server: Postgres, broker: Daemon, earlier: Path) -> None:
        self.folder, self.earlier, self.broker = folder, earlier, broker
        folder.mkdir()
        self.database = Database(server, "annals", server.url())
        env = environment(broker, self.database)
        for name in PRODUCTION:
            env.pop(name)
        self.env = env | {"ANNALS_DEMO": "true", "TMPDIR": str(folder)}
        self.consumers = Consumers(self.env, folder)
        self.feed = Feed(broker.client() | {"log_level": 0}, documents=40)
        self.web: Web | None = None
        self.faults: list[str] = []
        self._answers: Counter[int] = Counter()
        self._pause = 0.0

    def manage(self, root: Path, *words: str) -> str:
        """Run a command of a project as the owner. What it wrote; raises Refused."""
        done = command(self.environment(root), *words, root=root)
        if done.returncode != 0:
            raise Refused(done.stderr.strip())
        return done.stdout + done.stderr

    def tables(self, root: Path) -> None:
        """Migrate with a project, give the web and the consumer the rights that this release has,
        and logins, which not every release makes, and make the days."""
        self.manage(root, "migrate", "--verbosity", "0")
        self.manage(root, "grants", "--apply")
        for role, login in (("annals_web", logins.WEB), ("annals_consumer", logins.CONSUMER)):
            if not self.database.query("SELECT 1 FROM pg_roles WHERE rolname = %s", login):
                password = self.database.server.password_file(login).read_text()
                with psycopg.connect(self.database.url_of(logins.OWNER)) as owner:
                    owner.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{password}'")
                    owner.execute(f"GRANT {role} TO {login}")
        self.manage(root, "partitions", "maintain")

    def start(self, root: Path) -> Running:
        """A consumer of a project, reading."""
        self.consumers.root = root
        running = self.consumers.start(**self.environment(root))
        running.until_reading()
        return running

    def environment(self, root: Path) -> dict[str, str]:
        """Of the processes of a project, with the consumer's login. A release runs with the
        packages that it names."""
        return self.env if root is ROOT else self.env | {"PYTHONPATH": f"{self.earlier}.packages"}

    @contextmanager
    def serving(self, root: Path, ready: str = "/readyz") -> Iterator[None]:
        """A web of a project is asked in the block. ready: what answers 200 when it may be."""
        env = self.environment(root) | {"DATABASE_URL": self.database.url_of(logins.WEB)}
        with gunicorn(env, self.folder, "--workers", "1", root=root, ready=ready) as web:
            self.web = web
            yield
            self.web = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Ask the web and the ledger while the block runs."""
        stop = threading.Event()
        thread = threading.Thread(target=self._watch, args=[stop])
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _watch(self, stop: threading.Event) -> None:
        before, moved = -1, time.monotonic()
        for number in count():
            if stop.wait(0.05):
                return
            if self.database.read() != before:
                before, moved = self.database.read(), time.monotonic()
            self._pause = max(self._pause, time.monotonic() - moved)
            web = self.web
            answer = web.get(PATHS[number % len(PATHS)]) if web is not None else None
            if answer is None or (answer.status == 0 and web is not self.web):
                continue  # it was taken out of the proxy meanwhile, which would ask the other one
            self._answers[answer.status] += 1
            if answer.status != 200:
                text = answer.body.decode("utf-8", "replace")[:300]
                self.faults.append(f"an answer with status {answer.status}: {text}")

    @contextmanager
    def phase(self, name: str, say: Callable[[str], None], seconds: float) -> Iterator[None]:
        """One phase, which lasts at least so long, with a figure at its end."""
        before = self.database.read()
        yield
        time.sleep(seconds)
        until(lambda: self.database.read() > before, f"nothing is read: {name}")
        say(
            f"{name}: longest pause of the group {self._pause:.2f} s, answers {dict(self._answers)}"
        )
        if self._pause > SESSION_S:
            self.faults.append(f"{name}: the group paused for longer than its session")
        self._answers.clear()
        self._pause = 0.0


@contextmanager
def stand(folder: Path, kind: str, earlier: Path) -> Iterator[Stand]:
    """A stand with the tables of the earlier release. kind: `apache` or `embedded`."""
    folder.mkdir()
    server = Postgres(folder / "postgres", {"fsync": "off"})
    broker: Daemon = {"apache": Apache, "embedded": Broker}[kind](folder / "broker")
    try:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes"]
        names = ["--requirement", earlier / "requirements.txt", "--target", f"{earlier}.packages"]
        subprocess.run([*pip, *names], check=True)
        server.start()
        broker.start()
        brokers.create(broker, [t for entity in ENTITIES for t in entity.topics])
        made = Stand(folder / "files", server, broker, earlier)
        made.tables(earlier)
        try:
            yield made
        finally:
            made.consumers.stop()
    finally:
        broker.kill()
        server.stop("immediate")
