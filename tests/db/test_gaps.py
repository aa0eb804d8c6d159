"""How `annals gaps` finds, explains and closes version gaps, also in random histories."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pytest_django import DjangoDbBlocker

from history.common import clock
from history.completeness.gaps import judge, read, scan
from history.completeness.gaps.run import GapsOutcome, find_gaps
from history.documents.record import ChangeType
from history.kinds.entities import ROOT
from history.models import (
    GapDay,
    GapDocument,
    GapPending,
    GapRun,
    VersionGap,
)
from history.store.days.days import build_partition_name
from history.store.days.window import Window
from history.store.distribution import is_distributed
from history.store.versions import CLOCK_TOLERANCE
from ingest.models import Quarantined
from tests.citus.cluster import end_session
from tests.db.commands import read_output
from tests.db.ingest_rows import create_quarantined_version
from tests.db.ingested import empty_ingest_tables
from tests.db.store import T0, Store

TABLES = (VersionGap, GapDocument, GapPending, GapDay, GapRun, Quarantined)
RETENTION = 90

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Replace pytest-django's fixture of this name, which would begin a transaction.

    PostgreSQL's statistics do not count rows of an open transaction. The mark `django_db` still
    creates the database.
    """


@pytest.fixture
def committed(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Store]:
    """Yield an empty store that commits its rows, because PostgreSQL's statistics count only
    committed rows."""
    with django_db_blocker.unblock():
        clear_gaps()
        yield Store()
        clear_gaps()


def clear_gaps() -> None:
    for model in TABLES:
        model.objects.all().delete()
    empty_ingest_tables()


def run_gaps(now: datetime | None = None) -> GapsOutcome:
    """Flush PostgreSQL's statistics so that they count new rows, and search for version gaps."""
    moment = now or clock.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    if is_distributed(connection.connection):
        end_session(connection.connection)
        connection.close()
    return find_gaps(Window.at(moment, RETENTION, 14), moment)


def list_open_gaps() -> list[tuple[str, int, int]]:
    rows = VersionGap.objects.filter(closed_at=None).order_by("document", "first")
    return list(rows.values_list("document", "first", "last"))


def list_closed_gaps() -> list[tuple[int, int, str]]:
    rows = VersionGap.objects.exclude(closed_at=None).order_by("first")
    return list(rows.values_list("first", "last", "outcome"))


def test_gap_run_reads_only_days_that_got_rows(committed: Store) -> None:
    committed.add("A1", 0, {}, 0)
    committed.add("A1", 1, {}, T0 + timedelta(days=1))
    assert run_gaps().days == 2
    assert run_gaps().days == 0
    committed.add("A1", 2, {}, 1)
    result = run_gaps()
    assert (result.days, result.documents) == (1, 0)


def test_version_that_arrives_during_gap_run_is_not_called_missing(committed: Store) -> None:
    """The consumer may be catching up on many days while the run reads them."""
    committed.add("A1", 0, {}, 0)
    committed.add("B1", 0, {}, T0 + timedelta(days=1))
    coming = [(1, T0 + timedelta(minutes=1)), (2, T0 + timedelta(days=1))]

    def add_next_version() -> None:
        while coming:
            number, moment = coming.pop(0)
            committed.add("A1", number, {}, moment)

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    moment = clock.now()
    find_gaps(Window.at(moment, RETENTION, 14), moment, report=add_next_version)
    assert list_open_gaps() == []
    run_gaps()
    assert list_open_gaps() == []
    assert GapDocument.objects.get(id="A1").lowest == 0


def test_version_that_arrives_in_the_middle_of_a_version_gap_splits_it(committed: Store) -> None:
    committed.add("A1", 0, {}, 0)
    committed.add("A1", 5, {}, T0 + timedelta(days=3))
    run_gaps()
    found_at = VersionGap.objects.get().found_at
    committed.add("A1", 3, {}, T0 + timedelta(days=1))
    run_gaps()
    assert list_open_gaps() == [("A1", 1, 2), ("A1", 4, 4)]
    assert list_closed_gaps() == [(3, 3, "arrived")]
    assert {gap.found_at for gap in VersionGap.objects.all()} == {found_at}
    for number in (1, 2, 4):
        committed.add("A1", number, {}, T0 + timedelta(days=1))
    run_gaps()
    assert list_open_gaps() == []
    assert list_closed_gaps() == [(1, 2, "arrived"), (3, 3, "arrived"), (4, 4, "arrived")]


