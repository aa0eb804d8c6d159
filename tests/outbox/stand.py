"""The service and a broker for the programs of this folder, outside of pytest."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tests.postgres  # noqa: F401 - starts the server before Django reads its settings
from annals.embedded.broker import Daemon


@dataclass(frozen=True, slots=True)
class Stand:
    """database: its name. home: for files, deleted at the end."""

    broker: Daemon
    database: str
    home: Path


@contextmanager
def stand(*, embedded: bool) -> Iterator[Stand]:
    """The service with a new database, Django set up, and a running broker: Apache Kafka, or the
    embedded one."""
    import psycopg

    name = f"outbox_{secrets.token_hex(4)}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    os.environ.update(DJANGO_SETTINGS_MODULE="tests.outbox.settings", OUTBOX_TEST_DATABASE=name)

    import django

    django.setup()
    from django.core.management import call_command

    from annals.embedded.broker import Broker
    from tests.apache.broker import Apache

    call_command("migrate", run_syncdb=True, verbosity=0)
    with tempfile.TemporaryDirectory() as folder:
        broker: Daemon = (Broker if embedded else Apache)(Path(folder) / "broker")
        broker.start()
        try:
            yield Stand(broker, name, Path(folder))
        finally:
            broker.kill()
