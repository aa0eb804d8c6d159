"""The access journal is append-only. Its days are partitions, and are sealed like versions."""

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
from annals.access.journal.days import ROWS, TABLE, create_coming_days
from annals.access.models import JournalEntry
from annals.operations.health import show_readiness
from history.models import DaySeal, FieldLabel, LateRow, MaintainRun
from history.retention.seals.seal import seal_day
from history.store.days import days
from history.store.days.canonical import Connection
from history.store.days.days import build_partition_name
from tests.db.as_role import is_refused
from tests.db.partitioned import connect_plainly, run_partitions, transactional_db
from tests.db.store import T0, Store
from tests.messages import get_today

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
def journal_with_few_days(transactional_db: None, settings: Any) -> Iterator[Connection]:
    """Yield a connection to a database with an empty journal, one day of retention and one day
    ahead.

    Before and after the test the journal has the days that `migrate` creates.
    """
    create_coming_days()
    all_days = settings.ANNALS
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, retention_days=1, ahead_days=1)
    with connect_plainly() as plain:
        plain.execute(f"TRUNCATE {TABLE}")  # entries that other tests have committed
        yield plain
        plain.execute("RESET ROLE")
        plain.execute(f"TRUNCATE {TABLE}")
        for day in list_journal_days():
            if day < get_today():
                days.drop_partition(plain, TABLE, day)
    settings.ANNALS = all_days
    create_coming_days()


def list_days_ahead() -> list[date]:
    """Return the nine days that must exist: today, one for `ahead_days=1`, and seven for safety."""
    return [get_today() + timedelta(days=number) for number in range(9)]


def list_journal_days() -> list[date]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT right(inhrelid::regclass::text, 8) FROM pg_inherits"
            " WHERE inhparent = %s::regclass ORDER BY 1",
            [TABLE],
        )
        return [date.fromisoformat(name) for (name,) in cursor.fetchall()]


def test_database_login_of_web_can_only_add_and_read_journal_entries(
    journal_with_few_days: Connection,
) -> None:
    call_command("grants", apply=True)
    partition = build_partition_name(TABLE, get_today())
    journal_with_few_days.execute(f"SET ROLE {WEB}")
    journal_with_few_days.execute(WEB_INSERT.format("", ""))
    assert journal_with_few_days.execute(f"SELECT login FROM {TABLE}").fetchall() == [("support",)]
    for table in (TABLE, partition):
        for statement in (
            f"UPDATE {table} SET login = 'other'",
            f"DELETE FROM {table}",
            f"TRUNCATE {table}",
            f"DROP TABLE {table}",
            f"ALTER TABLE {table} ADD COLUMN x int",
            f"CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION f()",
        ):
            assert is_refused(journal_with_few_days, statement), statement
    for column, forged in (("at", "now() - interval '1 hour'"), ("id", "gen_random_uuid()")):
        assert is_refused(journal_with_few_days, WEB_INSERT.format(f"{column}, ", f"{forged}, ")), (
            column
        )
    assert is_refused(journal_with_few_days, f"ALTER TABLE {TABLE} DETACH PARTITION {partition}")
    journal_with_few_days.execute(f"SET ROLE {CONSUMER}")
    assert is_refused(journal_with_few_days, f"SELECT * FROM {TABLE}")


def test_migrate_creates_journal_partitions_for_today_and_coming_days(
    journal_with_few_days: Connection,
) -> None:
    for day in list_journal_days():
        days.drop_partition(journal_with_few_days, TABLE, day)
    create_coming_days()
    assert list_journal_days() == list_days_ahead()


def test_maintain_drops_journal_days_older_than_journal_retention(
    journal_with_few_days: Connection, settings: Any
) -> None:
    settings.ANNALS = msgspec.structs.replace(
        settings.ANNALS, journal_days=200, archive_url="/nowhere"
    )
    for age in (199, 200, 201, 300):
        days.create_partition(journal_with_few_days, TABLE, get_today() - timedelta(days=age))
    days.drop_partition(journal_with_few_days, TABLE, get_today())
    assert run_partitions("maintain").code == 0
    kept_days = list_journal_days()
    # `maintain` creates no day before the oldest one, because no row can come there. It creates the
    # missing days after it, because a day without a seal looks like a day that somebody removed.
    assert kept_days[0] == get_today() - timedelta(days=200)
    assert [*range(200, 1, -1)] == [
        (get_today() - day).days for day in kept_days if day < get_today()
    ][:199]
    assert set(kept_days) >= set(list_days_ahead())
    assert run_partitions("verify", "--entity", "journal")[0] == 0