def test_later_gap_runs_do_not_search_again_for_first_version_that_was_found(
    committed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for the first version of a document reads every day."""
    read_rows: list[tuple[int, ...]] = []
    beginnings = judge._judge_beginnings

    def note_rows(cursor: Any, entity: Any) -> None:
        cursor.execute("SELECT version FROM gap_row ORDER BY version")
        read_rows.append(tuple(version for (version,) in cursor.fetchall()))
        beginnings(cursor, entity)

    monkeypatch.setattr(judge, "_judge_beginnings", note_rows)
    for number in (1, 2, 5, 6, 9):
        kind = ChangeType.UPDATE if number > 1 else ChangeType.CREATE
        committed.add("A1", number, {}, T0 + timedelta(hours=number), type=kind)
        run_gaps()
    assert read_rows == [(1,), (2, 5), (2, 5), (2, 5, 6, 9)]
    assert list_open_gaps() == [("A1", 3, 4), ("A1", 7, 8)]


def test_versions_before_first_stored_one_are_a_gap_when_document_was_created_in_window(
    committed: Store,
) -> None:
    created = {"createdAt": T0.isoformat()}
    committed.add("A1", 3, created, 5)
    run_gaps()
    assert list_open_gaps() == [("A1", 0, 2)]
    assert VersionGap.objects.get().beginning
    committed.add("A1", 1, created, 0, type=ChangeType.CREATE)
    run_gaps()
    assert list_open_gaps() == [("A1", 2, 2)]
    assert list_closed_gaps() == [(0, 0, "expired"), (1, 1, "arrived")]


@pytest.mark.parametrize(
    "data",
    [{}, {"createdAt": "2020-01-01T00:00:00"}, {"createdAt": "never"}, {"createdAt": 5}, "null"],
    ids=["no createdAt", "before the window", "not a moment", "a number", "no document"],
)
def test_missing_first_versions_are_no_gap_when_they_may_have_expired(
    committed: Store, data: object
) -> None:
    committed.add("A1", 3, data, 5)
    committed.add("A2", 3, {"createdAt": (T0 + timedelta(days=5)).isoformat()}, 0)
    committed.add("A3", 3, {"createdAt": T0.isoformat()}, 0, type=ChangeType.CREATE)
    run_gaps()
    assert list_open_gaps() == []


def test_version_gap_expires_when_version_before_it_reaches_oldest_day_of_window(
    committed: Store,
) -> None:
    now = clock.now()
    oldest = datetime.combine(Window.at(now, RETENTION, 0).oldest, time(), now.tzinfo)
    committed.add("A1", 0, {}, oldest + timedelta(hours=23))
    committed.add("A1", 2, {}, T0)
    committed.add("A2", 0, {}, oldest + timedelta(hours=25))
    committed.add("A2", 2, {}, T0)
    run_gaps(now)
    assert list_open_gaps() == [("A2", 1, 1)]
    assert run_gaps(now + timedelta(days=1)).expired == 1
    assert (list_open_gaps(), list_closed_gaps()) == ([], [(1, 1, "expired")])


def test_gap_run_reads_day_again_after_its_table_was_recreated(committed: Store) -> None:
    """`partitions restore` creates the table of a day anew."""
    committed.add("A1", 0, {}, 0)
    run_gaps()
    drop_day(T0.date())
    committed.add("A1", 2, {}, 1)
    assert run_gaps().days == 1
    # Version 0 is not in the store any more, so version 1 is not between two stored versions.
    assert list_open_gaps() == []


def test_version_gap_can_end_before_largest_number_that_the_column_holds(committed: Store) -> None:
    committed.add("A1", 0, {}, 0)
    committed.add("A1", 2**31 - 1, {}, 1)
    run_gaps()
    assert list_open_gaps() == [("A1", 1, 2**31 - 2)]
    assert read.fetch_sums()[0].versions == 2**31 - 2


def test_version_gap_is_recorded_once_when_a_producer_uses_the_numbers_around_it_again(
    committed: Store,
) -> None:
    for minutes in (0, 1, 2000):
        committed.add("A1", 0, {}, minutes)
        committed.add("A1", 2, {}, minutes)
        run_gaps()
    assert list_open_gaps() == [("A1", 1, 1)]
    assert VersionGap.objects.count() == 1


def test_gap_totals_put_smallest_services_together_when_there_are_too_many(
    committed: Store,
) -> None:
    for number in range(read.MAX_CLIENTS + 5):
        committed.add(f"A{number}", 0, {}, 0)
        committed.add(f"A{number}", 2 + number, {}, 1, client=f"c{number:02}")
    run_gaps()
    sums = read.fetch_sums()
    assert len(sums) == read.MAX_CLIENTS + 1
    [small_services] = [item for item in sums if item.client_id == read.OTHER_CLIENTS]
    assert (small_services.gaps, small_services.versions) == (5, 1 + 2 + 3 + 4 + 5)


def test_quarantined_version_is_listed_in_its_version_gap(committed: Store) -> None:
    committed.add("A1", 0, {}, 0)
    committed.add("A1", 3, {}, 1)
    create_quarantined_version("A1", 2)
    run_gaps()
    assert list_open_gaps() == [("A1", 1, 2)]
    assert GapRun.objects.get().quarantined == 1
    [listed] = read.fetch_page(read.GapSelection(), 10)
    assert [message.reason for message in listed.quarantined.values()] == ["bad_updated_at"]
    Quarantined.objects.update(status="discarded")
    run_gaps()
    assert (list_open_gaps(), GapRun.objects.get().quarantined) == ([("A1", 1, 2)], 0)


def test_two_concurrent_gap_runs_read_each_day_once(committed: Store) -> None:
    for number in range(0, 40, 2):
        committed.add("A1", number, {}, T0 + timedelta(days=number % 3, minutes=number))

    def run_in_thread(_: int) -> int:
        try:
            return run_gaps().days
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(run_in_thread, range(3))) == 3
    assert len(list_open_gaps()) == 19
    assert VersionGap.objects.count() == 19


@pytest.mark.parametrize("ahead", [85, 200])
def test_next_run_of_gaps_finds_version_gaps_again_after_a_run_with_a_later_window(
    committed: Store, ahead: int
) -> None:
    """A window can be too late for one run if the clock is ahead or retention is set shorter."""
    created = {"createdAt": T0.isoformat()}
    for id in ("A1", "B1"):
        for number in (0, 1):
            committed.add(id, number, created, number)
    committed.add("B1", 3, created, T0 + timedelta(days=9))
    run_gaps()
    assert list_open_gaps() == [("B1", 2, 2)]
    run_gaps(clock.now() + timedelta(days=ahead))
    assert list_open_gaps() == []
    committed.add("A1", 2, created, T0 + timedelta(days=3))
    run_gaps()
    assert list_open_gaps() == [("B1", 2, 2)]
    assert run_gaps().days == 0


class KilledError(Exception):
    pass


@pytest.mark.parametrize("after", range(12))
def test_gap_run_finds_each_gap_once_after_an_earlier_run_was_killed(
    committed: Store, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """The earlier run is killed before or after it takes the lock of its nth transaction."""
    for number in range(0, 12, 2):
        committed.add("A1", number, {}, T0 + timedelta(days=number % 3, minutes=number))
    real, remaining = scan.lock_gaps, [after // 2]

    def lock(cursor: Any) -> None:
        if remaining[0] == 0 and after % 2:
            raise KilledError
        real(cursor)
        remaining[0] -= 1
        if remaining[0] < 0:
            raise KilledError

    for module in ("scan", "judge", "run"):
        monkeypatch.setattr(f"history.completeness.gaps.{module}.lock_gaps", lock)
    with suppress(KilledError):
        run_gaps()
    monkeypatch.undo()
    run_gaps()
    assert list_open_gaps() == [("A1", number, number) for number in range(1, 10, 2)]
    assert VersionGap.objects.count() == 5


def test_gaps_command_prints_result(committed: Store) -> None:
    committed.add("A1", 0, {}, 0)
    committed.add("A1", 3, {}, 1)
    result = json.loads(read_output("gaps", "--json"))
    assert (result["gaps"], result["versions"], result["days"]) == (1, 2, 1)
    assert result["by"][0]["client_id"] == "top-crm"
    assert "2 versions missing in 1 gap" in read_output("gaps")


def drop_day(day: date) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {build_partition_name(ROOT.table, day)}")


# Comparing gap runs with a model.

DAYS = 6
NUMBERS = st.tuples(st.sampled_from(["A", "B"]), st.integers(0, 7))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), NUMBERS),
        st.tuples(st.just("run"), st.none()),
        st.tuples(st.just("day"), st.none()),
    ),
    min_size=5,
    max_size=30,
)


class GapModel:
    """The gaps that a gap run must report, computed from all versions that gap runs could see.

    The model forgets a document that has no version in the window. A gap is a number that is
    missing between two versions if both were made inside the window.
    """

    def __init__(self, moments: dict[tuple[str, int], datetime], created: datetime) -> None:
        self.moments = moments
        self.created = created
        self.there: set[tuple[str, int]] = set()
        self.seen: set[tuple[str, int]] = set()
        self.ever: set[tuple[str, int]] = set()

    def list_gaps(self, edge: datetime) -> list[tuple[str, int, int]]:
        self.seen |= self.there
        self.ever |= self.there
        gaps = []
        for id in ("A", "B"):
            numbers = sorted(number for seen_id, number in self.seen if seen_id == id)
            for low, high in pairwise(numbers):
                since = min(self.moments[id, low], self.moments[id, high])
                if high > low + 1 and since >= edge:
                    gaps.append((id, low + 1, high - 1))
            if numbers and numbers[0] > 0 and self._begins(id, numbers[0], edge):
                gaps.append((id, 0, numbers[0] - 1))
        return sorted(gaps)

    def forget(self, oldest: date) -> None:
        """Forget the documents without a version in the window, as a gap run does at its end."""
        recent_ids = {id for id, number in self.seen if self.moments[id, number].date() >= oldest}
        self.seen = {key for key in self.seen if key[0] in recent_ids}

    def _begins(self, id: str, lowest: int, edge: datetime) -> bool:
        return self.created >= edge and self.created <= self.moments[id, lowest]


@settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=STEPS,
    days=st.dictionaries(NUMBERS, st.integers(0, DAYS)),
    created=st.integers(0, DAYS),
)
# The first version is forgotten with its day. The document's createdAt is later than this version.
@example(
    steps=[("arrive", ("A", 0)), ("run", None), ("day", None), ("run", None), ("arrive", ("A", 2))],
    days={},
    created=2,
)
def test_gap_run_finds_expected_gaps_for_any_order_in_which_versions_arrive(
    committed: Store, steps: list[Any], days: dict[tuple[str, int], int], created: int
) -> None:
    clear_gaps()
    # The window begins on the day of the first versions, and moves on with each "day".
    now = clock.now()
    start = datetime.combine(Window.at(now, RETENTION, 0).oldest, time(1), now.tzinfo)
    moments = {
        (id, number): start + timedelta(days=days.get((id, number), number), minutes=number)
        for id in ("A", "B")
        for number in range(8)
    }
    model = GapModel(moments, start + timedelta(days=created))
    for action, key in [*steps, ("run", None)]:
        window = Window.at(now, RETENTION, 14)
        edge = datetime.combine(window.oldest, time(), now.tzinfo) + CLOCK_TOLERANCE
        if action == "day":
            drop_day(window.oldest)
            model.there = {key for key in model.there if moments[key].date() > window.oldest}
            now += timedelta(days=1)
        elif action == "run":
            expected = model.list_gaps(edge)
            run_gaps(now)
            assert list_open_gaps() == expected
            model.forget(window.oldest)
            assert run_gaps(now).days == 0
            assert not GapPending.objects.exists()
        elif key not in model.there and moments[key].date() >= window.oldest:
            data = {"createdAt": model.created.isoformat()}
            kind = ChangeType.CREATE if key[1] == 0 else ChangeType.UPDATE
            committed.add(*key, data, moments[key], type=kind)
            model.there.add(key)
    arrived = VersionGap.objects.filter(outcome="arrived")
    for gap in arrived:
        assert {(gap.document, number) for number in range(gap.first, gap.last + 1)} <= model.ever
