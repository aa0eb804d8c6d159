"""Fixtures for tests of processes: a PostgreSQL to stop and kill, a database for each test."""

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
from annals.embedded.broker import Daemon
from annals.embedded.postgres import Postgres, Settings
from history.daily import days
from history.entities import ENTITIES
from tests.consuming import Consumers, Database, Feed, environment, make_tables
from tests.messages import NOW

TEMPLATE = "template_annals"


@pytest.fixture(scope="session")
def server(run_server: Postgres) -> Postgres:
    """The PostgreSQL of the run. Each module that imports this name has a fixture of its own."""
    return run_server


@pytest.fixture(scope="session")
def run_server() -> Iterator[Postgres]:
    """A PostgreSQL with a migrated template, one for the run: only tests/conftest.py imports it.
    Its tables belong to the owner's login, and those of the web and the consumer have only the
    rights of `annals grants`. It has the days around today.

    Not under pytest's own directory: every other run of pytest closes that to the server's user.
    """
    home = Path(tempfile.mkdtemp(prefix="annals-server-"))
    made = Postgres(home / "postgres", {"fsync": "off"})
    made.start()
    with _admin(made) as plain:
        plain.execute(f"CREATE DATABASE {TEMPLATE} OWNER {logins.OWNER}")
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    owner = made.url(TEMPLATE, logins.OWNER)
    make_tables(env | {"DATABASE_URL": owner, "ANNALS_HOME": str(made.home)}, made)
    with psycopg.connect(owner, autocommit=True) as plain:
        for entity, number in itertools.product(ENTITIES, (-1, 0, 1)):
            days.create(plain, entity.table, NOW.date() + timedelta(days=number))
    yield made
    made.stop("immediate")
    shutil.rmtree(home)


@contextmanager
def own_server(settings: Settings) -> Iterator[Postgres]:
    """A running PostgreSQL in a folder of its own, which its user may enter."""
    with tempfile.TemporaryDirectory(prefix="annals-server-") as folder:
        Path(folder).chmod(0o755)
        made = Postgres(Path(folder) / "postgres", settings)
        made.start()
        yield made
        made.stop("immediate")


@contextmanager
def own_database(server: Postgres) -> Iterator[Database]:
    """A database of the product, on that server, running."""
    server.start()
    name = f"test_{secrets.token_hex(4)}"
    with _admin(server) as plain:
        # A copy of the files takes a quarter of the time that a copy through the log takes.
        plain.execute(
            f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY file_copy OWNER {logins.OWNER}"
        )
        # A copy of a database does not have the rights of the database itself.
        plain.execute(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
        plain.execute(f"GRANT TEMPORARY ON DATABASE {name} TO {CONSUMER}")
    yield Database(server, name, server.url(name))
    server.start()
    with _admin(server) as plain:
        plain.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database(server: Postgres) -> Iterator[Database]:
    """Such a database for one test."""
    with own_database(server) as made:
        yield made


@pytest.fixture
def consumers(
    broker: Daemon, topics: list[str], database: Database, tmp_path: Path
) -> Iterator[Consumers]:
    """Starts consumers of the broker that write into the database; ends them all."""
    found = Consumers(environment(broker, database), tmp_path)
    yield found
    found.stop()


@pytest.fixture
def feed(broker: Daemon, topics: list[str]) -> Feed:
    """Good messages for the broker."""
    return Feed(broker.client())


def _admin(server: Postgres) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(server.url("postgres"), autocommit=True)
