"""The journal is append-only, in days of its own, sealed like the versions."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import connection
from django.test import Client

from annals.access.grants import CONSUMER, WEB
from annals.access.journal import write
from annals.access.journal.days import ROWS, TABLE, create
from annals.access.models import JournalEntry
from annals.observe.health import ready
from history.daily import days
from history.daily.canonical import Connection
from history.daily.days import partition_name
from history.models import DaySeal, FieldLabel, LateRow, MaintainRun
from history.seals.seal import seal
from tests.db.as_role import refused
from tests.db.partitioned import raw, run, transactional_db
from tests.db.store import T0, Store
from tests.messages import today

__all__ = ["transactional_db"]

WEB_INSERT = (
    f"INSERT INTO {TABLE} ({{}}login, identity, actor, address, request_id, action, entity,"
    " entity_id, application, outcome, status, method, query, path, moment, reason)"
    " VALUES ({}'support', '', 'person', '', '', 'other', '', '', '', 'shown', 200, '', '', '', '',"
    " '')"
)
INSERT = (
    f"INSERT INTO {TABLE} (at, login, identity, actor, address, request_id, action, entity,"
    " entity_id, application, outcome, status, method, query, path, moment, reason)"
    " VALUES (%s, %s, '', 'person', '', '', 'timeline', '', '', 'A1', 'shown', 200, 'GET', '', '',"
    " '', '')"
)


@pytest.fixture
def committed(transactional_db: None, settings: Any) -> Iterator[Connection]:
    """A plain connection, and few days. The journal has its days as after migrate, before and
    after."""
    create()
    all_days = settings.ANNALS
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, retention_days=1, ahead_days=1)
    with raw() as plain:
        plain.execute(f"TRUNCATE {TABLE}")  # looks of other tests that commit
        yield plain
        plain.execute("RESET ROLE")
        plain.execute(f"TRUNCATE {TABLE}")
        for day in journal_days():
            if day < today():
                days.drop(plain, TABLE, day)
    settings.ANNALS = all_days
    create()


def ahead() -> list[date]:
    """The days from today on that settings ask for: ahead_days=1, and 7 to spare."""
    return [today() + timedelta(days=number) for number in range(9)]


def journal_days() -> list[date]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT right(inhrelid::regclass::text, 8) FROM pg_inherits"
            " WHERE inhparent = %s::regclass ORDER BY 1",
            [TABLE],
        )
        return [date.fromisoformat(name) for (name,) in cursor.fetchall()]


def test_postgresql_lets_the_web_add_and_read_only(committed: Connection) -> None:
    call_command("grants", apply=True)
    partition = partition_name(TABLE, today())
    committed.execute(f"SET ROLE {WEB}")
    committed.execute(WEB_INSERT.format("", ""))
    assert committed.execute(f"SELECT login FROM {TABLE}").fetchall() == [("support",)]
    for table in (TABLE, partition):
        for statement in (
            f"UPDATE {table} SET login = 'other'",
            f"DELETE FROM {table}",
            f"TRUNCATE {table}",
            f"DROP TABLE {table}",
            f"ALTER TABLE {table} ADD COLUMN x int",
            f"CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION f()",
        ):
            assert refused(committed, statement), statement
    for column, forged in (("at", "now() - interval '1 hour'"), ("id", "gen_random_uuid()")):
        assert refused(committed, WEB_INSERT.format(f"{column}, ", f"{forged}, ")), column
    assert refused(committed, f"ALTER TABLE {TABLE} DETACH PARTITION {partition}")
    committed.execute(f"SET ROLE {CONSUMER}")
    assert refused(committed, f"SELECT * FROM {TABLE}")


def test_migrate_creates_today_and_the_days_ahead(committed: Connection) -> None:
    for day in journal_days():
        days.drop(committed, TABLE, day)
    create()
    assert journal_days() == ahead()


def test_maintain_keeps_the_journal_for_its_own_time(committed: Connection, settings: Any) -> None:
    settings.ANNALS = msgspec.structs.replace(
        settings.ANNALS, journal_days=200, archive_url="/nowhere"
    )
    for age in (199, 200, 201, 300):
        days.create(committed, TABLE, today() - timedelta(days=age))
    days.drop(committed, TABLE, today())
    assert run("maintain").code == 0
    kept = journal_days()
    # No day before the oldest one is made: nothing would ever come into them. Those after it are:
    # a day without a seal looks like a day that somebody has removed.
    assert kept[0] == today() - timedelta(days=200)
    assert [*range(200, 1, -1)] == [(today() - day).days for day in kept if day < today()][:199]
    assert set(kept) >= set(ahead())
    assert run("verify", "--entity", "journal")[0] == 0


def test_the_days_of_the_journal_are_listed_planned_and_watched(
    client: Client, committed: Connection
) -> None:
    assert partition_name(TABLE, today()) in run("list")[1]
    run("maintain")
    assert f'annals_store_days_ahead{{table="{TABLE}"}} 8.0' in _metrics(client)
    days.drop(committed, TABLE, today() + timedelta(days=1))
    assert f'annals_store_days_ahead{{table="{TABLE}"}} 0.0' in _metrics(client)
    assert b"1 missing" in client.get("/readyz").content
    plan = [line.split()[:3] for line in run("plan")[1].splitlines()]
    assert [TABLE, "create", partition_name(TABLE, today() + timedelta(days=1))] in plan
    create()
    assert ready(None).status_code == 200  # type: ignore[arg-type]


def _metrics(client: Client) -> str:
    return client.get("/metrics").content.decode()


@pytest.fixture
def sealed(committed: Connection, monkeypatch: pytest.MonkeyPatch) -> date:
    """A day of the journal with 30 rows that maintain has sealed."""
    day = today() - timedelta(days=2)
    days.create(committed, TABLE, day)
    for number in range(30):
        at = datetime(day.year, day.month, day.day, 10, number, tzinfo=UTC)
        committed.execute(INSERT, [at, f"login-{number}"])
    assert run("maintain").code == 0
    assert DaySeal.objects.get(table=TABLE).rows == 30
    return day


OTHERS = (
    "actor, address, request_id, action, entity, entity_id, application, outcome, status, method,"
    " query, reason, identity, path, moment"
)


@pytest.mark.parametrize(
    "tampering",
    [
        f"UPDATE {TABLE} SET login = 'somebody' WHERE login = 'login-7'",
        f"UPDATE {TABLE} SET reason = 'x' WHERE login = 'login-7'",
        f"UPDATE {TABLE} SET at = at + interval '1 microsecond' WHERE login = 'login-7'",
        f"DELETE FROM {TABLE} WHERE login = 'login-7'",
        f"INSERT INTO {TABLE} (at, login, {OTHERS}) SELECT at, 'x', {OTHERS}"
        f" FROM {TABLE} WHERE login = 'login-7'",
    ],
)
def test_every_later_change_is_found(tampering: str, sealed: date, committed: Connection) -> None:
    committed.execute(tampering)
    code, out, _ = run("verify", "--entity", "journal")
    assert code == 1
    assert f"{TABLE} {sealed}: rows 1 to 30 differ, between 10:00:00.000000" in out


@pytest.fixture
def days_sealed(committed: Connection) -> list[date]:
    """Five days with three rows each, but for the second, which has none; all of them sealed."""
    found = [today() - timedelta(days=age) for age in (7, 6, 5, 4, 3, 2)]
    for day in found:
        days.create(committed, TABLE, day)
        for hour in range(0 if day == found[1] else 3):
            at = datetime(day.year, day.month, day.day, 10 + hour, tzinfo=UTC)
            committed.execute(INSERT, [at, f"login-{hour}"])
    assert run("maintain").code == 0
    assert run("verify", "--entity", "journal")[0] == 0
    return found


def verified(day: date, *faults: str) -> None:
    """The journal has a fault in this day."""
    code, out, _ = run("verify", "--entity", "journal")
    assert code == 1
    assert any(f"{TABLE} {day}: {fault}" in out for fault in faults), out


def test_a_row_that_is_noted_as_late_is_a_fault(
    days_sealed: list[date], committed: Connection
) -> None:
    day = days_sealed[2]
    committed.execute(INSERT, [datetime(day.year, day.month, day.day, 15, tzinfo=UTC), "framed"])
    for sealed in (False, True):
        LateRow.objects.all().delete()
        committed.execute(
            'INSERT INTO late_row ("table", day, row_id, version, row_hash, topic, "partition",'
            ' "offset", noted_at, sealed)'
            " SELECT %s, %s, '', 0, sha256(convert_to('x', 'UTF8')), '', 0, 0, now(), %s",
            [TABLE, day, sealed],
        )
        verified(day, "rows 1 to 3 differ")
    committed.execute(f"DELETE FROM {TABLE} WHERE login = 'framed'")
    verified(day, "rows are noted as late, and no row can be late here")
    committed.execute("UPDATE late_row SET day = %s", [today()])
    verified(today(), "rows are noted as late, and no row can be late here")


def test_a_day_dropped_before_its_time_is_a_fault(
    days_sealed: list[date], committed: Connection
) -> None:
    day = days_sealed[2]
    committed.execute(f"DELETE FROM {partition_name(TABLE, day)}")
    committed.execute(
        'UPDATE sealed_day SET dropped_at = now() WHERE "table" = %s AND day = %s', [TABLE, day]
    )
    verified(day, "it was dropped before its retention was over")


@pytest.mark.parametrize("place", [1, 4])
def test_a_day_without_a_seal_is_a_fault(
    place: int, days_sealed: list[date], committed: Connection
) -> None:
    """Also where somebody has made the whole chain again."""
    committed.execute("DELETE FROM day_seal")
    committed.execute(f"DELETE FROM {partition_name(TABLE, days_sealed[place])}")
    for day in days_sealed:
        if day != days_sealed[place]:
            seal(committed, ROWS, day)
    verified(days_sealed[place], "it has no seal, and a day before it has one or rows")


def test_a_day_that_no_run_could_seal_yet_is_in_order(
    days_sealed: list[date], committed: Connection
) -> None:
    """maintain was killed or did not run for three nights; its next run seals them."""
    at = datetime.combine(days_sealed[-3], time(), UTC)
    MaintainRun.objects.update(started_at=at)
    # The newest of these days was the last one that had ended a day before the run.
    DaySeal.objects.filter(table=TABLE, day__gte=days_sealed[-5]).delete()
    verified(days_sealed[-5], "it has no seal")
    seal(committed, ROWS, days_sealed[-5])
    assert run("verify", "--entity", "journal")[0] == 0
    assert run("maintain")[0] == 0
    assert set(days_sealed) <= set(DaySeal.objects.values_list("day", flat=True))


@pytest.mark.parametrize("failed", ["busy", "broken"])
def test_a_day_that_a_run_could_not_seal_is_in_order(failed: str, days_sealed: list[date]) -> None:
    """That run has reported it, and the next one seals the day."""
    DaySeal.objects.filter(table=TABLE, day=days_sealed[-1]).delete()
    verified(days_sealed[-1], "it has no seal, and a day before it has one or rows")
    run_before, failing = MaintainRun.objects.get(), MaintainRun.objects.get()
    failing.pk = None
    setattr(failing, failed, 1)
    failing.save()
    MaintainRun.objects.filter(pk=run_before.pk).update(
        started_at=failing.started_at - timedelta(days=1)
    )
    assert run("verify", "--entity", "journal")[0] == 0
    assert run("maintain")[0] == 0
    assert run("verify", "--entity", "journal")[0] == 0
    assert DaySeal.objects.filter(table=TABLE, day=days_sealed[-1]).exists()


def test_days_that_were_never_created_are_sealed(
    days_sealed: list[date], committed: Connection
) -> None:
    """maintain did not run for so long that the days ahead were used up."""
    DaySeal.objects.filter(table=TABLE, day__gte=days_sealed[-3]).delete()
    for day in days_sealed[-3:-1]:
        committed.execute(f"DROP TABLE {partition_name(TABLE, day)}")
    assert run("maintain")[0] == 0
    assert run("verify", "--entity", "journal")[0] == 0
    assert days_sealed[-3] in journal_days()


def test_a_day_that_was_sealed_again_with_other_rows_is_a_fault(
    days_sealed: list[date], committed: Connection
) -> None:
    day = days_sealed[2]
    committed.execute(f"DELETE FROM {partition_name(TABLE, day)} WHERE login = 'login-1'")
    assert run("seal", str(day), "--entity", "journal")[0] == 2
    seal(committed, ROWS, day)
    verified(day, "it was sealed again with other rows")


def test_a_day_that_retention_dropped_is_in_order(sealed: date, settings: Any) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, journal_days=1)
    assert run("maintain")[0] == 0
    assert sealed not in journal_days()
    assert run("verify", "--entity", "journal")[0] == 0


def test_maintain_removes_ended_logins(committed: Connection) -> None:
    Session.objects.create(
        session_key="ended", session_data="", expire_date=datetime.now(UTC) - timedelta(days=1)
    )
    assert run("maintain")[0] == 0
    assert not Session.objects.filter(session_key="ended").exists()


@pytest.mark.django_db
def test_a_mark_that_is_set_or_removed_leaves_a_row(tmp_path: Path) -> None:
    file = tmp_path / "labels.json"
    fields = [("/new", True), ("/email", False), ("/passport", True), ("/rate", None)]
    entries = [
        {"path": path, "russian": path} | ({} if mark is None else {"sensitive": mark})
        for path, mark in fields
    ]
    FieldLabel.objects.update_or_create(entity="", path="/email", defaults={"sensitive": True})
    FieldLabel.objects.update_or_create(entity="", path="/passport", defaults={"sensitive": True})
    file.write_text(json.dumps(entries))
    call_command("labels", "load", str(file))
    rows = JournalEntry.objects.filter(query__startswith="labels load").order_by("query")
    assert [(row.login, row.query) for row in rows] == [
        (write.login(), "labels load: /email: marked -> not marked"),
        (write.login(), "labels load: /new: not marked -> marked"),
    ]


def test_an_export_leaves_a_row(committed: Connection, tmp_path: Path) -> None:
    Store().add("A1", 0, {"rate": "1"}, 0)
    first, end = str(T0.date()), str(T0.date() + timedelta(days=1))
    words = ("--from", first, "--to", end, "--output", str(tmp_path), "--reason", "DWH")
    call_command("export", "--entity", "product-instance", *words)
    row = JournalEntry.objects.get()
    assert (row.actor, row.login, row.address) == ("operator", write.login(), "local")
    assert (row.action, row.entity, row.reason) == ("export", "product-instance", "DWH")
    assert row.query == f"export product-instance {first} to {first} as jsonl to {tmp_path}"
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
