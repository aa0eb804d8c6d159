"""One day: its bounds in every time zone, concurrent creating and dropping, indexes and
compression."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from history.kinds.entities import ENTITIES
from history.store.days import days
from history.store.days.canonical import Connection
from history.store.days.day_locks import hold_day_lock
from history.store.days.days import DayState
from tests.db.partitioned import (
    NOW,
    TABLE,
    TODAY,
    connect_plainly,
    count_stored,
    get_day,
    insert_version,
    leave_half_dropped,
    list_partition_names,
)

pytestmark = pytest.mark.usefixtures("tables")

ZONES = ["UTC", "Pacific/Auckland", "America/St_Johns", "Europe/Berlin", "Pacific/Apia"]
DAYS = [date(2026, 3, 29), date(2026, 10, 25), date(2011, 12, 30), date(2024, 2, 29)]


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest) -> object:
    """Set the time zone of Python; the test also uses it for its database session."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


# Sessions of Annals use ISO. Citus sends dates to its nodes in the DateStyle of the session.
STYLES = [
    pytest.param(
        "German", marks=pytest.mark.plain_only("the nodes of a cluster read only ISO dates")
    ),
    "ISO",
]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("of", DAYS)
def test_day_begins_and_ends_at_utc_midnight_in_every_time_zone(
    zone: str, of: date, style: str
) -> None:
    begin = datetime(of.year, of.month, of.day, tzinfo=UTC)
    end = begin + timedelta(days=1)
    with connect_plainly(options=f"-c timezone={zone} -c datestyle={style}") as plain:
        assert days.create_partition(plain, TABLE, of)
        insert_version(plain, begin, "first")
        insert_version(plain, end - timedelta(microseconds=1), "last")
        for outside in (begin - timedelta(microseconds=1), end):
            with pytest.raises(psycopg.errors.CheckViolation):
                insert_version(plain, outside)
        assert count_stored(plain, days.build_partition_name(TABLE, of)) == 2
        assert not days.create_partition(plain, TABLE, of)
        assert days.drop_partition(plain, TABLE, of)
        assert not days.drop_partition(plain, TABLE, of)


def test_day_table_has_each_index_of_its_parent_once_and_no_check_constraint(
    plain: Connection,
) -> None:
    table = "product_task_aud"
    days.create_partition(plain, table, TODAY)
    indexes = plain.execute(
        "SELECT count(*), count(i.inhparent) FROM pg_index x"
        " LEFT JOIN pg_inherits i ON i.inhrelid = x.indexrelid WHERE x.indrelid = %s::regclass",
        [days.build_partition_name(table, TODAY)],
    ).fetchone()
    parent_indexes = plain.execute(
        "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass", [table]
    ).fetchone()
    checks = plain.execute(
        "SELECT count(*) FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass",
        [days.build_partition_name(table, TODAY)],
    ).fetchone()
    assert parent_indexes is not None
    assert indexes == (parent_indexes[0], parent_indexes[0])
    assert checks == (0,)


def test_concurrent_processes_create_each_day_once() -> None:
    new_days = [get_day(number) for number in range(6)]

    def make(_: int) -> int:
        with connect_plainly() as plain:
            return sum(days.create_partition(plain, TABLE, of) for of in new_days)

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(make, range(6))) == len(new_days)
    assert list_partition_names() == [days.build_partition_name(TABLE, of) for of in new_days]


@pytest.mark.plain_only("only DETACH CONCURRENTLY leaves a day half dropped")
def test_creating_a_day_fails_while_a_drop_of_that_day_is_running() -> None:
    with connect_plainly() as plain, connect_plainly() as dropping:
        days.create_partition(plain, TABLE, TODAY)
        with leave_half_dropped(dropping, TODAY):
            pass
        with hold_day_lock(dropping, days.build_partition_name(TABLE, TODAY)):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                days.create_partition(plain, TABLE, TODAY, wait_s=0.2)
            assert days.locate_day(plain, TABLE, TODAY).state is DayState.PENDING
        assert days.create_partition(plain, TABLE, TODAY)


