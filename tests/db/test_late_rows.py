"""A row that enters a sealed day is noted with its message. Verification finds any other change."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from django.conf import settings
from psycopg import sql

from history.common import clock
from history.kinds.entities import ROOT
from history.models import ArchivedDay, DaySeal, LateRow
from history.retention.archive.restore import restore_day
from history.retention.archive.store import ArchiveStore as Archive
from history.retention.archive.write import DayArchiver
from history.retention.plan import PartitionPolicy
from history.retention.seals import late_rows
from history.retention.seals import seal as sealing
from history.retention.seals.seal import seal_day
from history.retention.seals.verification import SealVerdict, find_chain_fault, verify_days
from history.store.days import day_locks, days
from history.store.days.canonical import Connection
from history.store.days.window import Window
from ingest.quarantine.messages import MessageSelection, retry_messages
from ingest.store.batch import DecodedRow
from ingest.store.fast_path import copy_rows
from ingest.store.session import open_connection
from tests.consuming import wait_until
from tests.db import ingested as ingesting
from tests.db.ingested import Ingested
from tests.db.partitioned import TABLE, connect_plainly, execute_plans, run_partitions
from tests.db.store import record_queries
from tests.messages import NOW, SOURCE, TOPIC, WINDOW, get_today, make_value, make_value_with_data
from tests.processes import start_own_server

MOMENT = NOW.replace(hour=12, minute=0, second=0) - timedelta(days=20)
OLD = MOMENT.date()
NAME = days.build_partition_name(TABLE, OLD)


@pytest.fixture(autouse=True)
def writer(transactional_db: None, ingested: Ingested, plain: Connection) -> Ingested:
    """Store three rows in the day OLD, then seal the day, and return the writer of the rows."""
    ingested.write(make_old_message("a"), make_old_message("b"), make_old_message("c"))
    seal_day(plain, ROOT, OLD)
    return ingested


def make_old_message(id: str, **changes: Any) -> bytes:
    """Return a message with a version of the day OLD."""
    return make_value(id=id, updatedAt=MOMENT.replace(tzinfo=None).isoformat(), **changes)


def decode_rows(*bodies: bytes) -> list[DecodedRow]:
    """Return decoded rows, for a test that writes them in a separate transaction."""
    batch = Ingested(None, {}).make_batch(*bodies)  # type: ignore[arg-type]
    return batch.rows[ROOT.name]


def verify_day() -> SealVerdict:
    with connect_plainly() as plain:
        (verdict,) = verify_days(plain, ROOT)
    assert find_chain_fault(ROOT) is None
    return verdict


def list_late_rows() -> list[tuple[str, str, int, bool]]:
    """Return id, topic and offset of the late rows, and whether a newer seal includes them."""
    rows = LateRow.objects.order_by("id").values_list("row_id", "topic", "offset", "sealed")
    return list(rows)


def execute(statement: str) -> None:
    with connect_plainly() as plain:
        assert plain.execute(statement).rowcount == 1


def test_late_row_is_noted_with_its_message_and_verify_finds_no_fault(writer: Ingested) -> None:
    writer.write(make_old_message("late"), make_value(id="today"))
    assert list_late_rows() == [("late", TOPIC, 3, False)]
    (row,) = LateRow.objects.all()
    assert (row.table, row.day, row.version, row.partition) == (TABLE, OLD, 7, 0)
    with connect_plainly() as plain:
        rows = plain.execute(f"SELECT id FROM {TABLE} WHERE id = 'late'").fetchall()
    assert len(rows) == 1
    verdict = verify_day()
    assert (verdict.fault, verdict.rows, verdict.late) == (None, 3, 1)
    code, out, _ = run_partitions("verify")
    assert (code, "1 day read, 0 differ, 1 late row" in out) == (0, True)


def test_verify_reports_row_that_no_message_brought(writer: Ingested) -> None:
    writer.write(make_old_message("late"))
    execute(
        f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
        f" VALUES ('forged', 1, '{{}}', '{MOMENT}', 'c', 1)"
    )
    verdict = verify_day()
    assert verdict.fault is not None
    assert "1 row more" in verdict.fault
    assert verdict.late == 1


@pytest.mark.parametrize(
    "change", ["DELETE FROM {} WHERE id = '{}'", "UPDATE {} SET author = 'x' WHERE id = '{}'"]
)
@pytest.mark.parametrize("id", ["late", "b"])
def test_verify_reports_changed_or_deleted_row(writer: Ingested, change: str, id: str) -> None:
    writer.write(make_old_message("late"), make_old_message("late too"))
    assert verify_day().fault is None
    execute(change.format(TABLE, id))
    fault = verify_day().fault
    assert fault is not None
    assert ("1 of 2 late rows missing or changed" in fault) == (id == "late")


def test_repeated_and_quarantined_messages_are_not_noted_as_late_rows(writer: Ingested) -> None:
    writer.write(
        make_old_message("a"),
        make_old_message("b", data={"other": 1}),
        make_old_message("late"),
        source=SOURCE,
    )
    writer.write(make_old_message("late"))
    assert list_late_rows() == [("late", TOPIC, 5, False)]
    assert verify_day().fault is None


def test_late_rows_are_noted_once_when_their_batch_is_split_because_of_a_bad_row(
    writer: Ingested,
) -> None:
    # The bad row makes the batch fail. Its halves are written again, so rows are copied repeatedly.
    bad = make_value_with_data(b'{"a":"\xff"}', id="bad", updatedAt=MOMENT.isoformat())
    writer.write(*(make_old_message(f"late{n}") for n in range(5)), bad)
    assert [row["offset"] for row in ingesting.list_quarantined()] == [8]
    assert sorted(list_late_rows()) == [(f"late{n}", TOPIC, 3 + n, False) for n in range(5)]
    assert verify_day().fault is None


def test_late_row_stored_by_quarantine_retry_is_noted(writer: Ingested) -> None:
    writer.write(make_old_message("late", author=7))
    ((identity, _),) = [(row["id"], row["reason"]) for row in ingesting.list_quarantined()]
    with connect_plainly() as plain:
        plain.execute(
            "UPDATE ingest_quarantine SET value = %s, next_attempt = now() WHERE id = %s",
            [make_old_message("late"), identity],
        )
    with open_connection("test") as plain:
        (became,) = retry_messages(plain, MessageSelection(ids=(identity,)), lambda: WINDOW)
    assert became["stored"] == 1
    assert list_late_rows() == [("late", TOPIC, 3, False)]
    assert verify_day().fault is None


def test_batch_with_only_versions_of_today_does_not_query_seals(
    writer: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    with record_queries(monkeypatch) as statements:
        writer.write(make_value(id="today", updatedAt=clock.now().replace(tzinfo=None).isoformat()))
        assert not [statement for statement in statements if "sealed_day" in statement]
        writer.write(make_old_message("late"))
        assert len([statement for statement in statements if "sealed_day" in statement]) == 1


@pytest.fixture
def unsealed_writer(writer: Ingested, plain: Connection) -> Ingested:
    """Delete the seal of the day OLD. Return a writer that has stored three rows of this day."""
    plain.execute("DELETE FROM day_seal")
    plain.execute("DELETE FROM sealed_day")
    return writer


def test_sealing_waits_for_open_transaction_that_has_written_to_the_day(
    unsealed_writer: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()

    def pause(_: float) -> None:
        waits.set()
        threading.Event().wait(0.01)

    monkeypatch.setattr(late_rows.time, "sleep", pause)
    with (
        connect_plainly() as plain,
        open_connection("test") as open_,
        ThreadPoolExecutor(1) as pool,
    ):
        with open_.transaction():
            copy_rows(open_, ROOT, decode_rows(make_old_message("in flight")))
            future = pool.submit(seal_day, plain, ROOT, OLD)
            while not waits.is_set() and not future.done():
                waits.wait(0.01)
            assert waits.is_set()
        assert future.result().rows == 4
    assert list_late_rows() == []
    assert verify_day().fault is None


def test_wait_for_open_transactions_does_not_wait_for_autovacuum() -> None:
    """Autovacuum would hold its lock for minutes here: it sleeps after each page."""
    with (
        start_own_server({"autovacuum_naptime": 1}) as server,
        psycopg.connect(server.build_url(), autocommit=True) as plain,
    ):
        plain.execute(
            "CREATE TABLE busy WITH (autovacuum_vacuum_insert_threshold = 1,"
            " autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1) AS"
            " SELECT repeat('x', 1000) FROM generate_series(1, 20000)"
        )
        locked = "SELECT true FROM pg_locks WHERE relation = 'busy'::regclass"
        wait_until(lambda: plain.execute(locked).fetchone(), "autovacuum does not begin")
        late_rows.wait_for_others(plain, [sql.Identifier("busy")])
        assert plain.execute(locked).fetchone()


@pytest.mark.parametrize(
    "when",
    [
        "before the digest",
        pytest.param(
            "after the seal",
            marks=pytest.mark.plain_only("a seal of a cluster waits for every open writer"),
        ),
    ],
)
def test_row_that_is_written_while_its_day_is_sealed_is_noted(
    unsealed_writer: Ingested, monkeypatch: pytest.MonkeyPatch, when: str, plain: Connection
) -> None:
    with open_connection("test") as open_:

        def write(*_: Any) -> None:
            open_.execute("BEGIN")
            copy_rows(open_, ROOT, decode_rows(make_old_message("in flight")))
            if when == "before the digest":
                open_.execute("COMMIT")

        # _vacuum_day runs between the announcement of the seal and its digest.
        monkeypatch.setattr(sealing, "_vacuum_day", write)
        seal = seal_day(plain, ROOT, OLD)
        if when == "after the seal":
            open_.execute("COMMIT")
    inside = when == "before the digest"
    assert seal.rows == (4 if inside else 3)
    assert list_late_rows() == [("in flight", TOPIC, 0, inside)]
    assert (verify_day().fault, verify_day().late) == (None, 0 if inside else 1)


def test_seal_command_fails_while_a_transaction_writes_and_seals_day_after_transaction_ends(
    unsealed_writer: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_locks, "LOCK_WAIT_S", 0.1)
    with open_connection("test") as open_, open_.transaction():
        copy_rows(open_, ROOT, decode_rows(make_old_message("in flight")))
        code, _, err = run_partitions("seal", str(OLD), "--entity", ROOT.name)
        assert (code, "stays open" in err) == (2, True)
    assert not DaySeal.objects.exists()
    assert run_partitions("seal", str(OLD), "--entity", ROOT.name)[0] == 0
    assert verify_day().rows == 4


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(str(tmp_path))


def archive_and_drop_day(archive: Archive | None, accept_changed: date | None = None) -> None:
    """Drop the day OLD as `partitions maintain` drops a day that is older than retention.

    The day is archived before, unless `archive` is None.
    """
    policy = PartitionPolicy(Window.at(clock.now(), 10, 1), get_today())
    archiver = DayArchiver(archive) if archive else None
    outcome = execute_plans(policy, archiver, accept_changed)
    assert outcome.exit_code == 0
    assert NAME in outcome.dropped


def test_day_with_late_rows_is_sealed_again_when_it_is_archived(
    writer: Ingested, archive: Archive, plain: Connection
) -> None:
    writer.write(make_old_message("late"))
    archive_and_drop_day(archive)
    assert [seal.rows for seal in DaySeal.objects.order_by("id")] == [3, 4]
    assert list_late_rows() == [("late", TOPIC, 3, True)]
    verdict = verify_day()
    assert (verdict.fault, verdict.note) == (None, "archived; the digests are equal")
    restore_day(plain, archive, ROOT, OLD)
    assert verify_day().fault is None


def test_verify_finds_no_fault_after_day_was_restored_and_dropped_again(
    writer: Ingested, archive: Archive
) -> None:
    writer.write(make_old_message("late"))
    archive_and_drop_day(archive)
    # With a longer retention the day gets a repeat of an archived row, and a new row.
    writer.write(make_old_message("a"), make_old_message("new"))
    assert (verify_day().fault, verify_day().note) == (None, "archived; the digests are equal")
    archive_and_drop_day(archive)
    assert ArchivedDay.objects.get().rows == 5
    assert [seal.rows for seal in DaySeal.objects.order_by("id")] == [3, 4, 5]
    assert verify_day().fault is None
    # A restored day that gets only repeats is not sealed again.
    writer.write(make_old_message("b"))
    assert verify_day().fault is None
    archive_and_drop_day(archive)
    assert DaySeal.objects.count() == 3
    assert verify_day().fault is None
    with connect_plainly() as plain:
        restore_day(plain, archive, ROOT, OLD)
    assert verify_day().fault is None


def test_verify_reports_restored_day_that_lost_its_rows(
    writer: Ingested, archive: Archive, plain: Connection
) -> None:
    archive_and_drop_day(archive)
    restore_day(plain, archive, ROOT, OLD)
    plain.execute(f"DELETE FROM {NAME}")
    assert verify_day().fault == "rows from row 1 on are missing, from a v7, 3 rows fewer"


def test_verify_reports_row_that_was_forged_before_archiving(
    writer: Ingested, archive: Archive
) -> None:
    writer.write(make_old_message("late"))
    execute(f"UPDATE {TABLE} SET data = '{{\"rate\": 0}}' WHERE id = 'a'")
    archive_and_drop_day(archive, accept_changed=OLD)
    assert verify_day().fault == "the archived rows are not the sealed rows"
    assert DaySeal.objects.count() == 1


def test_verify_accepts_dropped_day_only_when_maintain_dropped_it(
    writer: Ingested, plain: Connection
) -> None:
    writer.write(make_old_message("late"))
    archive_and_drop_day(None)
    assert (verify_day().fault, verify_day().note) == (None, "dropped, not archived")
    # The day is created again, first empty as after a longer retention, then with a row.
    days.create_partition(plain, TABLE, OLD)
    assert (verify_day().fault, verify_day().note) == (None, "dropped, not archived")
    writer.write(make_old_message("again"))
    assert (verify_day().fault, verify_day().late) == (None, 1)
    seal_day(plain, ROOT, OLD)
    plain.execute(f"DROP TABLE {NAME}")
    assert verify_day().fault == "rows from row 1 on are missing, from again v7, 1 row fewer"


def test_notes_of_late_rows_are_deleted_with_the_day(
    writer: Ingested, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = msgspec.structs.replace(settings.ANNALS, retention_days=10)
    monkeypatch.setattr(settings, "ANNALS", changed)
    writer.write(make_old_message("late"))
    archive_and_drop_day(archive)
    assert run_partitions("maintain")[0] == 0
    assert len(list_late_rows()) == 1
    ArchivedDay.objects.all().delete()
    assert run_partitions("maintain")[0] == 0
    assert list_late_rows() == []
