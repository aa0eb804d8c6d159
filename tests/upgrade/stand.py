"""The stand of the upgrade test: servers, processes of two releases, and API requests."""

import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from itertools import count
from pathlib import Path

import psycopg

from annals.embedded import logins
from annals.embedded.broker import EmbeddedBroker, KafkaServer
from annals.embedded.postgres import EmbeddedPostgres
from history.kinds.entities import ENTITIES
from tests.apache.broker import Apache
from tests.attack.web import AttackedWeb, run_gunicorn
from tests.consuming import (
    ROOT,
    ConsumerProcess,
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    make_environment,
    run_command,
    wait_until,
)
from tests.kafka import brokers

SESSION_SECONDS = 10.0
# Timeouts that other tests shorten. The upgrade uses their defaults, as in production.
PRODUCTION_SETTINGS = ("ANNALS_KAFKA_SESSION_TIMEOUT_MS", "ANNALS_KAFKA_HEARTBEAT_INTERVAL_MS")
PATHS = (
    "/api/v1/history/product-instance/d0?pageSize=5",
    "/api/v1/applications/d0/history?pageSize=5",
    "/api/v1/search?q=N-5",
    "/api/v1/completeness",
)


class ProjectCommandError(Exception):
    """Raised when a command fails. The message is its error output."""


class UpgradeStand:
    """One database with one group of consumers, and a web server of either release.

    The argument `root` of the methods is the folder with the code of a release: `earlier` or ROOT.

    Attributes:
        earlier: The folder with the code of the earlier release.
        web: The web server that gets the requests, or None.
        faults: Sentences about wrong answers and long pauses.
    """

    def __init__(
        self, folder: Path, server: EmbeddedPostgres, broker: KafkaServer, earlier: Path
    ) -> None:
        self.folder, self.earlier, self.broker = folder, earlier, broker
        folder.mkdir()
        self.database = ProductDatabase(server, "annals", server.build_url())
        env = make_environment(broker, self.database)
        for name in PRODUCTION_SETTINGS:
            env.pop(name)
        self.env = env | {
            "ANNALS_DEMO": "true",
            "TMPDIR": str(folder),
            # Few, because `maintain` creates all days of retention.
            "ANNALS_RETENTION_DAYS": "10",
            "ANNALS_AHEAD_DAYS": "1",
        }
        self.consumers = ConsumerStarter(self.env, folder)
        self.feed = MessageFeed(broker.make_client_config() | {"log_level": 0}, documents=40)
        self.web: AttackedWeb | None = None
        self.faults: list[str] = []
        self._answers: Counter[int] = Counter()
        self._pause = 0.0

    def run_command(self, root: Path, *arguments: str) -> str:
        """Run a command of a release as the owner of the tables, and return the output.

        Raises:
            ProjectCommandError: The command failed.
        """
        finished = run_command(self.get_environment(root), *arguments, root=root)
        if finished.returncode != 0:
            raise ProjectCommandError(finished.stderr.strip())
        return finished.stdout + finished.stderr

    def prepare_tables(self, root: Path) -> None:
        """Run the migrations of a release, grant rights to the logins, and create the days.

        The logins of web server and consumer are created if they do not exist, because not every
        release creates them.

        Args:
            root: The folder with the code of the release.
        """
        self.run_command(root, "migrate", "--verbosity", "0")
        self.run_command(root, "grants", "--apply")
        for role, login in (("annals_web", logins.WEB), ("annals_consumer", logins.CONSUMER)):
            if not self.database.query("SELECT 1 FROM pg_roles WHERE rolname = %s", login):
                password = self.database.server.get_password_file(login).read_text()
                with psycopg.connect(self.database.build_url(logins.OWNER)) as owner:
                    owner.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{password}'")
                    owner.execute(f"GRANT {role} TO {login}")
        self.run_command(root, "partitions", "maintain")

    def start_consumer(self, root: Path) -> ConsumerProcess:
        """Start a consumer of the release in the folder `root`, and wait until it reads."""
        self.consumers.root = root
        running = self.consumers.start_consumer(**self.get_environment(root))
        running.wait_until_reading()
        return running

    def get_environment(self, root: Path) -> dict[str, str]:
        """Return the environment variables of processes that run the release in the folder `root`.

        They contain the login of the consumer. Processes of the earlier release import the packages
        that its requirements name.
        """
        return self.env if root is ROOT else self.env | {"PYTHONPATH": f"{self.earlier}.packages"}

    @contextmanager
    def serve_web(self, root: Path, ready: str = "/readyz") -> Iterator[None]:
        """Run the web server of a release as long as the `with` block runs.

        Args:
            root: The folder with the code of the release.
            ready: The path that answers 200 when requests are possible.
        """
        env = self.get_environment(root) | {"DATABASE_URL": self.database.build_url(logins.WEB)}
        with run_gunicorn(env, self.folder, "--workers", "1", root=root, ready=ready) as web:
            self.web = web
            yield
            self.web = None

    @contextmanager
    def watch_answers(self) -> Iterator[None]:
        """Send requests to the web server, and query the ledger, while the block runs."""
        stop = threading.Event()
        thread = threading.Thread(target=self._watch, args=[stop])
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _watch(self, stop: threading.Event) -> None:
        read_before, moved_at = -1, time.monotonic()
        for number in count():
            if stop.wait(0.05):
                return
            if self.database.count_read() != read_before:
                read_before, moved_at = self.database.count_read(), time.monotonic()
            self._pause = max(self._pause, time.monotonic() - moved_at)
            web = self.web
            response = web.send_request(PATHS[number % len(PATHS)]) if web is not None else None
            if response is None or (response.status == 0 and web is not self.web):
                continue  # the web was replaced meanwhile: a proxy would use the new one
            self._answers[response.status] += 1
            if response.status != 200:
                text = response.body.decode("utf-8", "replace")[:300]
                self.faults.append(f"an answer with status {response.status}: {text}")

    @contextmanager
    def run_phase(
        self, name: str, print_progress: Callable[[str], None], seconds: float
    ) -> Iterator[None]:
        """Run the block as a phase of the upgrade.

        Print the longest time in which no message was read, and how many answers of the API had
        each status.

        Args:
            seconds: How long the phase lasts at least.
        """
        read_before = self.database.count_read()
        yield
        time.sleep(seconds)
        wait_until(lambda: self.database.count_read() > read_before, f"nothing is read: {name}")
        print_progress(
            f"{name}: longest pause of the group {self._pause:.2f} s, answers {dict(self._answers)}"
        )
        if self._pause > SESSION_SECONDS:
            self.faults.append(f"{name}: the group paused for longer than its session")
        self._answers.clear()
        self._pause = 0.0


