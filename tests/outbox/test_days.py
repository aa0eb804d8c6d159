"""The day tables of the outbox: which table stores a version, and when a table is truncated."""

import secrets
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import connection, transaction

import outbox
from outbox.database import day_tables, sessions
from outbox.models import Document
from outbox.relay import queue
from tests.outbox import recorded_versions

NOW = datetime(2026, 11, 22, 18, tzinfo=UTC)
DAY = timedelta(days=1)


def test_tables_of_all_days_from_first_to_second_moment_are_selected() -> None:
    [today] = day_tables.select_slots(NOW, NOW)
    assert day_tables.select_slots(NOW, NOW + DAY) == sorted(
        {today, (today + 1) % day_tables.TABLE_COUNT}
    )
    assert day_tables.select_slots(NOW - 100 * DAY, NOW) == list(range(day_tables.TABLE_COUNT))
    assert day_tables.select_slots(
        NOW.replace(hour=23), NOW + timedelta(hours=6)
    ) == day_tables.select_slots(NOW, NOW + DAY)


MOMENTS = ("1999-12-31 23:59:59.999999", "2026-11-22 00:00:00", "2026-11-22 23:59:59.5")


@pytest.mark.parametrize("moment", MOMENTS)
def test_sql_and_python_select_the_same_day_table_for_a_moment(service: str, moment: str) -> None:
    with connection.cursor() as cursor:
        source = "(SELECT %s::timestamptz) AS m (recorded_at)"
        cursor.execute(f"SELECT {day_tables.SLOT} FROM {source}", [moment])
        [slot] = cursor.fetchone()
    moment_in_utc = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    assert day_tables.select_slots(moment_in_utc, moment_in_utc) == [slot]


def test_version_and_row_of_its_document_are_recorded_with_the_same_moment(service: str) -> None:
    """If one moment were before midnight and the second one after midnight, the relay would search
    for the version in the table of the wrong day."""
    for n in range(2):
        with transaction.atomic():
            outbox.record("product-instance", "A1", {"n": n})
        document = Document.objects.get()
        assert document.waiting_since == recorded_versions.load_versions()[0].recorded_at
        assert document.recorded_at == recorded_versions.load_versions()[n].recorded_at


def test_expired_day_tables_exclude_kept_days_and_tomorrow() -> None:
    for keep_days in (1, 7, day_tables.MOST_KEEP_DAYS):
        kept_slots = set(day_tables.select_slots(NOW - keep_days * DAY, NOW + DAY))
        expired_slots = set(day_tables.select_expired_slots(NOW, keep_days))
        assert expired_slots
        assert not kept_slots & expired_slots
        assert len(kept_slots) + len(expired_slots) == day_tables.TABLE_COUNT


def record_old_version(id: str, age: int, *, sent: bool) -> str:
    """Record a version, date it back by `age` days, and return the name of its day table."""
    with transaction.atomic():
        outbox.record("product-instance", id, {})
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_message SET recorded_at = recorded_at - %s * interval '1 day',"
            " slot = mod(slot - %s + 64, 32) WHERE document = %s RETURNING slot",
            [age, age, f"product-instance/{id}"],
        )
        [slot] = cursor.fetchone()
        cursor.execute(
            "UPDATE outbox_document SET recorded_at = recorded_at - %s * interval '1 day',"
            " waiting_since = CASE WHEN NOT %s THEN waiting_since - %s * interval '1 day' END,"
            " sent = %s WHERE key = %s",
            [age, sent, age, int(sent), f"product-instance/{id}"],
        )
    return f"outbox_message_{slot:02}"


def truncate_expired(keep_days: int = 7) -> list[str]:
    with sessions.connect("default") as connection:
        return queue.truncate_expired_messages(connection, keep_days, lambda: None)


def test_expired_table_is_truncated_when_all_its_versions_were_sent(service: str) -> None:
    expired_table, kept_table = (
        record_old_version("A1", 8, sent=True),
        record_old_version("A2", 7, sent=True),
    )
    assert expired_table != kept_table
    assert truncate_expired() == [expired_table]
    assert [version.id for version in recorded_versions.load_versions()] == ["A2"]
    assert truncate_expired() == []


def test_expired_table_is_not_truncated_while_it_has_an_unsent_version(service: str) -> None:
    record_old_version("A1", 9, sent=True)
    record_old_version("A2", 9, sent=False)
    assert truncate_expired() == []
    assert len(recorded_versions.load_versions()) == 2


def test_expired_table_that_a_session_reads_is_truncated_by_the_next_run(service: str) -> None:
    table = record_old_version("A1", 8, sent=True)
    with psycopg.connect(service) as reader:
        reader.execute(f"SELECT FROM {table}")
        assert truncate_expired() == []
        reader.rollback()
    assert truncate_expired() == [table]


def test_relay_continues_when_it_lacks_the_right_to_truncate(service: str) -> None:
    record_old_version("A1", 8, sent=True)
    role = f"relay_{secrets.token_hex(4)}"
    with psycopg.connect(service, autocommit=True) as server:
        server.execute(f"CREATE ROLE {role}")
        server.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
        )
        try:
            with sessions.connect("default") as connection:
                connection.execute(f"SET ROLE {role}")
                assert queue.truncate_expired_messages(connection, 7, lambda: None) == []
                assert connection.execute("SELECT 1").fetchone() == (1,)
        finally:
            server.execute(f"DROP OWNED BY {role}")
            server.execute(f"DROP ROLE {role}")
    assert len(recorded_versions.load_versions()) == 1


def test_relay_writes_a_heartbeat_for_each_table_that_it_truncates(service: str) -> None:
    """Truncating a table can take a second. Without a heartbeat, other relays would take over the
    buckets of this relay."""
    for age in range(8, 12):
        record_old_version(f"A{age}", age, sent=True)
    beats: list[None] = []
    with sessions.connect("default") as connection:
        assert len(queue.truncate_expired_messages(connection, 7, lambda: beats.append(None))) == 4
    assert len(beats) == 4
