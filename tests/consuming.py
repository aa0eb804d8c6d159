"""`annals consume` as a process, what it is fed, and what must be there afterwards."""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Message, Producer
from psycopg import sql
from psycopg.rows import dict_row

from annals.embedded import logins
from annals.embedded.broker import Client, Daemon
from annals.embedded.postgres import Postgres
from history.blocks.stored import EPOCH
from history.daily.canonical import columns, versions
from history.entities import ENTITIES, Entity, root
from tests.forked import forking
from tests.messages import NOW, value
from tests.shape import shaped

ROOT = Path(__file__).parents[1]
LIVE = [entity.topics[0] for entity in ENTITIES]
# A dead member is noticed after so long; the embedded broker lets one join after half of it.
SESSION_MS = 2_000
# Where the environment of a consumer has the URL of the tables' owner.
OWNER_URL = "ANNALS_TEST_OWNER_URL"
OWNERS_COMMANDS = ("grants", "makemigrations", "migrate", "partitions")


def until(
    condition: Callable[[], object], complaint: str | Callable[[], str], seconds: float = 60
) -> None:
    """Wait until it holds. complaint: what to say if it does not, or what gives that then."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(complaint if isinstance(complaint, str) else complaint())
        time.sleep(0.05)


@dataclass
class Database:
    """A database of the product, of its own, on a server that tests may maltreat. url: the
    superuser's."""

    server: Postgres
    name: str
    url: str

    def url_of(self, login: str) -> str:
        """For a process: the URL of one of annals.embedded.logins."""
        return self.server.url(self.name, login)

    def drop_days(self) -> None:
        """Drop every day of every kind."""
        for entity in ENTITIES:
            for row in self.query(
                "SELECT inhrelid::regclass AS day FROM pg_inherits"
                " WHERE inhparent = %s::regclass", entity.table
            ):  # fmt: skip
                self.execute(f"DROP TABLE {row['day']}")

    def query(self, text: str, *values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as plain:
            return plain.execute(text, values).fetchall()

    def execute(self, text: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as plain:
            plain.execute(text)

    def count(self, table: str = "product_instance_aud") -> int:
        return int(self.query(f"SELECT count(*) FROM {table}")[0]["count"])

    def stored(self, where: str = "") -> Counter[tuple[str, str, int, object]]:
        """Topic, id, version and the number in the snapshot of every row of every kind. where: a
        condition, as SQL."""
        return Counter(
            (entity.topics[0], *row.values())
            for entity in ENTITIES
            for row in self.query(
                f"SELECT id, version, (data->>'n')::bigint AS n FROM {self._plain(entity)} {where}"
            )
        )

    def _plain(self, entity: Entity) -> str:
        """A table with a row for each version: the entity's, or one in which blocks are
        unpacked."""
        with psycopg.connect(self.url, autocommit=True) as plain:
            found = plain.execute(f"SELECT bool_or(packed IS NOT NULL) FROM {entity.table}")
            if found.fetchone() != (True,):
                return entity.table
            names = [*columns(entity)]
            plain.execute(f"DROP TABLE IF EXISTS unpacked_{entity.table}")
            plain.execute(
                f"CREATE TABLE unpacked_{entity.table} AS SELECT {', '.join(names)}"
                f" FROM {entity.table} WHERE false"
            )
            rows = list(versions(plain, entity, sql.Identifier(entity.table)))
            query = f"COPY unpacked_{entity.table} ({', '.join(names)}) FROM STDIN"
            with plain.cursor() as cursor, cursor.copy(query) as copy:
                for id, version, moment, *rest in rows:
                    at = EPOCH + timedelta(microseconds=moment)
                    copy.write_row((id, version, at, *rest))
        return f"unpacked_{entity.table}"

    def unfindable(self) -> list[dict[str, Any]]:
        """Applications that search does not have with the newest day of what they show."""
        return self.query(f"""
            SELECT id, day FROM (
                SELECT id, data->>'number' AS value,
                    (max(updated_at) AT TIME ZONE 'UTC')::date AS day
                FROM {self._plain(root())} WHERE data ? 'number' GROUP BY 1, 2
            ) shown
            WHERE NOT EXISTS (
                SELECT FROM search_key k WHERE k.name = 'number' AND k.id = shown.id
                    AND k.value = shown.value AND k.day = shown.day
            )
        """)

    def total(self) -> int:
        return self.stored().total()

    def quarantined(self) -> list[dict[str, Any]]:
        return self.query('SELECT * FROM ingest_quarantine ORDER BY topic, partition, "offset"')

    def read(self) -> int:
        """How many messages the ledger has counted."""
        [row] = self.query("SELECT coalesce(sum(read), 0)::int AS read FROM ingest_ledger")
        return int(row["read"])


def environment(broker: Daemon, database: Database, client: Client | None = None) -> dict[str, str]:
    """What a command needs to find both, as the consumer."""
    kafka = {
        "ANNALS_KAFKA_" + name.upper().replace(".", "_"): str(setting)
        for name, setting in (client or broker.client()).items()
        if name != "bootstrap.servers"
    }
    given = client or broker.client()
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")},
        "DATABASE_URL": database.url_of(logins.CONSUMER),
        OWNER_URL: database.url_of(logins.OWNER),
        "KAFKA_BOOTSTRAP_SERVERS": str(given["bootstrap.servers"]),
        "ANNALS_HOME": str(database.server.home),
        "ANNALS_KAFKA_SESSION_TIMEOUT_MS": str(SESSION_MS),
        "ANNALS_KAFKA_HEARTBEAT_INTERVAL_MS": "500",
        "PYTHONWARNINGS": "ignore",
        **kafka,
    }


def command(
    env: dict[str, str], *words: str, root: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run a command of manage.py to its end; those that only the owner of the tables may run, as
    the owner, if the environment has its URL. In a fork of a process that has imported Annals with
    its own kinds, which spares a second of processor each time."""
    if words[0] in OWNERS_COMMANDS and OWNER_URL in env:
        env = env | {"DATABASE_URL": env[OWNER_URL]}
    if root == ROOT and "ANNALS_ENTITIES_FILE" not in env:
        done = forking().run(*words, env=env, seconds=120)
        assert done.code is not None, f"{words} does not end: {done.out}{done.err}"
        return subprocess.CompletedProcess(words, done.code, done.out, done.err)
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=root, env=env, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def make_tables(env: dict[str, str], server: Postgres) -> None:
    """Migrate, and give the logins of the web and the consumer their rights. env: as the owner."""
    grants = ["grants", "--apply"]
    for role, login in (("web", logins.WEB), ("consumer", logins.CONSUMER)):
        grants += ["--login", role, login, str(server.password_file(login))]
    for words in (["migrate", "--verbosity", "0"], grants):
        done = command(env, *words)
        assert done.returncode == 0, done.stdout + done.stderr


class Running:
    """A consumer process. Its log goes to a file, `summary` is what --json printed."""

    def __init__(
        self, env: dict[str, str], log: Path, *options: str, group: str, root: Path = ROOT
    ) -> None:
        self.log = log
        with log.open("ab") as errors:
            self._offset = errors.tell()
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "consume", "--json", "--group", group, *options],
                cwd=root, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=errors,
            )  # fmt: skip

    def said(self) -> str:
        """What this process has logged so far."""
        with self.log.open("rb") as log:
            log.seek(self._offset)
            return log.read().decode()

    def until_reading(self) -> None:
        """Wait until the group has given it partitions and the ledger offsets."""
        until(lambda: "reading " in self.said() or self.process.poll() is not None, self.said)
        assert self.process.poll() is None, self.said()

    def end(self, seconds: float = 60, code: int = 0) -> dict[str, Any]:
        """Wait for the end, which must be a good one, or with this exit code."""
        try:
            out, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"does not end:\n{self.said()}") from None
        assert self.process.returncode == code, f"exit {self.process.returncode}: {self.said()}"
        summary: dict[str, Any] = shaped("consume", out)
        return summary

    def terminate(self, seconds: float = 5) -> dict[str, Any]:
        """SIGTERM; it ends within the 5 seconds that are promised."""
        self.process.send_signal(signal.SIGTERM)
        return self.end(seconds)

    def freeze(self) -> None:
        """SIGSTOP it; returns when none of its threads runs any more, which takes a moment on a
        busy machine."""
        self.process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.pid}/task")
        until(lambda: all(_state(task) == "T" for task in tasks.iterdir()), "it does not stop")

    def wake(self) -> None:
        """Let it go on after freeze()."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL it if it still runs."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _state(task: Path) -> str:
    """The state of a thread: a letter, as proc(5) has them; empty where it has ended."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


@dataclass
class Consumers:
    """Starts consumer processes, and leaves none behind."""

    env: dict[str, str]
    log: Path
    root: Path = ROOT
    group: str = field(default_factory=lambda: f"test-{secrets.token_hex(6)}")
    all: list[Running] = field(default_factory=list)

    def start(self, *options: str, group: str | None = None, **env: str) -> Running:
        log = self.log / f"consumer-{len(self.all)}.log"
        running = Running(self.env | env, log, *options, group=group or self.group, root=self.root)
        self.all.append(running)
        return running

    def drain(self, *options: str, idle: float = 2, **env: str) -> dict[str, Any]:
        """Consume until nothing comes any more."""
        return self.start("--until-idle", str(idle), *options, **env).end(120)

    def manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        return command(self.env, *words, root=self.root)

    def ledger(self) -> dict[str, Any]:
        """What `annals ledger --json` says."""
        found: dict[str, Any] = shaped("ledger", self.manage("ledger", "--json").stdout)
        return found

    def stop(self) -> None:
        for running in self.all:
            running.wake()
            running.kill()


class Feed:
    """Produces good messages to the live topics and remembers which: each is another version, with
    a number of its own in the snapshot. topics: where they go; dates: the moments that they are
    given; both in turn."""

    def __init__(self, client: Client, documents: int = 400) -> None:
        self._producer = Producer({"acks": "all", "linger.ms": 5, **client})
        self.documents = documents
        self._number = 0
        self._failed: list[str] = []
        self.topics: Sequence[str] = LIVE
        self.dates = [NOW]
        self.produced: Counter[tuple[str, str, int, object]] = Counter()

    def one(self) -> None:
        number = self._number
        self._number += 1
        document, version = number % self.documents, number // self.documents
        topic = self.topics[document % len(self.topics)]
        body = value(
            id=f"d{document}",
            version=version,
            productInstanceId=f"a{document}",
            data={"n": number, "number": f"N-{document}"},
            updatedAt=self.dates[number % len(self.dates)].isoformat(),
        )
        while True:
            try:
                self._producer.produce(topic, body, f"d{document}", on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(0.1)
        self.produced[topic, f"d{document}", version, number] += 1
        self._producer.poll(0)

    def send(self, count: int) -> None:
        for _ in range(count):
            self.one()
        self.flush()

    def flush(self) -> None:
        assert self._producer.flush(60) == 0
        assert not self._failed, self._failed[:3]

    def _delivered(self, error: object, _: Message) -> None:
        if error is not None:
            self._failed.append(str(error))

    @contextmanager
    def pouring(self, rate: float) -> Iterator[None]:
        """Produce this number of messages per second while the block runs."""
        stop = threading.Event()

        def pour() -> None:
            began, sent = time.monotonic(), 0
            while not stop.is_set():
                while sent < (time.monotonic() - began) * rate:
                    self.one()
                    sent += 1
                time.sleep(0.01)

        thread = threading.Thread(target=pour)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.flush()


def send(client: Client, *messages: tuple[Any, ...]) -> None:
    """Produce (topic, value) or (topic, value, key, headers), in this order, to partition 0."""
    producer = Producer({**client, "acks": "all", "message.max.bytes": 8_000_000})
    for topic, body, *rest in messages:
        key, headers = (*rest, None, None)[:2]
        producer.produce(topic, body, key=key, headers=headers or [], partition=0)
    assert producer.flush(60) == 0


def complete(consumers: Consumers, database: Database, feed: Feed) -> None:
    """What was produced is what is stored, each once, and can be found; the ledger counted every
    message once."""
    assert database.stored() == feed.produced
    assert database.unfindable() == []
    assert database.read() == feed.produced.total()
    assert database.quarantined() == []
    done = consumers.manage("ledger", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert shaped("ledger", done.stdout)["totals"]["lag"] == 0
