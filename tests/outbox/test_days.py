"""The tables of days: which hold a moment, which are emptied, and when not."""

import secrets
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import connection, transaction

import outbox
from outbox import database, days
from outbox.models import Document
from outbox.relay import queue
from tests.outbox import stored

NOW = datetime(2026, 11, 22, 18, tzinfo=UTC)
DAY = timedelta(days=1)


def test_the_tables_between_two_moments() -> None:
    [today] = days.slots(NOW, NOW)
    assert days.slots(NOW, NOW + DAY) == sorted({today, (today + 1) % days.SLOTS})
    assert days.slots(NOW - 100 * DAY, NOW) == list(range(days.SLOTS))
    assert days.slots(NOW.replace(hour=23), NOW + timedelta(hours=6)) == days.slots(NOW, NOW + DAY)


MOMENTS = ("1999-12-31 23:59:59.999999", "2026-11-22 00:00:00", "2026-11-22 23:59:59.5")


@pytest.mark.parametrize("moment", MOMENTS)
def test_postgresql_and_the_relay_agree_on_the_table_of_a_moment(service: str, moment: str) -> None:
    with connection.cursor() as cursor:
        source = "(SELECT %s::timestamptz) AS m (recorded_at)"
        cursor.execute(f"SELECT {days.SLOT} FROM {source}", [moment])
        [slot] = cursor.fetchone()
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    assert days.slots(at, at) == [slot]


def test_a_version_is_not_recorded_before_its_document_waits(service: str) -> None:
    """Around midnight they would be in two tables, and the relay would look in one."""
    for n in range(2):
        with transaction.atomic():
            outbox.record("product-instance", "A1", {"n": n})
        document = Document.objects.get()
        assert document.waiting_since == stored.versions()[0].recorded_at
        assert document.recorded_at == stored.versions()[n].recorded_at


def test_expired_tables_are_neither_kept_days_nor_tomorrow() -> None:
    for keep in (1, 7, days.MOST_DAYS):
        kept = set(days.slots(NOW - keep * DAY, NOW + DAY))
        expired = set(days.expired(NOW, keep))
        assert expired
        assert not kept & expired
        assert len(kept) + len(expired) == days.SLOTS


def old(id: str, age: int, *, sent: bool) -> str:
    """A version recorded so many days ago; the table that holds it."""
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


def clean(keep_days: int = 7) -> list[str]:
    with database.connect("default") as own:
        return queue.clean(own, keep_days, lambda: None)


def test_days_that_are_sent_and_over_are_emptied(service: str) -> None:
    expired, kept = old("A1", 8, sent=True), old("A2", 7, sent=True)
    assert expired != kept
    assert clean() == [expired]
    assert [each.id for each in stored.versions()] == ["A2"]
    assert clean() == []


def test_a_day_with_a_version_that_waits_stays(service: str) -> None:
    old("A1", 9, sent=True)
    old("A2", 9, sent=False)
    assert clean() == []
    assert len(stored.versions()) == 2


def test_a_table_that_somebody_uses_is_left_for_the_next_time(service: str) -> None:
    table = old("A1", 8, sent=True)
    with psycopg.connect(service) as reader:
        reader.execute(f"SELECT FROM {table}")
        assert clean() == []
        reader.rollback()
    assert clean() == [table]


def test_a_relay_that_may_not_empty_tables_goes_on(service: str) -> None:
    old("A1", 8, sent=True)
    role = f"relay_{secrets.token_hex(4)}"
    with psycopg.connect(service, autocommit=True) as server:
        server.execute(f"CREATE ROLE {role}")
        server.execute(
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
        )
        try:
            with database.connect("default") as own:
                own.execute(f"SET ROLE {role}")
                assert queue.clean(own, 7, lambda: None) == []
                assert own.execute("SELECT 1").fetchone() == (1,)
        finally:
            server.execute(f"DROP OWNED BY {role}")
            server.execute(f"DROP ROLE {role}")
    assert len(stored.versions()) == 1


def test_a_relay_shows_that_it_is_alive_while_it_empties_tables(service: str) -> None:
    """Each can take a second, and after its lease others would take over."""
    for age in range(8, 12):
        old(f"A{age}", age, sent=True)
    beats: list[None] = []
    with database.connect("default") as own:
        assert len(queue.clean(own, 7, lambda: beats.append(None))) == 4
    assert len(beats) == 4
