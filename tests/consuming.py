"""Runs `annals consume` as a process, feeds it, and checks what it stored."""

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
from annals.embedded.broker import KafkaConfig, KafkaServer
from annals.embedded.postgres import EmbeddedPostgres
from history.kinds.entities import ENTITIES, EntityKind, get_root
from history.store.blocks.queries import EPOCH
from history.store.days.canonical import list_columns, stream_versions
from tests.command_shapes import parse_shaped
from tests.forked import get_forker
from tests.messages import NOW, make_value

ROOT = Path(__file__).parents[1]
LIVE_TOPICS = [entity.topics[0] for entity in ENTITIES]
# After this time the broker notices a dead member. The embedded broker admits a new member after
# half of it.
SESSION_MS = 2_000
# The variable in a consumer's environment with the URL of the tables' owner.
OWNER_URL = "ANNALS_TEST_OWNER_URL"
COMMANDS_OF_OWNER = ("grants", "makemigrations", "migrate", "partitions")


def wait_until(
    condition: Callable[[], object], complaint: str | Callable[[], str], seconds: float = 120
) -> None:
    """Wait until the condition is true, and fail with `complaint` after `seconds`.

    Args:
        complaint: The message of the failure, or a callable that returns the message.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(complaint if isinstance(complaint, str) else complaint())
        time.sleep(0.05)


@dataclass
class ProductDatabase:
    """A database of Annals on a server that tests may stop and kill."""

    server: EmbeddedPostgres
    name: str
    url: str  # with the superuser's login

    def build_url(self, login: str) -> str:
        """Return the URL of this database for a login. The logins are in annals.embedded.logins."""
        return self.server.build_url(self.name, login)

    def drop_days(self) -> None:
        """Drop every day of every kind."""
        for entity in ENTITIES:
            for row in self.query(
                "SELECT inhrelid::regclass AS day FROM pg_inherits WHERE inhparent = %s::regclass",
                entity.table,
            ):
                self.execute(f"DROP TABLE {row['day']}")

    def query(self, text: str, *values: Any) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as plain:
            return plain.execute(text, values).fetchall()

    def execute(self, text: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as plain:
            plain.execute(text)

    def count_rows(self, table: str = "product_instance_aud") -> int:
        return int(self.query(f"SELECT count(*) FROM {table}")[0]["count"])

    def count_stored(self, where: str = "") -> Counter[tuple[str, str, int, object]]:
        """Count the stored versions by topic, id, version number and the field `n` of the snapshot.

        Args:
            where: An SQL condition.
        """
        return Counter(
            (entity.topics[0], *row.values())
            for entity in ENTITIES
            for row in self.query(
                "SELECT id, version, (data->>'n')::bigint AS n FROM "
                f"{self._unpack_table(entity)} {where}"
            )
        )

    def _unpack_table(self, entity: EntityKind) -> str:
        """Return the name of a table with one row for each version of the kind.

        It is the table of the kind, or a copy with unpacked blocks.
        """
        with psycopg.connect(self.url, autocommit=True) as plain:
            packed_row = plain.execute(f"SELECT bool_or(packed IS NOT NULL) FROM {entity.table}")
            if packed_row.fetchone() != (True,):
                return entity.table
            names = [*list_columns(entity)]
            plain.execute(f"DROP TABLE IF EXISTS unpacked_{entity.table}")
            plain.execute(
                f"CREATE TABLE unpacked_{entity.table} AS SELECT {', '.join(names)}"
                f" FROM {entity.table} WHERE false"
            )
            rows = list(stream_versions(plain, entity, sql.Identifier(entity.table)))
            query = f"COPY unpacked_{entity.table} ({', '.join(names)}) FROM STDIN"
            with plain.cursor() as cursor, cursor.copy(query) as copy:
                for id, version, moment, *columns in rows:
                    updated_at = EPOCH + timedelta(microseconds=moment)
                    copy.write_row((id, version, updated_at, *columns))
        return f"unpacked_{entity.table}"

    def list_unfindable(self) -> list[dict[str, Any]]:
        """Return the business keys that the search index lacks or has with a wrong day.

        The index must have each business key of an application with its newest day.
        """
        return self.query(f"""
            SELECT id, day FROM (
                SELECT id, data->>'number' AS value,
                    (max(updated_at) AT TIME ZONE 'UTC')::date AS day
                FROM {self._unpack_table(get_root())} WHERE data ? 'number' GROUP BY 1, 2
            ) shown
            WHERE NOT EXISTS (
                SELECT FROM search_key k WHERE k.name = 'number' AND k.id = shown.id
                    AND k.value = shown.value AND k.day = shown.day
            )
        """)

    def count_stored_versions(self) -> int:
        return self.count_stored().total()

    def list_quarantined(self) -> list[dict[str, Any]]:
        return self.query('SELECT * FROM ingest_quarantine ORDER BY topic, partition, "offset"')

    def count_read(self) -> int:
        """Return how many messages the ledger has counted."""
        [row] = self.query("SELECT coalesce(sum(read), 0)::int AS read FROM ingest_ledger")
        return int(row["read"])


def make_environment(
    broker: KafkaServer, database: ProductDatabase, client: KafkaConfig | None = None
) -> dict[str, str]:
    """Return the environment of a command that uses this broker and this database.

    The command uses the consumer's login.
    """
    kafka = {
        "ANNALS_KAFKA_" + name.upper().replace(".", "_"): str(setting)
        for name, setting in (client or broker.make_client_config()).items()
        if name != "bootstrap.servers"
    }
    client_settings = client or broker.make_client_config()
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")},
        "DATABASE_URL": database.build_url(logins.CONSUMER),
        OWNER_URL: database.build_url(logins.OWNER),
        "KAFKA_BOOTSTRAP_SERVERS": str(client_settings["bootstrap.servers"]),
        "ANNALS_HOME": str(database.server.home),
        "ANNALS_KAFKA_SESSION_TIMEOUT_MS": str(SESSION_MS),
        "ANNALS_KAFKA_HEARTBEAT_INTERVAL_MS": "500",
        "PYTHONWARNINGS": "ignore",
        **kafka,
    }


def run_command(
    env: dict[str, str], *arguments: str, root: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run a command of manage.py to its end.

    A command of COMMANDS_OF_OWNER uses the database URL in the variable OWNER_URL, if `env` has
    this variable. Most commands run in a fork of a process that has imported Annals, because this
    saves a second.
    """
    if arguments[0] in COMMANDS_OF_OWNER and OWNER_URL in env:
        env = env | {"DATABASE_URL": env[OWNER_URL]}
    if root == ROOT and "ANNALS_ENTITIES_FILE" not in env:
        finished = get_forker().run_command(*arguments, env=env, seconds=120)
        assert finished.code is not None, f"{arguments} does not end: {finished.out}{finished.err}"
        return subprocess.CompletedProcess(arguments, finished.code, finished.out, finished.err)
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )


