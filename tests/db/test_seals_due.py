"""`partitions maintain` seals a finished day that has rows and no unread or open messages."""

import json
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from annals.configuration import env
from annals.management.partitions import nightly
from history.common import clock
from history.kinds.entities import BY_NAME, CHILDREN, ENTITIES
from history.kinds.kind import DayRows
from history.models import DaySeal, MaintainRun
from history.retention import catalog, runs
from history.retention.run_lock import RUN_LOCK
from history.retention.runs import StepResult
from history.retention.seals import seal
from history.retention.seals.seal import seal_day
from history.store.days import days
from history.store.days.canonical import Connection
from ingest.models import Ledger, Quarantined
from tests.db.ingest_rows import create_quarantined
from tests.db.partitioned import (
    TABLE,
    connect_plainly,
    count_advisory_locks,
    insert_version,
    record_all_topics_as_read,
    record_topic_as_read,
    run_partitions,
)

pytestmark = pytest.mark.usefixtures("tables")

TOPIC, MIGRATION = BY_NAME["product-instance"].topics
TOO_LARGE = "ProgramLimitExceeded: SQLSTATE 54000: string buffer exceeds"
TOPICS = [topic for entity in ENTITIES for topic in entity.topics]


@pytest.fixture(autouse=True)
def short_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep nine days. A day is finished five days after its end."""
    variables = {"ANNALS_RETENTION_DAYS": "9", "ANNALS_AHEAD_DAYS": "1", "ANNALS_SEAL_DAYS": "5"}
    variables["ANNALS_PACK_AFTER_DAYS"] = "0"
    monkeypatch.setattr(settings, "ANNALS", env.read_settings(variables))


def get_noon_ago(number: int) -> datetime:
    """Return noon of the UTC day `number` days before today."""
    return clock.now().replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=number)


def store_application_on_days(*days_ago: int) -> None:
    """Store one application on each of these UTC days: 0 is today, 1 is yesterday."""
    with connect_plainly() as plain:
        for number in days_ago:
            days.create_partition(plain, TABLE, get_noon_ago(number).date())
            insert_version(plain, get_noon_ago(number))


def list_sealed_days() -> list[Any]:
    return sorted(DaySeal.objects.values_list("day", flat=True))


def test_maintain_does_not_seal_empty_days_and_seals_day_filled_by_a_backfill() -> None:
    assert run_partitions("maintain")[0] == 0
    assert list_sealed_days() == []
    record_all_topics_as_read()
    assert run_partitions("maintain")[0] == 0  # everything is read, and the days have no rows
    store_application_on_days(8)
    assert run_partitions("verify")[0] == 0
    assert run_partitions("maintain")[0] == 0
    assert list_sealed_days() == [get_noon_ago(8).date()]
    assert run_partitions("verify")[0] == 0


def test_only_finished_days_with_rows_and_without_a_seal_are_sealed() -> None:
    record_all_topics_as_read()
    store_application_on_days(8, 6, 5, 0)
    code, out, _ = run_partitions("maintain", "--json")
    assert code == 0
    assert json.loads(out)["sealed"] == [
        days.build_partition_name(TABLE, get_noon_ago(number).date()) for number in (8, 6)
    ]
    assert list_sealed_days() == [get_noon_ago(8).date(), get_noon_ago(6).date()]
    assert json.loads(run_partitions("maintain", "--json")[1])["sealed"] == []


def test_day_with_only_dead_rows_is_not_sealed() -> None:
    record_all_topics_as_read()
    with connect_plainly() as plain:
        for number in (8, 7):
            days.create_partition(plain, TABLE, get_noon_ago(number).date())
        with plain.transaction(force_rollback=True):  # dead rows, as a killed consumer leaves them
            insert_version(plain, get_noon_ago(8))
        insert_version(plain, get_noon_ago(7))
        plain.execute(f"DELETE FROM {TABLE}")
    for _ in range(2):
        code, out, err = run_partitions("maintain")
        assert (code, err, "broken 0" in out, list_sealed_days()) == (0, "", True, [])
    store_application_on_days(8)
    assert run_partitions("maintain")[0] == 0
    assert list_sealed_days() == [get_noon_ago(8).date()]


def test_no_day_is_sealed_when_setting_seal_days_is_0(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"ANNALS_RETENTION_DAYS": "9", "ANNALS_AHEAD_DAYS": "1", "ANNALS_SEAL_DAYS": "0"}
    monkeypatch.setattr(settings, "ANNALS", env.read_settings(variables))
    record_all_topics_as_read()
    store_application_on_days(8)
    assert run_partitions("maintain")[0] == 0
    assert list_sealed_days() == []


@pytest.mark.parametrize(
    "migration, reason",
    [
        (None, f"{MIGRATION} was never read"),
        ({"high_watermark": 12}, f"2 messages of {MIGRATION}[0] not read yet"),
        ({"high_watermark": None}, f"the end of {MIGRATION}[0] is not known"),
        ({"stored": 9}, f"the ledger of {MIGRATION}[0] does not add up"),
    ],
)
def test_day_is_not_sealed_while_messages_for_it_may_be_unread(
    migration: dict[str, Any] | None, reason: str
) -> None:
    for topic in TOPICS:
        if topic != MIGRATION:
            record_topic_as_read(topic)
    if migration is not None:
        record_topic_as_read(MIGRATION, newest_timestamp=clock.now(), **migration)
    store_application_on_days(8)
    code, out, _ = run_partitions("maintain")
    assert (code, list_sealed_days()) == (0, [])
    assert f"{TABLE}: 1 day not sealed: {reason}" in out
    Ledger.objects.filter(topic=MIGRATION).delete()
    record_topic_as_read(MIGRATION)
    assert run_partitions("maintain")[0] == 0
    assert list_sealed_days() == [get_noon_ago(8).date()]


def test_day_with_quarantined_message_is_not_sealed() -> None:
    record_all_topics_as_read()
    store_application_on_days(8, 7)
    create_quarantined(day=get_noon_ago(8).date(), status=Quarantined.Status.FAILED)
    # --force drops days that left retention, but never forces a seal.
    assert run_partitions("maintain", "--force")[0] == 0
    assert list_sealed_days() == [get_noon_ago(7).date()]


def test_seal_command_refuses_empty_or_unfinished_day(plain: Connection) -> None:
    days.create_partition(plain, TABLE, get_noon_ago(7).date())
    store_application_on_days(1, 0)
    for number, reason in ((7, "has no rows"), (1, "sealed before"), (0, "sealed before")):
        code, _, err = run_partitions(
            "seal", str(get_noon_ago(number).date()), "--entity", "product-instance"
        )
        assert (code, reason in err) == (2, True)
    assert list_sealed_days() == []


def make_document_too_large(number: int) -> None:
    """Replace the document of a day by one with a text above PostgreSQL's limit of 1 GB."""
    with connect_plainly() as plain:
        changed = plain.execute(
            f"UPDATE {TABLE} SET data = ('[' || repeat('1e131071,', 9000) || '1]')::jsonb"
            " WHERE updated_at = %s",
            [get_noon_ago(number)],
        )
        assert changed.rowcount == 1


