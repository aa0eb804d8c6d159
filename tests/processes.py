"""Fixtures for tests of processes: a PostgreSQL that tests can kill, and a database for a test."""

import itertools
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from annals.access.grants import CONSUMER
from annals.embedded import logins
from annals.embedded.broker import KafkaServer
from annals.embedded.postgres import EmbeddedPostgres, PostgresSettings
from history.kinds.entities import ENTITIES
from history.store.days import days
from tests.consuming import (
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    make_environment,
    make_tables,
)
from tests.messages import NOW

TEMPLATE = "template_annals"


@pytest.fixture(scope="session")
def server(run_server: EmbeddedPostgres) -> EmbeddedPostgres:
    """Return the PostgreSQL of the run. Each module that uses this fixture imports it."""
    return run_server


@pytest.fixture(scope="session")
def run_server() -> Iterator[EmbeddedPostgres]:
    """Run a PostgreSQL with a migrated template database for the whole run.

    The tables belong to the owner's login. The logins of web processes and consumers have only the
    rights of `annals grants`. The template has the days around today. Only tests/conftest.py
    imports this fixture.

    The server's data directory is outside of pytest's temporary directory. Only the user who runs
    pytest can enter pytest's directory, and PostgreSQL can run as a different user.
    """
    home = Path(tempfile.mkdtemp(prefix="annals-server-"))
    started_server = EmbeddedPostgres(home / "postgres", {"fsync": "off"})
    started_server.start()
    with _connect_as_admin(started_server) as plain:
        plain.execute(f"CREATE DATABASE {TEMPLATE} OWNER {logins.OWNER}")
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    owner = started_server.build_url(TEMPLATE, logins.OWNER)
    make_tables(
        env | {"DATABASE_URL": owner, "ANNALS_HOME": str(started_server.home)}, started_server
    )
    with psycopg.connect(owner, autocommit=True) as plain:
        for entity, number in itertools.product(ENTITIES, (-1, 0, 1)):
            days.create_partition(plain, entity.table, NOW.date() + timedelta(days=number))
    yield started_server
    started_server.stop("immediate")
    shutil.rmtree(home)


@contextmanager
def start_own_server(settings: PostgresSettings) -> Iterator[EmbeddedPostgres]:
    """Run a PostgreSQL in a new directory that the user of the server process can enter."""
    with tempfile.TemporaryDirectory(prefix="annals-server-") as folder:
        Path(folder).chmod(0o755)
        started_server = EmbeddedPostgres(Path(folder) / "postgres", settings)
        started_server.start()
        yield started_server
        started_server.stop("immediate")


@contextmanager
def create_own_database(server: EmbeddedPostgres) -> Iterator[ProductDatabase]:
    """Create a database of Annals on the server, and drop it afterwards."""
    server.start()
    name = f"test_{secrets.token_hex(4)}"
    with _connect_as_admin(server) as plain:
        # Copying files takes a quarter of the time that a copy through the write-ahead log takes.
        plain.execute(
            f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy OWNER {logins.OWNER}"
        )
        # CREATE DATABASE copies the rights on tables, but not those on the database itself.
        plain.execute(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
        plain.execute(f"GRANT TEMPORARY ON DATABASE {name} TO {CONSUMER}")
    yield ProductDatabase(server, name, server.build_url(name))
    server.start()
    with _connect_as_admin(server) as plain:
        plain.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database(server: EmbeddedPostgres) -> Iterator[ProductDatabase]:
    """Return a database of Annals for one test."""
    with create_own_database(server) as url:
        yield url


@pytest.fixture
def consumers(
    broker: KafkaServer, topics: list[str], database: ProductDatabase, tmp_path: Path
) -> Iterator[ConsumerStarter]:
    """Return a starter of consumers that write into the database. Kill all of them afterwards."""
    starter = ConsumerStarter(make_environment(broker, database), tmp_path)
    yield starter
    starter.kill_all()


@pytest.fixture
def feed(broker: KafkaServer, topics: list[str]) -> MessageFeed:
    """Return a producer of good messages for the topics of the broker."""
    return MessageFeed(broker.make_client_config())


def _connect_as_admin(server: EmbeddedPostgres) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(server.build_url("postgres"), autocommit=True)
