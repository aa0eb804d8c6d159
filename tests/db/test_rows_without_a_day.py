"""Rows of days that are older than the window or that do not have a table.

A row that is older than the window is stored if the table of its day still exists, and otherwise
counts as expired. If the table of one day cannot be created, rows of other days are stored.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from itertools import chain, repeat
from typing import Any

import psycopg
import pytest
from django.core.management import call_command

from history.common import clock
from history.kinds.entities import ROOT
from history.retention.plan import SPARE_DAYS, PartitionPolicy
from history.store.days import days
from history.store.days.canonical import Connection
from history.store.days.days import DayState
from history.store.days.window import Window
from ingest.completeness.holds import find_unsettled_days
from ingest.store import missing_days, slow_path
from ingest.store.session import open_connection
from ingest.store.sqlstate import ErrorCause, classify_error
from ingest.store.transaction import BatchWriter
from tests.db.as_role import as_consumer
from tests.db.ingested import (
    Ingested,
    find_faults,
    list_ids,
    list_quarantined,
    query,
    read_counts,
    retry_quarantined,
)
from tests.db.partitioned import execute_plans, leave_half_dropped
from tests.messages import NOW, SOURCE, WINDOW, make_message, make_value

TODAY = NOW.date()
OLDEST = WINDOW.oldest
OLD = OLDEST - timedelta(days=1)
TOMORROW = Window.at(NOW + timedelta(days=1), 90, 14)


def make_noon_message(day: date, **fields: Any) -> bytes:
    """Return the message of a version that is dated at noon of a day."""
    return make_value(updatedAt=f"{day}T12:00:00", **fields)


@pytest.fixture
def plain(ingested: Ingested) -> Iterator[Connection]:
    with open_connection("test") as connection:
        yield connection


def find_state(plain: Connection, day: date) -> DayState:
    return days.locate_day(plain, ROOT.table, day).state


def test_row_older_than_the_window_is_stored_while_its_day_exists(
    ingested: Ingested, plain: Connection
) -> None:
    days.create_partition(plain, ROOT.table, OLD)
    removed_day = OLD - timedelta(days=1)
    ingested.write(
        make_noon_message(OLD, id="late"),
        make_noon_message(removed_day, id="gone"),
        make_noon_message(TODAY, id="today"),
    )
    assert list_ids() == ["late", "today"]
    assert read_counts() == {"next_offset": 3, "read": 3, "stored": 2, "expired": 1}
    assert find_state(plain, removed_day) is DayState.ABSENT
    assert find_faults() == []


def test_late_row_is_found_by_its_business_key(ingested: Ingested, plain: Connection) -> None:
    days.create_partition(plain, ROOT.table, OLD)
    ingested.write(make_noon_message(OLD, id="late", data={"number": "7"}))
    assert query("SELECT id, day FROM search_key WHERE value = '7'") == [{"id": "late", "day": OLD}]


def test_late_row_that_is_read_again_counts_as_repeated(
    ingested: Ingested, plain: Connection
) -> None:
    days.create_partition(plain, ROOT.table, OLD)
    ingested.write(make_noon_message(OLD, id="a"), make_noon_message(OLD, id="a"))
    ingested.write(make_noon_message(OLD, id="a"), b"bad")
    assert read_counts() == {
        "next_offset": 4,
        "read": 4,
        "stored": 1,
        "repeated": 2,
        "quarantined": 1,
    }
    assert find_faults() == []


@pytest.mark.parametrize("exists", [True, False])
def test_batch_decoded_before_midnight_does_not_recreate_dropped_day(
    ingested: Ingested, plain: Connection, exists: bool
) -> None:
    """At midnight maintain drops the oldest day. The batch must not create this day again."""
    for day in (OLDEST, TODAY):
        days.create_partition(plain, ROOT.table, day)
    ingested.writer.close()
    ingested.writer = BatchWriter(open_connection, lambda _: TOMORROW)
    batch = ingested.make_batch(
        make_noon_message(OLDEST, id="oldest"),
        make_noon_message(TODAY, id="today"),
        make_noon_message(OLDEST, id="second"),
    )
    if not exists:
        days.drop_partition(plain, ROOT.table, OLDEST)
    ingested.store(batch)
    stored = ["oldest", "second", "today"] if exists else ["today"]
    assert list_ids() == stored
    assert read_counts()["stored"] == len(stored)
    assert read_counts().get("expired", 0) == 3 - len(stored)
    assert find_state(plain, OLDEST) is (DayState.ATTACHED if exists else DayState.ABSENT)
    assert find_faults() == []


def test_late_row_counts_as_expired_when_its_day_is_dropped_before_the_write(
    ingested: Ingested, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    days.create_partition(plain, ROOT.table, OLD)
    real = missing_days.admit_expired

    def admit_and_drop(*arguments: Any) -> None:
        real(*arguments)
        days.drop_partition(plain, ROOT.table, OLD)

    monkeypatch.setattr(missing_days, "admit_expired", admit_and_drop)
    ingested.write(make_noon_message(OLD, id="late"), make_noon_message(TODAY, id="today"))
    assert list_ids() == ["today"]
    assert read_counts() == {"next_offset": 2, "read": 2, "stored": 1, "expired": 1}
    assert find_faults() == []


@pytest.mark.plain_only("only DETACH CONCURRENTLY leaves a day half dropped")
def test_message_that_differs_from_stored_version_expires_when_day_is_detached_during_the_write(
    ingested: Ingested, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored version, with which the message would be compared, is no longer in the table."""
    days.create_partition(plain, ROOT.table, OLD)
    ingested.write(make_noon_message(OLD, id="late"))
    real = slow_path.split_new_and_known

    def split_and_detach(*arguments: Any) -> Any:
        monkeypatch.setattr(slow_path, "split_new_and_known", real)
        rows = real(*arguments)
        with pytest.raises(psycopg.errors.LockNotAvailable):  # the writer itself reads the day
            days.drop_partition(plain, ROOT.table, OLD, wait_s=0.2)
        return rows

    monkeypatch.setattr(slow_path, "split_new_and_known", split_and_detach)
    written = ingested.write(make_noon_message(OLD, id="late", data={"other": 1}))
    assert (written.repeated[SOURCE], written.refused) == (0, ())
    assert read_counts() == {"next_offset": 2, "read": 2, "stored": 1, "expired": 1}