def test_day_with_document_too_large_to_read_does_not_stop_other_days(plain: Connection) -> None:
    record_all_topics_as_read()
    store_application_on_days(8, 7, 6)
    make_document_too_large(7)
    code, out, err = run_partitions("maintain")
    name = days.build_partition_name(TABLE, get_noon_ago(7).date())
    assert (code, "sealed 2" in out, "broken 1" in out) == (2, True, True)
    assert f"{name}: {TOO_LARGE} maximum allowed length" in out
    assert list_sealed_days() == [get_noon_ago(8).date(), get_noon_ago(6).date()]
    make_document_too_large(8)
    code, out, err = run_partitions("verify", "--entity", "product-instance")
    assert (code, "2 days read, 1 differs" in out) == (1, True)
    assert f"{TABLE} {get_noon_ago(8).date()}: cannot be read: {TOO_LARGE}" in out
    for entity in CHILDREN:
        days.create_partition(plain, entity.table, get_noon_ago(7).date())
        plain.execute(
            f"INSERT INTO {entity.table} (id, version, data, updated_at, client_id, type,"
            " product_instance_id) VALUES ('a', 1, '{}', %s, 'test', 1, 'a')",
            [get_noon_ago(7)],
        )
    code, out, err = run_partitions("seal", str(get_noon_ago(7).date()))
    assert (code, out.count("Sealed")) == (2, len(CHILDREN))
    assert err.startswith("product-instance: PostgreSQL at ")
    assert TOO_LARGE in err


