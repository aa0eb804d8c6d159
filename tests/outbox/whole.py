"""The whole way for the program of faults: a service with relays, Apache Kafka, Annals' consumer,
and a PostgreSQL of their own, which can be stopped."""

import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from annals.embedded import logins
from annals.embedded.daemon import Mode
from annals.embedded.postgres import Postgres
from history.entities import ENTITIES
from tests.apache.broker import Apache
from tests.consuming import Consumers, Database, environment, make_tables
from tests.kafka import brokers


@dataclass(slots=True)
class Whole:
    """Everything that runs. shop: the name of the service's database. database: that of Annals, on
    the same server."""

    home: Path
    broker: Apache
    shop: str
    database: Database
    consumers: Consumers
    relays: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """What the relays say."""
        return self.home / "log"

    def start_relay(self) -> subprocess.Popen[bytes]:
        """One more relay."""
        from tests.outbox import relays

        return relays.start(self.broker, self.shop, self.log)

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
        self.database.server.stop(mode)
        time.sleep(pause)
        self.database.server.start()


@contextmanager
def whole(*, relays: int = 2) -> Iterator[Whole]:
    """The servers, Django set up as the service, relays and the consumer."""
    with tempfile.TemporaryDirectory(prefix="annals-test-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        home.chmod(0o755)
        server = Postgres(home / "postgres", {"fsync": "off", "max_connections": 200})
        broker = Apache(home / "kafka", settings={"auto.create.topics.enable": "false"})
        server.start()
        try:
            broker.start(timeout=180)
            database = Database(server, "annals", server.url())
            env = environment(broker, database) | {"ANNALS_DEMO": "true"}
            shop = f"shop_{secrets.token_hex(4)}"
            made = Whole(home, broker, shop, database, Consumers(env, home))
            _prepare(made)
            made.relays = [made.start_relay() for _ in range(relays)]
            made.consumers.start()
            try:
                yield made
            finally:
                for each in made.relays:
                    each.kill()
                    each.wait()
                made.consumers.stop()
        finally:
            broker.kill()
            server.stop("immediate")


def _prepare(made: Whole) -> None:
    """Databases, tables, topics."""
    server = made.database.server
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {made.shop} OWNER {logins.OWNER}".encode())
    make_tables(made.consumers.env, server)
    done = made.consumers.manage("partitions", "maintain")
    assert done.returncode == 0, done.stderr
    brokers.create(made.broker, [topic for entity in ENTITIES for topic in entity.topics])
    os.environ["ANNALS_TEST_DATABASE_URL"] = server.url()
    import tests.postgres  # noqa: F401 - the environment of Django's settings

    os.environ.update(
        DJANGO_SETTINGS_MODULE="tests.outbox.settings", OUTBOX_TEST_DATABASE=made.shop
    )
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0)