@pytest.mark.plain_only("only DETACH CONCURRENTLY leaves a day half dropped")
def test_writer_does_not_wait_for_day_that_is_being_dropped(
    ingested: Ingested, plain: Connection
) -> None:
    """A long transaction can keep the detaching of a day pending for hours."""
    for day in (OLDEST, TODAY):
        days.create_partition(plain, ROOT.table, day)
    ingested.writer.close()
    ingested.writer = BatchWriter(open_connection, lambda _: TOMORROW)
    batch = ingested.make_batch(
        make_noon_message(OLDEST, id="oldest"), make_noon_message(TODAY, id="today")
    )
    with leave_half_dropped(plain, OLDEST):
        assert find_state(plain, OLDEST) is DayState.PENDING
        ingested.store(batch)
        ingested.write(make_noon_message(OLDEST, id="later"))
    assert list_ids() == ["today"]
    assert read_counts() == {"next_offset": 3, "read": 3, "stored": 1, "expired": 2}


def shift_window(number: int) -> Window:
    return Window.at(NOW + timedelta(days=number), 90, 14)


@pytest.mark.parametrize("exists", [True, False])
def test_retry_stores_row_only_while_its_day_exists(
    ingested: Ingested, plain: Connection, exists: bool
) -> None:
    ingested.write(make_noon_message(TODAY, id="a"), window=shift_window(-60))
    assert [item["reason"] for item in list_quarantined()] == ["in_the_future"]
    if exists:
        days.create_partition(plain, ROOT.table, TODAY)
    assert retry_quarantined(plain, lambda: shift_window(200)) == {
        "stored" if exists else "expired": 1
    }
    assert list_ids() == (["a"] if exists else [])
    assert find_faults() == []


def test_retry_that_lasts_past_midnight_does_not_create_a_day_that_has_expired(
    ingested: Ingested, plain: Connection
) -> None:
    ingested.write(make_noon_message(TODAY, id="a"), window=shift_window(-60))
    windows = chain([shift_window(90)], repeat(shift_window(91)))
    assert retry_quarantined(plain, lambda: next(windows)) == {"expired": 1}
    assert find_state(plain, TODAY) is DayState.ABSENT