def make_tables(env: dict[str, str], server: EmbeddedPostgres) -> None:
    """Create the tables, and grant the logins of web processes and consumers the rights they need.

    Args:
        env: The environment of the commands, with the owner's login.
    """
    grants = ["grants", "--apply"]
    for role, login in (("web", logins.WEB), ("consumer", logins.CONSUMER)):
        grants += ["--login", role, login, str(server.get_password_file(login))]
    for arguments in (["migrate", "--verbosity", "0"], grants):
        finished = run_command(env, *arguments)
        assert finished.returncode == 0, finished.stdout + finished.stderr


class ConsumerProcess:
    """A consumer process. Its log goes to a file; `--json` prints its summary at the end."""

    def __init__(
        self, env: dict[str, str], log: Path, *options: str, group: str, root: Path = ROOT
    ) -> None:
        self.log = log
        with log.open("ab") as errors:
            self._offset = errors.tell()
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "consume", "--json", "--group", group, *options],
                cwd=root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    def read_log(self) -> str:
        """Return what this process has logged so far."""
        with self.log.open("rb") as log:
            log.seek(self._offset)
            return log.read().decode()

    def wait_until_reading(self) -> None:
        """Wait until the consumer has claimed topic partitions and begins to read them."""
        wait_until(
            lambda: "reading " in self.read_log() or self.process.poll() is not None, self.read_log
        )
        assert self.process.poll() is None, self.read_log()

    def wait_for_end(self, seconds: float = 120, code: int = 0) -> dict[str, Any]:
        """Wait until the process ends, assert the exit code, and return the printed summary."""
        try:
            out, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill_process()
            raise AssertionError(f"does not end:\n{self.read_log()}") from None
        assert self.process.returncode == code, f"exit {self.process.returncode}: {self.read_log()}"
        summary: dict[str, Any] = parse_shaped("consume", out)
        return summary

    def terminate(self, seconds: float = 5) -> dict[str, Any]:
        """Send SIGTERM, assert that the process ends in time, and return the printed summary.

        Annals promises to end within 5 seconds.
        """
        self.process.send_signal(signal.SIGTERM)
        return self.wait_for_end(seconds)

    def freeze_process(self) -> None:
        """Send SIGSTOP, and wait until no thread runs any more, which takes a moment on a busy
        machine.
        """
        self.process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.pid}/task")
        wait_until(
            lambda: all(_read_state(task) == "T" for task in tasks.iterdir()), "it does not stop"
        )

    def wake_process(self) -> None:
        """Let the process continue after freeze_process()."""
        self.process.send_signal(signal.SIGCONT)

    def kill_process(self) -> None:
        """Kill the process if it still runs."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _read_state(task: Path) -> str:
    """Return the state of a thread as proc(5) names it, or '' if it has ended."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


