"""Helpers of the tests of partitions: connections outside Django, empty tables, days and rows."""

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
from tests.db.commands import CommandOutput, run_command
from tests.db.ingest_rows import create_ledger_row

TABLE = "product_instance_aud"
TABLES = [entity.table for entity in ENTITIES]
NOW = datetime(2026, 3, 29, 12, tzinfo=UTC)  # the day on which clocks in Berlin go forward
TODAY = NOW.date()


def connect_plainly(**parameters: Any) -> days.Connection:
    """Return a psycopg connection to the test database, in autocommit mode and without Django."""
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
    """Drop every partition of the tables of versions.

    These include detached partitions, and partitions that Annals did not create.
    """
    with connect_plainly() as plain:
        for part in catalog.read_partitions(connection, TABLES):
            plain.execute(f'DROP TABLE "{part.name}"')


@pytest.fixture
def transactional_db(
    django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker
) -> Iterator[None]:
    """Let the test commit its changes, like pytest-django's fixture of this name.

    The fixture empties only the tables that the tests of partitions fill. To empty the whole
    database would take longer than the tests.
    """
    with django_db_blocker.unblock():
        delete_rows()
        yield
        delete_rows()
        connection.close()


@pytest.fixture
def tables(transactional_db: None) -> None:
    """Drop all partitions of the tables of versions, before and after the test."""


@pytest.fixture
def plain(tables: None) -> Iterator[days.Connection]:
    """Yield a psycopg connection in autocommit mode, on tables without partitions."""
    with connect_plainly() as session:
        yield session


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[datetime], None]]:
    """Yield a function that sets two clocks to a moment.

    The clocks are the clock of this process, and now() in Django's connection. There, PostgreSQL
    finds the function clock.now() of this fixture before the built-in now().
    """

    def set_moment(moment: datetime) -> None:
        monkeypatch.setattr(clock, "now", lambda: moment)
        with connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA IF NOT EXISTS clock")
            cursor.execute(
                "CREATE OR REPLACE FUNCTION clock.now() RETURNS timestamptz LANGUAGE sql STABLE"
                f" AS $$ SELECT timestamptz '{moment.isoformat()}' $$"
            )
            cursor.execute("SET search_path = public, clock, pg_catalog")

    yield set_moment
    with connection.cursor() as cursor:
        cursor.execute("RESET search_path")
        cursor.execute("DROP SCHEMA IF EXISTS clock CASCADE")


@pytest.fixture
def few_days(settings: Any) -> None:
    """Set retention to 14 days, and let `partitions maintain` create only one day ahead.

    With more days, the tests would spend most of their time on the creation of days.
    """
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, retention_days=14, ahead_days=1)


def delete_rows() -> None:
    """Undo the changes that tests of partitions committed.

    Drops all partitions of the tables of versions, and resets the tables that these tests fill.
    """
    drop_partitions()
    of_retention = (
        MaintainRun,
        ArchivedDay,
        DaySeal,
        SealedDay,
        LateRow,
        VerifiedTable,
        PackDictionary,
    )
    of_packing = (ChangedRow, PackAttempt, DoubledVersion)
    of_ingest = (Ledger, Quarantined, RetiredTopic, AskedTopic, JournalEntry)
    for model in (*of_retention, *of_packing, *of_ingest, LateBatch):
        model.objects.all().delete()
    FeedHorizon.objects.update(given_to=None)


def retire_all_topics() -> None:
    """Retire all topics, because no consumer reads them here and unread messages hold old days."""
    for topic in BY_TOPIC:
        RetiredTopic.objects.create(topic=topic, why="a test", retired_at=NOW)


def make_policy(
    keep: int = 3, ahead: int = 2, find_held_days: FindHeldDays | None = None, hold_days: int = 0
) -> PartitionPolicy:
    return PartitionPolicy(Window.at(NOW, keep, ahead), TODAY, find_held_days, hold_days)


def execute_plans(
    policy: PartitionPolicy, archiver: Archiver | None = None, accept_changed: date | None = None
) -> StepResult:
    """Create, archive and drop the days of the tables of versions, as `partitions maintain` does.

    Args:
        accept_changed: A day that may be dropped although the rows differ from the seal.
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
    """Pack the days that are due to be packed on `today`, as `partitions maintain` does."""
    policy = PartitionPolicy(Window(today, today), today)
    with hold_run_lock():
        context = nightly.NightContext(now=NOW, policy=policy)
        return nightly.run_steps(context, [nightly.pack_finished_days])


def get_day(number: int) -> date:
    """Return the day that is this number of days after TODAY."""
    return TODAY + timedelta(days=number)


def count_advisory_locks() -> int:
    """Return how many advisory locks sessions hold in this database.

    Locks that announce which form of data a session can read are not counted.
    """
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
    """Begin to drop a day that a reader is using, so that detaching its partition stays pending.

    Yield the connection of the reader, which reads until the end of the block.
    """
    with connect_plainly() as reader, reader.transaction():
        count_stored(reader, table)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            days.drop_partition(plain, table, of, wait_s=0.2)
        yield reader


def list_partition_names(table: str = TABLE) -> list[str]:
    """Return the names of the partitions of a table, including detached ones."""
    return [part.name for part in catalog.read_partitions(connection, [table])]


def insert_version(
    plain: days.Connection, moment: datetime, id: str = "a", version: int = 1
) -> None:
    plain.execute(
        f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
        " VALUES (%s, %s, '{}', %s, 'test', 1)",
        [id, version, moment],
    )


def count_stored(plain: days.Connection, table: str = TABLE) -> int:
    row = plain.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


def run_partitions(*words: str) -> CommandOutput:
    """Run `annals partitions` with these arguments."""
    return run_command("partitions", *words)


def record_topic_as_read(topic: str, **fields: Any) -> None:
    """Create a ledger row for a topic with ten messages, all stored.

    The brokers confirmed the end offset just now.

    Args:
        fields: Values of columns that replace the default values.
    """
    create_ledger_row(topic, **{"end_known_at": clock.now(), **fields})


def record_all_topics_as_read() -> None:
    """Record every topic of every kind as read to the end."""
    for entity in ENTITIES:
        for topic in entity.topics:
            record_topic_as_read(topic)