def install_packages(requirements: Path, folder: Path) -> None:
    """Install into a folder the required packages whose version differs from the installed one.

    With the folder first in PYTHONPATH, the earlier release has exactly the packages that it names.
    Packages with the same version in both releases are left out, because installing all takes a
    minute.
    """
    needed = [
        requirement
        for requirement in re.split(r"(?m)^(?=[\w\[])", requirements.read_text())
        if (pin := re.match(r"([\w.-]+)(?:\[.*\])?==([^\s;\\]+)", requirement)) is not None
        and _find_installed_version(pin[1]) != pin[2]
    ]
    folder.mkdir()
    if not needed:
        return
    missing = folder.with_suffix(".txt")
    missing.write_text("".join(needed))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
    subprocess.run([*pip, "--requirement", missing, "--target", folder], check=True)


def _find_installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@contextmanager
def create_stand(folder: Path, kind: str, earlier: Path) -> Iterator[UpgradeStand]:
    """Start the servers, and create the tables with the earlier release.

    Args:
        kind: The kind of broker: `apache` or `embedded`.
    """
    folder.mkdir()
    server = EmbeddedPostgres(folder / "postgres", {"fsync": "off"})
    broker: KafkaServer = {"apache": Apache, "embedded": EmbeddedBroker}[kind](folder / "broker")
    try:
        install_packages(earlier / "requirements.txt", Path(f"{earlier}.packages"))
        server.start()
        broker.start()
        brokers.create_topics(broker, [t for entity in ENTITIES for t in entity.topics])
        created = UpgradeStand(folder / "files", server, broker, earlier)
        created.prepare_tables(earlier)
        try:
            yield created
        finally:
            created.consumers.kill_all()
    finally:
        broker.kill()
        server.stop("immediate")
