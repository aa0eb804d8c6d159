"""What the tests of partitions share: raw connections, empty tables, rows of a moment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
import pytest_django
from django.db import connection

from annals.access.models import JournalEntry
from annals.management.partitions import nightly
from history.common import clock
from history.kinds.entities import BY_TOPIC, ENTITIES
from history.models import (
    ArchivedDay,
    ChangedRow,
    DaySeal,
    DoubledVersion,
    FeedHorizon,
    LateBatch,
    LateRow,
    MaintainRun,
    PackAttempt,
    PackDictionary,
    SealedDay,
    VerifiedTable,
)
from history.retention import catalog
from history.retention.plan import VERSION_TABLES, Archiver, FindHeldDays, PartitionPolicy
from history.retention.run_lock import hold_run_lock
from history.retention.runs import StepResult
from history.store.database import forms
from history.store.days import days
from history.store.days.window import Window
from ingest.models import AskedTopic, Ledger, Quarantined, RetiredTopic
from tests.db.commands import Ran, run_command
from tests.db.noted import create_ledger_row

TABLE = "product_instance_aud"
TABLES = [entity.table for entity in ENTITIES]
NOW = datetime(2026, 3, 29, 12, tzinfo=UTC)  # the day Berlin's clocks go forward
TODAY = NOW.date()


def connect_plainly(**parameters: Any) -> days.Connection:
    """A plain connection to the test's database, in autocommit mode, as ingest has one."""
    settings_dict = connection.settings_dict
    return psycopg.connect(
        host=settings_dict["HOST"],
        port=settings_dict["PORT"],
        user=settings_dict["USER"],
        password=settings_dict["PASSWORD"],
        dbname=settings_dict["NAME"],
        autocommit=True,
        **parameters,
    )


def drop_partitions() -> None:
    """Drop every partition, ours and foreign, attached or not."""
    with connect_plainly() as plain:
        for part in catalog.read_partitions(connection, TABLES):
            plain.execute(f'DROP TABLE "{part.name}"')


@pytest.fixture
def transactional_db(
    django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker
) -> Iterator[None]:
    """Changes are committed, as with pytest-django's fixture of this name. Cleans up what these
    tests fill instead of the whole database, which takes longer than they do."""
    with django_db_blocker.unblock():
        clean()
        yield
        clean()
        connection.close()


@pytest.fixture
def tables(transactional_db: None) -> None:
    """The *_aud tables without any partition, before and after."""


@pytest.fixture
def plain(tables: None) -> Iterator[days.Connection]:
    """A connection of raw(), for one test."""
    with connect_plainly() as session:
        yield session


@pytest.fixture
def move(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[datetime], None]]:
    """Called with a moment: the clock of this machine says it, and that of the server in Django's
    connection. PostgreSQL looks for now() in our schema before pg_catalog."""

    def set_clock(moment: datetime) -> None:
        monkeypatch.setattr(clock, "now", lambda: moment)
        with connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA IF NOT EXISTS clock")
            cursor.execute(
                "CREATE OR REPLACE FUNCTION clock.now() RETURNS timestamptz LANGUAGE sql STABLE"
                f" AS $$ SELECT timestamptz '{moment.isoformat()}' $$"
            )
            cursor.execute("SET search_path = public, clock, pg_catalog")

    yield set_clock
    with connection.cursor() as cursor:
        cursor.execute("RESET search_path")
        cursor.execute("DROP SCHEMA IF EXISTS clock CASCADE")


@pytest.fixture
def few_days(settings: Any) -> None:
    """Keep 14 days and accept one ahead, because most of a run of `maintain` is making days."""
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, retention_days=14, ahead_days=1)


def clean() -> None:
    drop_partitions()
    noted = (MaintainRun, ArchivedDay, DaySeal, SealedDay, LateRow, VerifiedTable, PackDictionary)
    of_packing = (ChangedRow, PackAttempt, DoubledVersion)
    of_ingest = (Ledger, Quarantined, RetiredTopic, AskedTopic, JournalEntry)
    for model in (*noted, *of_packing, *of_ingest, LateBatch):
        model.objects.all().delete()
    FeedHorizon.objects.update(given_to=None)


def retire() -> None:
    """Nothing waits for messages: without a consumer, old days would be held."""
    for topic in BY_TOPIC:
        RetiredTopic.objects.create(topic=topic, why="a test", retired_at=NOW)


def make_policy(
    keep: int = 3, ahead: int = 2, find_held_days: FindHeldDays | None = None, hold_days: int = 0
) -> PartitionPolicy:
    return PartitionPolicy(Window.at(NOW, keep, ahead), TODAY, find_held_days, hold_days)


def execute_plans(
    policy: PartitionPolicy, archiver: Archiver | None = None, accept_changed: date | None = None
) -> StepResult:
    """Create, archive and drop the days of the tables of versions, as a night does.

    accept_changed: a day that is dropped although it is not as it was sealed.
    """
    context = nightly.NightContext(
        now=NOW,
        policy=policy,
        exceptions=nightly.DropExceptions(
            without_archive=True, accept_changed=accept_changed, reason="a test"
        ),
        archiver=archiver,
        tables=VERSION_TABLES,
    )
    with hold_run_lock():
        return nightly.run_steps(context, [nightly.create_and_drop_days])


def pack_finished_days(today: date) -> StepResult:
    """Pack the days that are due on this day, as a night does."""
    policy = PartitionPolicy(Window(today, today), today)
    with hold_run_lock():
        context = nightly.NightContext(now=NOW, policy=policy)
        return nightly.run_steps(context, [nightly.pack_finished_days])


def get_day(number: int) -> date:
    """The day this number of days after today."""
    return TODAY + timedelta(days=number)


def count_advisory_locks() -> int:
    """How many advisory locks sessions have in this database, but for announcements of the form
    that they read."""
    with connect_plainly() as plain:
        row = plain.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database"
            " WHERE locktype = 'advisory' AND datname = current_database() AND classid <> %s",
            [forms.SPACE],
        ).fetchone()
    return int(row[0]) if row else 0


@contextmanager
def leave_half_dropped(
    plain: days.Connection, of: date, table: str = TABLE
) -> Iterator[days.Connection]:
    """The drop of a day has waited in vain for a reader, which is there until the end of the block:
    the day is pending. Gives the reader."""
    with connect_plainly() as reader, reader.transaction():
        count_stored(reader, table)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            days.drop_partition(plain, table, of, wait_s=0.2)
        yield reader


def list_partition_names(table: str = TABLE) -> list[str]:
    """The partitions of a table that are there, attached or not."""
    return [part.name for part in catalog.read_partitions(connection, [table])]


def insert(plain: days.Connection, moment: datetime, id: str = "a", version: int = 1) -> None:
    plain.execute(
        f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
        " VALUES (%s, %s, '{}', %s, 'test', 1)",
        [id, version, moment],
    )


def count_stored(plain: days.Connection, table: str = TABLE) -> int:
    row = plain.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


def run(*words: str) -> Ran:
    """Exit code, standard output and standard error of `annals partitions`."""
    return run_command("partitions", *words)


def read_to_end(topic: str, **fields: Any) -> None:
    """A ledger row: ten messages of the topic read and stored, none left, as was just seen."""
    create_ledger_row(topic, **{"end_known_at": clock.now(), **fields})


def read_all_to_end() -> None:
    """Ledger rows of all topics, read to their end."""
    for entity in ENTITIES:
        for topic in entity.topics:
            read_to_end(topic)