def test_partitions_commands_and_metrics_include_journal_days(
    client: Client, journal_with_few_days: Connection
) -> None:
    assert build_partition_name(TABLE, get_today()) in run_partitions("list")[1]
    run_partitions("maintain")
    assert f'annals_store_days_ahead{{table="{TABLE}"}} 8.0' in _get_metrics(client)
    days.drop_partition(journal_with_few_days, TABLE, get_today() + timedelta(days=1))
    assert f'annals_store_days_ahead{{table="{TABLE}"}} 0.0' in _get_metrics(client)
    assert b"1 missing" in client.get("/readyz").content
    plan = [line.split()[:3] for line in run_partitions("plan")[1].splitlines()]
    assert [TABLE, "create", build_partition_name(TABLE, get_today() + timedelta(days=1))] in plan
    create_coming_days()
    assert show_readiness(None).status_code == 200  # type: ignore[arg-type]


def _get_metrics(client: Client) -> str:
    return client.get("/metrics").content.decode()


@pytest.fixture
def sealed_day(journal_with_few_days: Connection, monkeypatch: pytest.MonkeyPatch) -> date:
    """Return a day of the journal that has 30 rows and that `maintain` has sealed."""
    day = get_today() - timedelta(days=2)
    days.create_partition(journal_with_few_days, TABLE, day)
    for number in range(30):
        moment = datetime(day.year, day.month, day.day, 10, number, tzinfo=UTC)
        journal_with_few_days.execute(INSERT, [moment, f"login-{number}"])
    assert run_partitions("maintain").code == 0
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
def test_verify_finds_change_of_sealed_entry(
    tampering: str, sealed_day: date, journal_with_few_days: Connection
) -> None:
    journal_with_few_days.execute(tampering)
    code, out, _ = run_partitions("verify", "--entity", "journal")
    assert code == 1
    assert f"{TABLE} {sealed_day}: rows 1 to 30 differ, between 10:00:00.000000" in out


@pytest.fixture
def sealed_days(journal_with_few_days: Connection) -> list[date]:
    """Return six consecutive sealed days of the journal. The second day is empty. The five days
    with entries have three rows each."""
    created_days = [get_today() - timedelta(days=age) for age in (7, 6, 5, 4, 3, 2)]
    for day in created_days:
        days.create_partition(journal_with_few_days, TABLE, day)
        for hour in range(0 if day == created_days[1] else 3):
            moment = datetime(day.year, day.month, day.day, 10 + hour, tzinfo=UTC)
            journal_with_few_days.execute(INSERT, [moment, f"login-{hour}"])
    assert run_partitions("maintain").code == 0
    assert run_partitions("verify", "--entity", "journal")[0] == 0
    return created_days


def assert_day_has_fault(day: date, *faults: str) -> None:
    """Check that `partitions verify` reports one of these faults for the day of the journal."""
    code, out, _ = run_partitions("verify", "--entity", "journal")
    assert code == 1
    assert any(f"{TABLE} {day}: {fault}" in out for fault in faults), out


def test_verify_finds_forged_journal_entry_although_it_is_noted_as_a_late_row(
    sealed_days: list[date], journal_with_few_days: Connection
) -> None:
    day = sealed_days[2]
    journal_with_few_days.execute(
        INSERT, [datetime(day.year, day.month, day.day, 15, tzinfo=UTC), "framed"]
    )
    for sealed in (False, True):
        LateRow.objects.all().delete()
        journal_with_few_days.execute(
            'INSERT INTO late_row ("table", day, row_id, version, row_hash, topic, "partition",'
            ' "offset", noted_at, sealed)'
            " SELECT %s, %s, '', 0, sha256(convert_to('x', 'UTF8')), '', 0, 0, now(), %s",
            [TABLE, day, sealed],
        )
        assert_day_has_fault(day, "rows 1 to 3 differ")
    journal_with_few_days.execute(f"DELETE FROM {TABLE} WHERE login = 'framed'")
    assert_day_has_fault(day, "late rows are noted, but this table never gets late rows")
    journal_with_few_days.execute("UPDATE late_row SET day = %s", [get_today()])
    assert_day_has_fault(get_today(), "late rows are noted, but this table never gets late rows")


def test_verify_finds_day_that_was_dropped_before_its_retention_ended(
    sealed_days: list[date], journal_with_few_days: Connection
) -> None:
    day = sealed_days[2]
    journal_with_few_days.execute(f"DELETE FROM {build_partition_name(TABLE, day)}")
    journal_with_few_days.execute(
        'UPDATE sealed_day SET dropped_at = now() WHERE "table" = %s AND day = %s', [TABLE, day]
    )
    assert_day_has_fault(day, "the day was dropped before its retention was over")


@pytest.mark.parametrize("index", [1, 4])
def test_verify_finds_journal_day_without_seal(
    index: int, sealed_days: list[date], journal_with_few_days: Connection
) -> None:
    """`partitions verify` reports a day without a seal, even if somebody deleted the day's entries
    and all seals, and then sealed the remaining days again."""
    journal_with_few_days.execute("DELETE FROM day_seal")
    journal_with_few_days.execute(f"DELETE FROM {build_partition_name(TABLE, sealed_days[index])}")
    for day in sealed_days:
        if day != sealed_days[index]:
            seal_day(journal_with_few_days, ROWS, day)
    assert_day_has_fault(
        sealed_days[index], "the day does not have a seal, although an earlier day has a seal"
    )


