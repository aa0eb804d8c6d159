"""A change of one byte in a sealed day is found, and so is a changed or removed seal."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings
from psycopg import sql

from annals.access.models import JournalEntry
from annals.configuration import env
from history.kinds.entities import BY_NAME
from history.models import ArchivedDay, DaySeal
from history.retention.archive.store import ArchiveStore
from history.retention.archive.write import DayArchiver
from history.retention.seals.seal import GENESIS, seal_day
from history.retention.seals.verification import find_chain_fault, load_newest_seal, verify_days
from history.store.days import canonical, days
from history.store.days.canonical import Connection
from tests.db import simulated
from tests.db.partitioned import (
    TABLE,
    connect_plainly,
    execute_plans,
    get_day,
    insert_version,
    make_policy,
    record_all_topics_as_read,
    run_partitions,
)

pytestmark = pytest.mark.usefixtures("tables")

PRODUCT = BY_NAME["product-instance"]
OLD = get_day(-5)
NAME = days.build_partition_name(TABLE, OLD)
ROWS = 950


@pytest.fixture
def filled(tables: None, monkeypatch: pytest.MonkeyPatch, plain: Connection) -> None:
    """Store a day of ROWS rows: ten versions of each of the ids id000 to id094.

    A seal of this day has one digest for every 100 rows.
    """
    monkeypatch.setattr(canonical, "RANGE_ROWS", 100)
    days.create_partition(plain, TABLE, OLD)
    plain.execute(
        f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, author, type)"
        " SELECT 'id' || lpad((n / 10)::text, 3, '0'), n %% 10,"
        " jsonb_build_object('rate', n::numeric / 7), %s::timestamptz + n * interval '1 s',"
        " 'client', 'somebody', 1 FROM generate_series(0, %s) n",
        [datetime(OLD.year, OLD.month, OLD.day, tzinfo=UTC), ROWS - 1],
    )


def find_faults() -> list[str | None]:
    with connect_plainly() as plain:
        return [verdict.fault for verdict in verify_days(plain, PRODUCT)]


def change_one_row(statement: str) -> None:
    with connect_plainly() as plain:
        assert plain.execute(statement).rowcount == 1


@pytest.fixture
def sealed(filled: None, plain: Connection) -> DaySeal:
    return seal_day(plain, PRODUCT, OLD)


def test_verify_finds_no_fault_in_unchanged_sealed_day(sealed: DaySeal) -> None:
    assert (sealed.rows, len(sealed.ranges), sealed.previous) == (ROWS, 10, GENESIS)
    assert find_faults() == [None]
    assert find_chain_fault(PRODUCT) is None
    assert load_newest_seal(PRODUCT) == sealed.seal


@pytest.mark.parametrize(
    "assignment",
    [
        "author = 'somebodz'",
        "author = NULL",
        "client_id = 'clienT'",
        "type = 2",
        f"updated_at = timestamptz '{OLD} 00:07:07.000001+00'",
        "data = jsonb_set(data, '{rate}', (data->>'rate' || '1')::jsonb)",
        "data = data || '{\"x\": null}'",
    ],
)
def test_verify_names_range_of_rows_in_which_a_byte_changed(
    sealed: DaySeal, assignment: str
) -> None:
    change_one_row(f"UPDATE {TABLE} SET {assignment} WHERE id = 'id042' AND version = 7")
    assert find_faults() == ["rows 401 to 500 differ, between id040 v0 and id049 v9"]


def test_verify_finds_deleted_and_added_rows(sealed: DaySeal) -> None:
    change_one_row(f"DELETE FROM {TABLE} WHERE id = 'id093' AND version = 9")
    assert find_faults() == ["rows 901 to 950 differ, between id090 v0 and id094 v9, 1 row fewer"]
    change_one_row(
        f"INSERT INTO {TABLE} SELECT 'id000', 0, data, updated_at + interval '1 ms', client_id,"
        f" author, type FROM {TABLE} WHERE id = 'id001' AND version = 0".replace(
            "SELECT", "(id, version, data, updated_at, client_id, author, type) SELECT", 1
        )
    )
    assert find_faults() == ["rows 1 to 100 differ, between id000 v0 and id009 v9"]


def test_verify_reports_that_last_rows_of_day_are_missing(
    sealed: DaySeal, plain: Connection
) -> None:
    plain.execute(f"DELETE FROM {TABLE} WHERE id >= 'id080'")
    assert find_faults() == ["rows from row 801 on are missing, from id080 v0, 150 rows fewer"]


def test_verify_reports_new_rows_after_the_last_sealed_row(filled: None, plain: Connection) -> None:
    plain.execute(f"DELETE FROM {TABLE} WHERE id >= 'id090'")
    seal_day(plain, PRODUCT, OLD)
    noon = datetime(OLD.year, OLD.month, OLD.day, 12, tzinfo=UTC)
    insert_version(plain, noon, "id095")
    assert find_faults() == ["rows after row 900 are new, from id095 v1, 1 row more"]


def test_chain_of_seals_has_both_seals_of_day_that_was_sealed_again(sealed: DaySeal) -> None:
    change_one_row(f"DELETE FROM {TABLE} WHERE id = 'id000' AND version = 0")
    with connect_plainly() as plain:
        again = seal_day(plain, PRODUCT, OLD)
    assert again.previous == sealed.seal
    assert find_faults() == [None]
    assert find_chain_fault(PRODUCT) is None
    assert DaySeal.objects.count() == 2


@pytest.mark.parametrize("field, value", [("rows", 1), ("digest", "f" * 64), ("day", get_day(-6))])
def test_changed_seal_breaks_chain(sealed: DaySeal, field: str, value: object) -> None:
    DaySeal.objects.update(**{field: value})
    assert "does not match" in str(find_chain_fault(PRODUCT))


def test_removed_seal_breaks_chain(sealed: DaySeal, plain: Connection) -> None:
    seal_day(plain, PRODUCT, OLD)
    sealed.delete()
    assert "is missing" in str(find_chain_fault(PRODUCT))


def test_seal_does_not_depend_on_settings_of_the_session(filled: None) -> None:
    with connect_plainly() as plain:
        first = seal_day(plain, PRODUCT, OLD)
    with connect_plainly(
        options="-c timezone=Asia/Tokyo -c datestyle=German -c extra_float_digits=0"
    ) as plain:
        assert seal_day(plain, PRODUCT, OLD).digest == first.digest


@pytest.mark.plain_only("on a cluster the tables of the coordinator have no rows")
def test_sealing_a_day_freezes_its_rows_in_postgresql(sealed: DaySeal, plain: Connection) -> None:
    """Every row is older than relfrozenxid, and every page of the table is marked all-visible."""
    query = sql.SQL(
        "SELECT count(*) > 0, bool_and(age(day.xmin) > age(relfrozenxid)),"
        " bool_and(relallvisible = relpages) FROM {} day, pg_class WHERE relname = %s"
    )
    row = plain.execute(query.format(sql.Identifier(NAME)), [NAME]).fetchone()
    assert row == (True, True, True)


def test_verify_compares_seal_of_dropped_day_with_its_archive(
    sealed: DaySeal, tmp_path: Path
) -> None:
    execute_plans(make_policy(), archiver=DayArchiver(ArchiveStore(str(tmp_path))))
    archived_day = ArchivedDay.objects.get()
    assert (archived_day.digest, archived_day.rows) == (sealed.digest, sealed.rows)
    with connect_plainly() as plain:
        (verdict,) = verify_days(plain, PRODUCT, OLD)
        assert (verdict.fault, verdict.note) == (None, "archived; the digests are equal")
        ArchivedDay.objects.update(digest="0" * 64)
        assert next(verify_days(plain, PRODUCT)).fault is not None
        ArchivedDay.objects.all().delete()
        assert next(verify_days(plain, PRODUCT)).note == "dropped, not archived"


def test_partitions_command_seals_and_verifies(
    monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    variables = {"ANNALS_RETENTION_DAYS": "9", "ANNALS_AHEAD_DAYS": "1", "ANNALS_SEAL_DAYS": "5"}
    monkeypatch.setattr(settings, "ANNALS", env.read_settings(variables))
    record_all_topics_as_read()
    old = datetime.now(UTC).date() - timedelta(days=7)
    simulated.load_simulated_day(plain, old, applications=20)
    code, out, _ = run_partitions("maintain")
    assert (code, "sealed 5" in out) == (0, True)
    assert "sealed 0" in run_partitions("maintain")[1]
    code, out, _ = run_partitions("verify", "--json")
    answer = json.loads(out)
    assert (code, answer["ok"], len(answer["days"])) == (0, True, len(simulated.TABLES))
    change_one_row(
        f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
        f" VALUES ('a', 1, '{{}}', '{old} 12:00+00', 'c', 1)"
    )
    code, out, err = run_partitions("verify", str(old), "--entity", "product-instance")
    assert code == 1
    assert "1 row more" in out
    assert "1 row more" not in err
    code, out, err = run_partitions("verify", "2001-01-01")
    assert (code, out, "2001-01-01 has no seal in" in err) == (2, "", True)
    # The row is not a noted late row. A new seal would hide the change, so it is refused.
    code, out, err = run_partitions("seal", str(old), "--entity", "product-instance")
    assert (code, "not as it was sealed" in err) == (2, True)
    change_one_row(f"DELETE FROM {TABLE} WHERE client_id = 'c'")
    code, out, _ = run_partitions("seal", str(old), "--entity", "product-instance")
    assert (code, "Sealed product_instance_aud" in out) == (0, True)
    code, out, _ = run_partitions("verify")
    assert (code, f"chain whole, newest seal {load_newest_seal(PRODUCT)}" in out) == (0, True)
    summary = "access_journal: 0 days read, 0 differ, 0 late rows; no day has a seal yet"
    assert summary in out.splitlines()
    assert run_partitions("seal", "2001-01-01")[0] == 2


@pytest.fixture
def make_changed_day(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], date]:
    """Return a function that makes a day that was sealed and then changed, and is older than
    retention.

    The function gets the path of an archive, or None.
    """

    def make_day(archive: str | None) -> date:
        variables = {
            "ANNALS_RETENTION_DAYS": "9",
            "ANNALS_AHEAD_DAYS": "1",
            "ANNALS_SEAL_DAYS": "5",
        }
        variables["ANNALS_PACK_AFTER_DAYS"] = "0"
        if archive is not None:
            variables["ANNALS_ARCHIVE_URL"] = archive
        monkeypatch.setattr(settings, "ANNALS", env.read_settings(variables))
        record_all_topics_as_read()
        old = datetime.now(UTC).date() - timedelta(days=7)
        name = days.build_partition_name(TABLE, old)
        with connect_plainly() as plain:
            simulated.load_simulated_day(plain, old, applications=20)
        assert "sealed 5" in run_partitions("maintain")[1]
        first_row = f"SELECT id, version, updated_at FROM {name} ORDER BY 1, 2, 3 LIMIT 1"
        change_one_row(
            f"UPDATE {name} SET data = '{{}}' WHERE (id, version, updated_at) IN ({first_row})"
        )
        shorter = env.read_settings(variables | {"ANNALS_RETENTION_DAYS": "5"})
        monkeypatch.setattr(settings, "ANNALS", shorter)
        return old

    return make_day


def test_changed_sealed_day_is_neither_dropped_nor_resealed(
    make_changed_day: Callable[[str | None], date], tmp_path: Path
) -> None:
    """After an operator accepts the change, verification still reports it, also after archive and
    restore."""
    old = make_changed_day(str(tmp_path))
    name = days.build_partition_name(TABLE, old)
    code, out, _ = run_partitions("maintain")
    assert (code, f"{name}: ChangedError" in out or "not as it was sealed" in out) == (2, True)
    accepted = ("maintain", "--accept-changed", str(old))
    assert run_partitions(*accepted)[0] == 1
    code, out, _ = run_partitions(*accepted, "--why", "known to the auditors")
    assert (code, "dropped 1" in out) == (0, True)
    assert JournalEntry.objects.filter(reason="known to the auditors").count() == 1
    for _ in range(2):
        code, out, _ = run_partitions("verify", str(old), "--entity", "product-instance")
        assert (code, "the archived rows are not the sealed rows" in out) == (1, True)
        assert run_partitions("restore", str(old), "--entity", "product-instance")[0] == 0
        code, _, err = run_partitions("seal", str(old), "--entity", "product-instance")
        assert (code, "not as it was sealed" in err) == (2, True)
        assert run_partitions("release", str(old), "--entity", "product-instance")[0] == 0
        assert run_partitions("maintain")[0] == 2
        assert run_partitions(*accepted, "--why", "again")[0] == 0
    assert run_partitions("forget", str(old), "--why", "x", "--entity", "product-instance")[0] == 0
    code, out, _ = run_partitions("verify", str(old), "--entity", "product-instance")
    assert (code, "fewer" in out or "differ" in out) == (1, True)


def test_verify_still_reports_accepted_change_after_the_day_was_dropped_without_archive(
    make_changed_day: Callable[[str | None], date],
) -> None:
    """An operator accepts the change of the sealed day with `maintain --accept-changed`."""
    old = make_changed_day(None)
    assert run_partitions("maintain", "--accept-changed", str(old), "--why", "known")[0] == 0
    assert run_partitions("verify", str(old), "--entity", "product-instance")[0] == 1
