"""The servers of the fault program: a service with relays, Kafka, Annals' consumer, PostgreSQL.

The program has its own PostgreSQL, because it stops the server.
"""

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
from annals.embedded.postgres import EmbeddedPostgres
from annals.embedded.server_process import StopMode
from history.kinds.entities import ENTITIES
from tests.apache.broker import Apache
from tests.consuming import ConsumerStarter, ProductDatabase, make_environment, make_tables
from tests.kafka import brokers


@dataclass(slots=True)
class FaultStand:
    """The running servers and processes. One PostgreSQL server has the databases of both services.

    The services are Annals, and the test service that has the outbox.
    """

    home: Path
    broker: Apache
    shop: str  # the name of the service's database
    database: ProductDatabase  # of Annals
    consumers: ConsumerStarter
    relays: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def log(self) -> Path:
        """The log of the relays."""
        return self.home / "log"

    def start_relay(self) -> subprocess.Popen[bytes]:
        """Start one more relay."""
        from tests.outbox import relays

        return relays.start_relay(self.broker, self.shop, self.log)

    def fetch_ends(self) -> dict[int, int]:
        """Return the offset after the newest message of each partition of the topic."""
        from confluent_kafka import Consumer, TopicPartition

        from tests.outbox.relays import TOPIC

        client = Consumer({**self.broker.make_client_config(), "group.id": "none"})
        try:
            return {
                number: client.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=120)[1]
                for number in range(3)
            }
        finally:
            client.close()

    def restart_database(self, mode: StopMode, pause: float) -> None:
        """Stop PostgreSQL, and start PostgreSQL again after `pause` seconds."""
        self.database.server.stop(mode)
        time.sleep(pause)
        self.database.server.start()


@contextmanager
def run_stand(*, relays: int = 2) -> Iterator[FaultStand]:
    """Run PostgreSQL, Kafka, relays and Annals' consumer.

    In this process, Django gets the settings of the service that has the outbox.
    """
    with tempfile.TemporaryDirectory(prefix="annals-test-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        home.chmod(0o755)
        server = EmbeddedPostgres(home / "postgres", {"fsync": "off", "max_connections": 200})
        broker = Apache(home / "kafka", settings={"auto.create.topics.enable": "false"})
        server.start()
        try:
            broker.start(timeout=180)
            database = ProductDatabase(server, "annals", server.build_url())
            env = make_environment(broker, database) | {"ANNALS_DEMO": "true"}
            shop = f"shop_{secrets.token_hex(4)}"
            stand = FaultStand(home, broker, shop, database, ConsumerStarter(env, home))
            _prepare_stand(stand)
            stand.relays = [stand.start_relay() for _ in range(relays)]
            stand.consumers.start_consumer()
            try:
                yield stand
            finally:
                for relay in stand.relays:
                    relay.kill()
                    relay.wait()
                stand.consumers.kill_all()
        finally:
            broker.kill()
            server.stop("immediate")


def _prepare_stand(stand: FaultStand) -> None:
    """Create the databases, tables and topics."""
    server = stand.database.server
    with psycopg.connect(server.build_url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {stand.shop} OWNER {logins.OWNER}".encode())
    make_tables(stand.consumers.env, server)
    finished = stand.consumers.run_command("partitions", "maintain")
    assert finished.returncode == 0, finished.stderr
    brokers.create_topics(stand.broker, [topic for entity in ENTITIES for topic in entity.topics])
    os.environ["ANNALS_TEST_DATABASE_URL"] = server.build_url()
    import tests.postgres  # noqa: F401 - the environment of Django's settings

    os.environ.update(
        DJANGO_SETTINGS_MODULE="tests.outbox.settings", OUTBOX_TEST_DATABASE=stand.shop
    )
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0)