def test_verify_accepts_day_that_no_run_could_seal_yet(
    sealed_days: list[date], journal_with_few_days: Connection
) -> None:
    """`maintain` did not run for three nights. Its next run seals the days of these nights."""
    moment = datetime.combine(sealed_days[-3], time(), UTC)
    MaintainRun.objects.update(started_at=moment)
    # sealed_days[-5] had ended a day before that run, so the run should have sealed it.
    DaySeal.objects.filter(table=TABLE, day__gte=sealed_days[-5]).delete()
    assert_day_has_fault(sealed_days[-5], "the day does not have a seal")
    seal_day(journal_with_few_days, ROWS, sealed_days[-5])
    assert run_partitions("verify", "--entity", "journal")[0] == 0
    assert run_partitions("maintain")[0] == 0
    assert set(sealed_days) <= set(DaySeal.objects.values_list("day", flat=True))


@pytest.mark.parametrize("failed", ["busy", "broken"])
def test_verify_accepts_unsealed_day_when_latest_run_reported_a_failure(
    failed: str, sealed_days: list[date]
) -> None:
    """The next run seals the day."""
    DaySeal.objects.filter(table=TABLE, day=sealed_days[-1]).delete()
    assert_day_has_fault(
        sealed_days[-1], "the day does not have a seal, although an earlier day has a seal"
    )
    run_before, failing = MaintainRun.objects.get(), MaintainRun.objects.get()
    failing.pk = None
    setattr(failing, failed, 1)
    failing.save()
    MaintainRun.objects.filter(pk=run_before.pk).update(
        started_at=failing.started_at - timedelta(days=1)
    )
    assert run_partitions("verify", "--entity", "journal")[0] == 0
    assert run_partitions("maintain")[0] == 0
    assert run_partitions("verify", "--entity", "journal")[0] == 0
    assert DaySeal.objects.filter(table=TABLE, day=sealed_days[-1]).exists()


def test_maintain_creates_and_seals_days_that_it_missed(
    sealed_days: list[date], journal_with_few_days: Connection
) -> None:
    """Two past days have no partition and three have no seal, because `maintain` did not run."""
    DaySeal.objects.filter(table=TABLE, day__gte=sealed_days[-3]).delete()
    for day in sealed_days[-3:-1]:
        journal_with_few_days.execute(f"DROP TABLE {build_partition_name(TABLE, day)}")
    assert run_partitions("maintain")[0] == 0
    assert run_partitions("verify", "--entity", "journal")[0] == 0
    assert sealed_days[-3] in list_journal_days()


def test_verify_finds_day_that_was_sealed_again_after_rows_were_deleted(
    sealed_days: list[date], journal_with_few_days: Connection
) -> None:
    day = sealed_days[2]
    journal_with_few_days.execute(
        f"DELETE FROM {build_partition_name(TABLE, day)} WHERE login = 'login-1'"
    )
    assert run_partitions("seal", str(day), "--entity", "journal")[0] == 2
    seal_day(journal_with_few_days, ROWS, day)
    assert_day_has_fault(day, "the day was sealed again with other rows")


def test_verify_accepts_day_that_was_dropped_after_its_retention(
    sealed_day: date, settings: Any
) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, journal_days=1)
    assert run_partitions("maintain")[0] == 0
    assert sealed_day not in list_journal_days()
    assert run_partitions("verify", "--entity", "journal")[0] == 0


def test_maintain_removes_expired_sessions(journal_with_few_days: Connection) -> None:
    Session.objects.create(
        session_key="ended", session_data="", expire_date=datetime.now(UTC) - timedelta(days=1)
    )
    assert run_partitions("maintain")[0] == 0
    assert not Session.objects.filter(session_key="ended").exists()


@pytest.mark.django_db
def test_marking_or_unmarking_a_field_writes_journal_entry(tmp_path: Path) -> None:
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
        (write.get_system_login(), "labels load: /email: marked -> not marked"),
        (write.get_system_login(), "labels load: /new: not marked -> marked"),
    ]


def test_export_writes_journal_entry(journal_with_few_days: Connection, tmp_path: Path) -> None:
    Store().add("A1", 0, {"rate": "1"}, 0)
    first, end = str(T0.date()), str(T0.date() + timedelta(days=1))
    words = ("--from", first, "--to", end, "--output", str(tmp_path), "--reason", "DWH")
    call_command("export", "--entity", "product-instance", *words)
    row = JournalEntry.objects.get()
    assert (row.actor, row.login, row.address) == ("operator", write.get_system_login(), "local")
    assert (row.action, row.entity, row.reason) == ("export", "product-instance", "DWH")
    assert row.query == f"export product-instance {first} to {first} as jsonl to {tmp_path}"
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