@pytest.mark.plain_only("only DETACH CONCURRENTLY leaves a day half dropped")
def test_creating_a_day_attaches_half_detached_table_with_its_rows(plain: Connection) -> None:
    days.create_partition(plain, TABLE, TODAY)
    insert_version(plain, NOW)
    with leave_half_dropped(plain, TODAY):
        pass
    assert count_stored(plain) == 0
    assert days.create_partition(plain, TABLE, TODAY)
    assert count_stored(plain) == 1


def test_creating_a_day_attaches_detached_table_with_its_rows(plain: Connection) -> None:
    name = days.build_partition_name(TABLE, TODAY)
    days.create_partition(plain, TABLE, TODAY)
    insert_version(plain, NOW)
    plain.execute(f"ALTER TABLE {TABLE} DETACH PARTITION {name}")
    assert days.create_partition(plain, TABLE, TODAY)
    assert count_stored(plain) == 1


def test_table_that_annals_did_not_create_is_neither_attached_nor_dropped(
    plain: Connection,
) -> None:
    name = days.build_partition_name(TABLE, TODAY)
    plain.execute(f"CREATE TABLE {name} (LIKE {TABLE} INCLUDING ALL)")
    for act in (days.create_partition, days.drop_partition):
        with pytest.raises(days.ForeignTableError, match=name):
            act(plain, TABLE, TODAY)
    plain.execute(f"DROP TABLE {name}")


def test_creating_a_day_gives_up_when_lock_is_not_available(plain: Connection) -> None:
    with connect_plainly() as other_session, other_session.transaction():
        other_session.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            days.create_partition(plain, TABLE, TODAY, wait_s=0.3)
    assert plain.execute("SHOW lock_timeout").fetchone() == ("0",)
    assert days.create_partition(plain, TABLE, TODAY)


COMPRESSIONS = {"l": "lz4", "p": "pglz", "": "default"}


def read_compressions() -> dict[str, str]:
    """Return the compression of the column `data` for each table of versions and each of its
    days."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attrelid::regclass::text, attcompression FROM pg_attribute"
            " LEFT JOIN pg_inherits ON inhrelid = attrelid"
            " WHERE attname = 'data' AND coalesce(inhparent, attrelid)"
            " = ANY(%s::text[]::regclass[])",
            [[entity.table for entity in ENTITIES]],
        )
        return {table: COMPRESSIONS[kind] for table, kind in cursor.fetchall()}


def read_expected_compression() -> str:
    with connect_plainly() as plain:
        row = plain.execute(
            "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
        ).fetchone()
    return "lz4" if row and row[0] else "default"


def test_days_created_by_maintain_compress_long_snapshots() -> None:
    """The days use lz4 if the server supports it."""
    call_command("partitions", "maintain", verbosity=0)
    compression_by_table = read_compressions()
    assert len(compression_by_table) > 20 * len(ENTITIES)
    assert set(compression_by_table.values()) == {read_expected_compression()}


def test_days_created_by_consumer_or_restore_compress_long_snapshots() -> None:
    tomorrow = get_day(1)
    with connect_plainly() as plain:
        days.create_partition(plain, TABLE, tomorrow)
        day_table = days.locate_day(plain, TABLE, tomorrow)
        days.create_detached_table(
            plain, day_table._replace(child=day_table.new), tomorrow, days.RESTORED
        )
        days.replace_table(plain, TABLE, tomorrow)
    assert (
        read_compressions()[days.build_partition_name(TABLE, tomorrow)]
        == read_expected_compression()
    )


def test_snapshot_of_a_few_kb_is_stored_uncompressed(plain: Connection) -> None:
    text = json.dumps({"comment": "заявка " * 500}, ensure_ascii=False)
    days.create_partition(plain, TABLE, TODAY)
    plain.execute(
        f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
        " VALUES ('whole', 1, %s, %s, 'test', 1)",
        [text, NOW],
    )
    row = plain.execute(
        f"SELECT pg_column_size(data), reloptions FROM {TABLE}, pg_class WHERE relname = %s",
        [days.build_partition_name(TABLE, TODAY)],
    ).fetchone()
    assert row is not None
    assert row[0] > len(text.encode()) * 0.9
    assert row[1] == ["toast_tuple_target=8160"]