@contextmanager
def restrict_rights(ingested: Ingested) -> Iterator[Connection]:
    """Give the writer, and the yielded connection, only the rights of the consumer."""
    call_command("grants", apply=True)
    ingested.writer.close()
    ingested.writer = BatchWriter(as_consumer)
    with as_consumer() as connection:
        yield connection


@pytest.mark.plain_only(
    "Citus would log in to its nodes as the role of SET ROLE, which is not a login"
)
@pytest.mark.django_db(transaction=True)
def test_rows_of_other_days_are_stored_when_consumer_may_not_create_a_missing_day(
    ingested: Ingested, plain: Connection
) -> None:
    missing = TODAY + timedelta(days=14)
    days.create_partition(plain, ROOT.table, TODAY)
    with restrict_rights(ingested) as consumer:
        written = ingested.write(
            make_noon_message(TODAY, id="a"),
            make_noon_message(missing, id="ahead"),
            make_noon_message(TODAY, id="a"),
            make_noon_message(TODAY, id="b"),
        )
        assert [reject.message.offset for reject in written.refused] == [1]
        [row] = list_quarantined()
        assert (row["reason"], row["offset"]) == ("no_partition", 1)
        assert days.build_partition_name(ROOT.table, missing) in row["detail"]
        assert list_ids() == ["a", "b"]
        assert read_counts() == {
            "next_offset": 4,
            "read": 4,
            "stored": 2,
            "repeated": 1,
            "quarantined": 1,
        }
        assert retry_quarantined(consumer) == {"retrying": 1}
        days.create_partition(plain, ROOT.table, missing)
        assert retry_quarantined(consumer) == {"stored": 1}
    assert list_ids() == ["a", "ahead", "b"]
    assert find_faults() == []


@pytest.mark.plain_only(
    "Citus would log in to its nodes as the role of SET ROLE, which is not a login"
)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [1, 0, -1, -89])
def test_consumer_waits_for_missing_day_that_only_maintain_may_create(
    ingested: Ingested, plain: Connection, number: int
) -> None:
    """The message is valid, so it is not quarantined. The offset in the ledger stays the same."""
    missing, window_of_fast_clock = TODAY + timedelta(days=number), TODAY + timedelta(days=14)
    with restrict_rights(ingested):
        batch = ingested.make_batch(
            make_noon_message(missing, id="a"),
            make_noon_message(window_of_fast_clock, id="ahead"),
            b"bad",
        )
        for _ in range(2):
            with pytest.raises(missing_days.MissingDayError, match="partitions maintain") as raised:
                ingested.store(batch)
            assert days.build_partition_name(ROOT.table, missing) in str(raised.value)
            assert classify_error(raised.value) is ErrorCause.INSTALLATION
            assert (list_ids(), read_counts(), list_quarantined()) == ([], {}, [])
        days.create_partition(plain, ROOT.table, missing)
        ingested.store(batch)
    assert list_ids() == ["a"]
    assert [item["reason"] for item in list_quarantined()] == ["no_partition", "not_json"]
    assert read_counts() == {"next_offset": 3, "read": 3, "stored": 1, "quarantined": 2}
    assert find_faults() == []


@pytest.mark.plain_only(
    "Citus would log in to its nodes as the role of SET ROLE, which is not a login"
)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("passed", [1, SPARE_DAYS])
def test_newest_accepted_day_exists_even_when_maintain_did_not_run_recently(
    ingested: Ingested, passed: int
) -> None:
    execute_plans(PartitionPolicy.at(clock.now()))
    newest = shift_window(passed).newest
    with restrict_rights(ingested):
        ingested.write(
            make_noon_message(newest, id="newest"),
            make_noon_message(TODAY, id="today"),
            window=shift_window(passed),
        )
    assert list_ids() == ["newest", "today"]
    assert list_quarantined() == []


def spoil_columns(plain: Connection, name: str) -> None:
    plain.execute(f"ALTER TABLE {ROOT.table} DETACH PARTITION {name}")
    plain.execute(f"ALTER TABLE {name} DROP COLUMN author")