@dataclass
class ConsumerStarter:
    """Starts consumer processes, and kills all of them in kill_all()."""

    env: dict[str, str]
    log: Path
    root: Path = ROOT
    group: str = field(default_factory=lambda: f"test-{secrets.token_hex(6)}")
    all: list[ConsumerProcess] = field(default_factory=list)

    def start_consumer(
        self, *options: str, group: str | None = None, **env: str
    ) -> ConsumerProcess:
        log = self.log / f"consumer-{len(self.all)}.log"
        running = ConsumerProcess(
            self.env | env, log, *options, group=group or self.group, root=self.root
        )
        self.all.append(running)
        return running

    def consume_to_end(self, *options: str, idle: float = 2, **env: str) -> dict[str, Any]:
        """Run a consumer until it receives no message for `idle` seconds."""
        return self.start_consumer("--until-idle", str(idle), *options, **env).wait_for_end(120)

    def run_command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(self.env, *arguments, root=self.root)

    def read_ledger(self) -> dict[str, Any]:
        """Return the output of `annals ledger --json`."""
        report: dict[str, Any] = parse_shaped("ledger", self.run_command("ledger", "--json").stdout)
        return report

    def kill_all(self) -> None:
        for running in self.all:
            running.wake_process()
            running.kill_process()


class MessageFeed:
    """Produces good messages to the live topics and counts them in `produced`.

    Each message is a new version, with a unique number in the snapshot. Successive messages go to
    different topics of `topics`, and have different moments of `dates`.
    """

    def __init__(self, client: KafkaConfig, documents: int = 400) -> None:
        self._producer = Producer({"acks": "all", "linger.ms": 5, **client})
        self.documents = documents
        self._number = 0
        self._failed: list[str] = []
        self.topics: Sequence[str] = LIVE_TOPICS
        self.dates = [NOW]
        self.produced: Counter[tuple[str, str, int, object]] = Counter()

    def send_one(self) -> None:
        number = self._number
        self._number += 1
        document, version = number % self.documents, number // self.documents
        topic = self.topics[document % len(self.topics)]
        body = make_value(
            id=f"d{document}",
            version=version,
            productInstanceId=f"a{document}",
            data={"n": number, "number": f"N-{document}"},
            updatedAt=self.dates[number % len(self.dates)].isoformat(),
        )
        while True:
            try:
                self._producer.produce(topic, body, f"d{document}", on_delivery=self._note_delivery)
                break
            except BufferError:
                self._producer.poll(0.1)
        self.produced[topic, f"d{document}", version, number] += 1
        self._producer.poll(0)

    def send_many(self, count: int) -> None:
        for _ in range(count):
            self.send_one()
        self.wait_for_delivery()

    def wait_for_delivery(self) -> None:
        assert self._producer.flush(60) == 0
        assert not self._failed, self._failed[:3]

    def _note_delivery(self, error: object, _: Message) -> None:
        if error is not None:
            self._failed.append(str(error))

    @contextmanager
    def send_in_background(self, rate: float) -> Iterator[None]:
        """Produce this many messages per second during the `with` block."""
        stop = threading.Event()

        def send_at_rate() -> None:
            began, sent_count = time.monotonic(), 0
            while not stop.is_set():
                while sent_count < (time.monotonic() - began) * rate:
                    self.send_one()
                    sent_count += 1
                time.sleep(0.01)

        thread = threading.Thread(target=send_at_rate)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.wait_for_delivery()


def produce_messages(client: KafkaConfig, *messages: tuple[Any, ...]) -> None:
    """Produce messages to partition 0 of their topics, in this order.

    Args:
        messages: Tuples of topic and value, or of topic, value, key and headers.
    """
    producer = Producer({**client, "acks": "all", "message.max.bytes": 8_000_000})
    for topic, body, *key_and_headers in messages:
        key, headers = (*key_and_headers, None, None)[:2]
        producer.produce(topic, body, key=key, headers=headers or [], partition=0)
    assert producer.flush(60) == 0


def assert_complete(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed
) -> None:
    """Assert that each produced message is stored once, can be found, and is counted once."""
    assert database.count_stored() == feed.produced
    assert database.list_unfindable() == []
    assert database.count_read() == feed.produced.total()
    assert database.list_quarantined() == []
    finished = consumers.run_command("ledger", "--json")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert parse_shaped("ledger", finished.stdout)["totals"]["lag"] == 0