def test_lost_connection_while_one_day_is_sealed_does_not_stop_other_days(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection is lost as if PostgreSQL had killed its backend because of one document."""

    def seal_or_lose_connection(plain: Connection, rows: DayRows, day: date) -> DaySeal:
        if day == get_noon_ago(8).date():
            plain.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return seal_day(plain, rows, day)

    monkeypatch.setattr(seal, "seal_day", seal_or_lose_connection)
    record_all_topics_as_read()
    store_application_on_days(8, 7)
    code, out, _ = run_partitions("maintain", "--json")
    assert code == 2
    answer = json.loads(out)
    [(name, reason)] = answer["broken"]
    assert name == days.build_partition_name(TABLE, get_noon_ago(8).date())
    assert "terminating connection" in reason
    assert answer["sealed"] == [days.build_partition_name(TABLE, get_noon_ago(7).date())]
    assert list_sealed_days() == [get_noon_ago(7).date()]
    assert MaintainRun.objects.get().exit_code == 2
    assert count_advisory_locks() == 0


def test_run_lock_is_held_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the lock were free between two steps, a second run could take the lock. The first run
    would then end without sealing the days and recording its work."""
    record_all_topics_as_read()
    store_application_on_days(8)
    attempts = []
    with connect_plainly() as other_session:

        def try_lock(_: nightly.NightContext) -> StepResult:
            attempts.append(
                other_session.execute("SELECT pg_try_advisory_lock(%s)", [RUN_LOCK]).fetchone()
            )
            return StepResult()

        steps = nightly.STEPS
        probed_steps = tuple(probed for step in steps for probed in (try_lock, step))
        monkeypatch.setattr(nightly, "STEPS", probed_steps)
        code, _, errors = run_partitions("maintain")
    assert (code, errors) == (0, "")
    assert attempts == [(False,)] * len(steps)
    assert list_sealed_days() == [get_noon_ago(8).date()]


def test_night_reads_list_of_partitions_again_only_after_it_created_or_dropped_days(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record_all_topics_as_read()
    store_application_on_days(8)
    read, reads = catalog.read_partitions, []

    def count_read(*arguments: Any) -> list[catalog.Partition]:
        reads.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(catalog, "read_partitions", count_read)
    assert run_partitions("maintain").code == 0
    assert len(reads) == 2
    assert run_partitions("maintain").code == 0
    assert len(reads) == 3


def test_maintain_completes_all_steps_when_connection_is_lost_between_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record_all_topics_as_read()
    store_application_on_days(8)

    def lose_connection(_: nightly.NightContext) -> StepResult:
        connection.connection.close()
        return StepResult()

    first, *other_steps = nightly.STEPS
    monkeypatch.setattr(nightly, "STEPS", (first, lose_connection, *other_steps))
    assert run_partitions("maintain").code == 0
    assert list_sealed_days() == [get_noon_ago(8).date()]
    assert count_advisory_locks() == 0


def test_step_that_fails_is_named_and_does_not_stop_other_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record_all_topics_as_read()
    store_application_on_days(8)

    def ask_missing_table(_: nightly.NightContext) -> StepResult:
        connection.connection.execute("SELECT FROM missing")
        return StepResult()

    first, *other_steps = nightly.STEPS
    monkeypatch.setattr(nightly, "STEPS", (first, ask_missing_table, *other_steps))
    code, out, _ = run_partitions("maintain")
    assert code == 2
    assert (
        'ask missing table: UndefinedTable: SQLSTATE 42P01: relation "missing" does not exist'
        in out
    )
    assert list_sealed_days() == [get_noon_ago(8).date()]
    latest = runs.load_latest_run()
    assert latest is not None
    assert (latest.exit_code, latest.broken) == (2, 1)
