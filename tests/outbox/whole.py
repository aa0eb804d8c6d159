"""The whole way for the program of faults: a service with relays, Apache Kafka, Annals' consumer,
and a PostgreSQL of their own, which can be stopped."""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from annals.embedded.postgres import Mode, Postgres
from tests.apache.broker import Apache

ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class Whole:
    """Everything that runs. shop, annals: names of databases."""

    home: Path
    server: Postgres
    broker: Apache
    shop: str
    annals: str
    relays: list[subprocess.Popen[bytes]] = field(default_factory=list)
    consumer: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What relays and the consumer say."""
        return self.home / "log"

    def start_relay(self) -> subprocess.Popen[bytes]:
        """One more relay."""
        from tests.outbox import relays

        return relays.start(self.broker, self.shop, self.log)

    def start_consumer(self) -> None:
        """Annals' consumer."""
        with self.log.open("ab") as output:
            self.consumer = subprocess.Popen(
                [sys.executable, "manage.py", "consume", "--group", "faults"],
                cwd=ROOT, env=self._environment(), stdout=output, stderr=output,
            )  # fmt: skip

    def restart_consumer(self) -> None:
        """Kill it, and start it again."""
        assert self.consumer is not None
        self.consumer.kill()
        self.consumer.wait()
        self.start_consumer()

    def stop_consumer(self) -> None:
        """Returns when it has ended."""
        assert self.consumer is not None
        self.consumer.send_signal(signal.SIGTERM)
        assert self.consumer.wait(60) == 0
        self.consumer = None

    def manage(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command of Annals. more: of its environment."""
        return subprocess.run(
            [sys.executable, "manage.py", *words], cwd=ROOT, env={**self._environment(), **more},
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    def ledger(self) -> dict[str, Any]:
        """The totals of Annals' ledger."""
        done = self.manage("ledger", "--json")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Of Annals' database."""
        import psycopg

        with psycopg.connect(self.server.url(self.annals)) as plain:
            return plain.execute(statement.encode()).fetchall()

    def ends(self) -> dict[int, int]:
        """By partition of the topic: the offset after the newest message."""
        from confluent_kafka import Consumer, TopicPartition

        from tests.outbox.relays import TOPIC

        client = Consumer({**self.broker.client(), "group.id": "none"})
        try:
            return {
                number: client.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=20)[1]
                for number in range(3)
            }
        finally:
            client.close()

    def restart(self, mode: Mode, pause: float) -> None:
        """Stop the server and start it after so many seconds."""
        self.server.stop(mode)
        time.sleep(pause)
        self.server.start()

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "annals.settings",
            "DATABASE_URL": self.server.url(self.annals),
            "KAFKA_BOOTSTRAP_SERVERS": self.broker.bootstrap_servers(),
        }


@contextmanager
def whole(*, relays: int = 2) -> Iterator[Whole]:
    """The servers, Django set up as the service, relays and the consumer."""
    with tempfile.TemporaryDirectory(prefix="annals-test-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        home.chmod(0o755)
        server = Postgres(home / "postgres", {"fsync": "off", "max_connections": 200})
        server.start()
        broker = Apache(home / "kafka", settings={"auto.create.topics.enable": "false"})
        suffix = secrets.token_hex(4)
        made = Whole(home, server, broker, f"shop_{suffix}", f"annals_{suffix}")
        try:
            _prepare(made)
            made.relays = [made.start_relay() for _ in range(relays)]
            made.start_consumer()
            yield made
        finally:
            for each in (*made.relays, made.consumer):
                if each is not None:
                    each.kill()
                    each.wait()
            broker.kill()
            server.stop("immediate")


def _prepare(made: Whole) -> None:
    """Databases, tables, topics."""
    import psycopg

    with psycopg.connect(made.server.url(), autocommit=True) as connection:
        for name in (made.shop, made.annals):
            connection.execute(f"CREATE DATABASE {name}".encode())
    os.environ["ANNALS_TEST_DATABASE_URL"] = made.server.url()
    import tests.postgres  # noqa: F401 - the environment of Django's settings

    os.environ.update(
        DJANGO_SETTINGS_MODULE="tests.outbox.settings", OUTBOX_TEST_DATABASE=made.shop
    )
    import django

    django.setup()
    from django.core.management import call_command

    from history.entities import ENTITIES
    from tests.kafka import brokers

    call_command("migrate", run_syncdb=True, verbosity=0)
    made.broker.start(timeout=180)
    brokers.create(made.broker, [topic for entity in ENTITIES for topic in entity.topics])
    for words in (("migrate", "--verbosity=0"), ("partitions", "maintain")):
        done = made.manage(*words)
        assert done.returncode == 0, done.stderr