def spoil_bounds(plain: Connection, name: str) -> None:
    plain.execute(f"DROP TABLE {name}")
    plain.execute(
        f"CREATE TABLE {name} PARTITION OF {ROOT.table}"
        f" FOR VALUES FROM ('{TODAY} 13:00+00') TO ('{TODAY} 14:00+00')"
    )


@pytest.mark.parametrize("spoil", [spoil_columns, spoil_bounds])
def test_rows_of_other_days_are_stored_when_one_day_cannot_be_attached(
    ingested: Ingested, plain: Connection, spoil: Any
) -> None:
    name = days.build_partition_name(ROOT.table, TODAY)
    days.create_partition(plain, ROOT.table, TODAY)
    plain.execute(
        f"INSERT INTO {ROOT.table} (id, version, data, updated_at, client_id, type)"
        " VALUES ('z', 1, '{}', %s, 'test', 1)",
        [f"{TODAY} 12:00+00"],
    )
    spoil(plain, name)
    try:
        ingested.write(
            make_noon_message(TODAY, id="a"), make_noon_message(TODAY - timedelta(days=1), id="b")
        )
        assert list_ids() == ["b"]
        [row] = list_quarantined()
        assert (row["reason"], name in row["detail"]) == ("no_partition", True)
        assert retry_quarantined(plain) == {"retrying": 1}
    finally:
        plain.execute(f"DROP TABLE IF EXISTS {name}")
    assert retry_quarantined(plain) == {"stored": 1}
    assert find_faults() == []


@pytest.mark.django_db(transaction=True)
def test_late_message_is_stored_in_the_day_that_was_held_for_it(
    ingested: Ingested, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The day is held while the message is unread. When the message is read after some days, it is
    stored there."""
    days.create_partition(plain, ROOT.table, OLDEST)
    ingested.write(make_noon_message(OLDEST, id="read"))
    plain.execute(
        "UPDATE ingest_ledger SET high_watermark = 2, newest_timestamp = %s WHERE topic = %s",
        [datetime.combine(OLDEST, datetime.min.time(), NOW.tzinfo), SOURCE.topic],
    )
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=5))
    policy = PartitionPolicy.at(clock.now(), find_unsettled_days)
    name = days.build_partition_name(ROOT.table, OLDEST)
    outcome = execute_plans(policy)
    assert (outcome.held, outcome.dropped) == ([name], [])
    ingested.write(make_message(make_noon_message(OLDEST, id="unread"), 1), window=shift_window(5))
    assert list_ids() == ["read", "unread"]
    assert read_counts() == {"next_offset": 2, "read": 2, "stored": 2}
    assert execute_plans(policy).dropped == [name]


@pytest.fixture
def window_of_fast_clock(monkeypatch: pytest.MonkeyPatch) -> Window:
    """Set the clock 200 days ahead, and return the window of this clock."""
    wrong = NOW + timedelta(days=200)
    monkeypatch.setattr(clock, "now", lambda: wrong)
    return Window.at(wrong, 90, 14)


def test_no_version_expires_when_the_clock_of_the_consumer_is_ahead(
    ingested: Ingested, window_of_fast_clock: Window, caplog: pytest.LogCaptureFixture
) -> None:
    ingested.write(
        make_noon_message(TODAY, id="now"),
        make_noon_message(OLD, id="old"),
        window=window_of_fast_clock,
    )
    assert list_ids() == ["now"]
    assert read_counts() == {"next_offset": 2, "read": 2, "stored": 1, "expired": 1}
    assert "the clock of this machine says" in caplog.text
    assert find_faults() == []


def test_no_quarantined_message_expires_when_the_clock_is_ahead(
    ingested: Ingested, plain: Connection, window_of_fast_clock: Window
) -> None:
    early = Window.at(NOW - timedelta(days=30), 30, 1)  # a window in which today is in the future
    ingested.write(make_noon_message(TODAY, id="now"), window=early)
    call_command("quarantine", "retry", "--now")
    assert list_ids() == ["now"]
    assert read_counts() == {"next_offset": 1, "read": 1, "stored": 1}
