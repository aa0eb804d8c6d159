"""Versions that never arrived: found, explained, closed; by day, and against a simple model."""

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

from history.base import clock
from history.daily.days import partition_name
from history.daily.window import Window
from history.entities import ROOT
from history.gap_models import GapDay, GapDocument, GapPending, GapRun, VersionGap
from history.gaps import judge, read, scan
from history.gaps.run import GapsOutcome, run
from history.record import ChangeType
from history.versions import CLOCK_TOLERANCE
from ingest.models import Quarantined
from tests.db.commands import printed
from tests.db.ingested import empty
from tests.db.noted import held_version
from tests.db.store import T0, Store

TABLES = (VersionGap, GapDocument, GapPending, GapDay, GapRun, Quarantined)
RETENTION = 90

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """In place of pytest-django's, which begins a transaction: the mark only has a database made.
    PostgreSQL counts no rows of an open transaction."""


@pytest.fixture
def committed(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Store]:
    """An empty store whose rows are committed: PostgreSQL counts no others."""
    with django_db_blocker.unblock():
        clear()
        yield Store()
        clear()


def clear() -> None:
    for model in TABLES:
        model.objects.all().delete()
    empty()


def find(now: datetime | None = None) -> GapsOutcome:
    """A run, after PostgreSQL has counted what came."""
    moment = now or clock.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    return run(Window.at(moment, RETENTION, 14), moment)


def open_gaps() -> list[tuple[str, int, int]]:
    rows = VersionGap.objects.filter(closed_at=None).order_by("document", "first")
    return list(rows.values_list("document", "first", "last"))


def closed() -> list[tuple[int, int, str]]:
    rows = VersionGap.objects.exclude(closed_at=None).order_by("first")
    return list(rows.values_list("first", "last", "outcome"))


def test_a_run_reads_only_the_days_that_got_rows(committed: Store) -> None:
    committed.add("A1", 0, {}, 0)
    committed.add("A1", 1, {}, T0 + timedelta(days=1))
    assert find().days == 2
    assert find().days == 0
    committed.add("A1", 2, {}, 1)
    done = find()
    assert (done.days, done.documents) == (1, 0)


def test_version_that_comes_during_a_run_is_not_called_missing(committed: Store) -> None:
    """As while a demo, or a consumer that was away, reads the history of many days."""
    committed.add("A1", 0, {}, 0)
    committed.add("B1", 0, {}, T0 + timedelta(days=1))
    coming = [(1, T0 + timedelta(minutes=1)), (2, T0 + timedelta(days=1))]

    def come() -> None:
        while coming:
            number, moment = coming.pop(0)
            committed.add("A1", number, {}, moment)

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    moment = clock.now()
    run(Window.at(moment, RETENTION, 14), moment, report=come)
    assert open_gaps() == []
    find()
    assert open_gaps() == []
    assert GapDocument.objects.get(id="A1").lowest == 0


def test_a_late_version_closes_its_gap_and_a_part_of_a_gap_stays(committed: Store) -> None:
    committed.add("A1", 0, {}, 0)
    committed.add("A1", 5, {}, T0 + timedelta(days=3))
    find()
    found_at = VersionGap.objects.get().found_at
    committed.add("A1", 3, {}, T0 + timedelta(days=1))
    find()
    assert open_gaps() == [("A1", 1, 2), ("A1", 4, 4)]
    assert closed() == [(3, 3, "arrived")]
    assert {gap.found_at for gap in VersionGap.objects.all()} == {found_at}
    for number in (1, 2, 4):
        committed.add("A1", number, {}, T0 + timedelta(days=1))
    find()
    assert open_gaps() == []
    assert closed() == [(1, 2, "arrived"), (3, 3, "arrived"), (4, 4, "arrived")]


def test_the_first_version_is_read_only_until_it_is_known_to_be_the_first(
    committed: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look into each day for each document with a gap would be wasted."""
    read_rows: list[tuple[int, ...]] = []
    beginnings = judge._beginnings

    def noted(cursor: Any, entity: Any) -> None:
        cursor.execute("SELECT version FROM gap_row ORDER BY version")
        read_rows.append(tuple(version for (version,) in cursor.fetchall()))
        beginnings(cursor, entity)

    monkeypatch.setattr(judge, "_beginnings", noted)
    for number in (1, 2, 5, 6, 9):
        kind = ChangeType.UPDATE if number > 1 else ChangeType.CREATE
        committed.add("A1", number, {}, T0 + timedelta(hours=number), type=kind)
        find()
    assert read_rows == [(1,), (2, 5), (2, 5), (2, 5, 6, 9)]
    assert open_gaps() == [("A1", 3, 4), ("A1", 7, 8)]


def test_a_document_without_its_create(committed: Store) -> None:
    created = {"createdAt": T0.isoformat()}
    committed.add("A1", 3, created, 5)
    find()
    assert open_gaps() == [("A1", 0, 2)]
    assert VersionGap.objects.get().beginning
    committed.add("A1", 1, created, 0, type=ChangeType.CREATE)
    find()
    assert open_gaps() == [("A1", 2, 2)]
    assert closed() == [(0, 0, "expired"), (1, 1, "arrived")]


@pytest.mark.parametrize(
    "data",
    [{}, {"createdAt": "2020-01-01T00:00:00"}, {"createdAt": "never"}, {"createdAt": 5}, "null"],
    ids=["none", "before the window", "no time", "a number", "no document"],
)
def test_the_edge_of_the_window_is_no_gap(committed: Store, data: object) -> None:
    committed.add("A1", 3, data, 5)
    committed.add("A2", 3, {"createdAt": (T0 + timedelta(days=5)).isoformat()}, 0)
    committed.add("A3", 3, {"createdAt": T0.isoformat()}, 0, type=ChangeType.CREATE)
    find()
    assert open_gaps() == []


def test_a_neighbour_near_the_edge_is_no_gap_and_one_that_comes_there_ends_it(
    committed: Store,
) -> None:
    now = clock.now()
    oldest = datetime.combine(Window.at(now, RETENTION, 0).oldest, time(), now.tzinfo)
    committed.add("A1", 0, {}, oldest + timedelta(hours=23))
    committed.add("A1", 2, {}, T0)
    committed.add("A2", 0, {}, oldest + timedelta(hours=25))
    committed.add("A2", 2, {}, T0)
    find(now)
    assert open_gaps() == [("A2", 1, 1)]
    assert find(now + timedelta(days=1)).expired == 1
    assert (open_gaps(), closed()) == ([], [(1, 1, "expired")])


def test_a_day_that_was_made_again_is_read_again(committed: Store) -> None:
    """As restore does."""
    committed.add("A1", 0, {}, 0)
    find()
    drop(T0.date())
    committed.add("A1", 2, {}, 1)
    assert find().days == 1
    assert open_gaps() == []  # the neighbour below is not in the store


def test_the_largest_numbers(committed: Store) -> None:
    committed.add("A1", 0, {}, 0)
    committed.add("A1", 2**31 - 1, {}, 1)
    find()
    assert open_gaps() == [("A1", 1, 2**31 - 2)]
    assert read.sums()[0].versions == 2**31 - 2


def test_twins_and_versions_that_were_read_before(committed: Store) -> None:
    for at in (0, 1, 2000):
        committed.add("A1", 0, {}, at)
        committed.add("A1", 2, {}, at)
        find()
    assert open_gaps() == [("A1", 1, 1)]
    assert VersionGap.objects.count() == 1


def test_services_beyond_the_largest_are_one(committed: Store) -> None:
    for number in range(read.MOST_CLIENTS + 5):
        committed.add(f"A{number}", 0, {}, 0)
        committed.add(f"A{number}", 2 + number, {}, 1, client=f"c{number:02}")
    find()
    found = read.sums()
    assert len(found) == read.MOST_CLIENTS + 1
    [other] = [each for each in found if each.client_id == read.OTHER]
    assert (other.gaps, other.versions) == (5, 1 + 2 + 3 + 4 + 5)


def test_a_version_in_quarantine_is_missing_and_explained(committed: Store) -> None:
    committed.add("A1", 0, {}, 0)
    committed.add("A1", 3, {}, 1)
    held_version("A1", 2)
    find()
    assert open_gaps() == [("A1", 1, 2)]
    assert GapRun.objects.get().quarantined == 1
    [listed] = read.page(read.Selection(), 10)
    assert [each.reason for each in listed.came.values()] == ["bad_updated_at"]
    Quarantined.objects.update(status="discarded")
    find()
    assert (open_gaps(), GapRun.objects.get().quarantined) == ([("A1", 1, 2)], 0)


def test_two_runs_at_once_do_each_day_once(committed: Store) -> None:
    for number in range(0, 40, 2):
        committed.add("A1", number, {}, T0 + timedelta(days=number % 3, minutes=number))

    def other(_: int) -> int:
        try:
            return find().days
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(other, range(3))) == 3
    assert len(open_gaps()) == 19
    assert VersionGap.objects.count() == 19


@pytest.mark.parametrize("ahead", [85, 200])
def test_a_window_that_goes_back(committed: Store, ahead: int) -> None:
    """A clock that was ahead, or a retention that was shorter, for one run."""
    created = {"createdAt": T0.isoformat()}
    for id in ("A1", "B1"):
        for number in (0, 1):
            committed.add(id, number, created, number)
    committed.add("B1", 3, created, T0 + timedelta(days=9))
    find()
    assert open_gaps() == [("B1", 2, 2)]
    find(clock.now() + timedelta(days=ahead))
    assert open_gaps() == []
    committed.add("A1", 2, created, T0 + timedelta(days=3))
    find()
    assert open_gaps() == [("B1", 2, 2)]
    assert find().days == 0


class KilledError(Exception):
    pass


@pytest.mark.parametrize("after", range(12))
def test_a_run_that_is_killed_loses_and_doubles_nothing(
    committed: Store, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Killed when it asks for the lock of its nth transaction, or inside of it."""
    for number in range(0, 12, 2):
        committed.add("A1", number, {}, T0 + timedelta(days=number % 3, minutes=number))
    real, left = scan.lock, [after // 2]

    def lock(cursor: Any) -> None:
        if left[0] == 0 and after % 2:
            raise KilledError
        real(cursor)
        left[0] -= 1
        if left[0] < 0:
            raise KilledError

    for module in ("scan", "judge", "run"):
        monkeypatch.setattr(f"history.gaps.{module}.lock", lock)
    with suppress(KilledError):
        find()
    monkeypatch.undo()
    find()
    assert open_gaps() == [("A1", number, number) for number in range(1, 10, 2)]
    assert VersionGap.objects.count() == 5


def test_the_command(committed: Store) -> None:
    committed.add("A1", 0, {}, 0)
    committed.add("A1", 3, {}, 1)
    found = json.loads(printed("gaps", "--json"))
    assert (found["gaps"], found["versions"], found["days"]) == (1, 2, 1)
    assert found["by"][0]["client_id"] == "top-crm"
    assert "2 versions missing in 1 gap" in printed("gaps")


def drop(day: date) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {partition_name(ROOT.table, day)}")


# Against a model.

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


class Model:
    """Remembers each version that a run could see, as long as its document has one in the window.
    What is missing between those that were made inside the window is a gap."""

    def __init__(self, made: dict[tuple[str, int], datetime], created: datetime) -> None:
        self.made = made
        self.created = created
        self.there: set[tuple[str, int]] = set()
        self.seen: set[tuple[str, int]] = set()
        self.ever: set[tuple[str, int]] = set()

    def gaps(self, edge: datetime) -> list[tuple[str, int, int]]:
        self.seen |= self.there
        self.ever |= self.there
        found = []
        for id in ("A", "B"):
            numbers = sorted(number for one, number in self.seen if one == id)
            for low, high in pairwise(numbers):
                since = min(self.made[id, low], self.made[id, high])
                if high > low + 1 and since >= edge:
                    found.append((id, low + 1, high - 1))
            if numbers and numbers[0] > 0 and self._begins(id, numbers[0], edge):
                found.append((id, 0, numbers[0] - 1))
        return sorted(found)

    def forget(self, oldest: date) -> None:
        """At the end of a run: documents without a version in the window."""
        kept = {id for id, number in self.seen if self.made[id, number].date() >= oldest}
        self.seen = {key for key in self.seen if key[0] in kept}

    def _begins(self, id: str, lowest: int, edge: datetime) -> bool:
        return self.created >= edge and self.created <= self.made[id, lowest]


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
# Its first version is forgotten with the day, and it says that it was created later than that.
@example(
    steps=[("arrive", ("A", 0)), ("run", None), ("day", None), ("run", None), ("arrive", ("A", 2))],
    days={},
    created=2,
)
def test_any_order_of_arrival_days_and_drops(
    committed: Store, steps: list[Any], days: dict[tuple[str, int], int], created: int
) -> None:
    clear()
    # The window begins on the day of the first versions, and moves on with each "day".
    now = clock.now()
    start = datetime.combine(Window.at(now, RETENTION, 0).oldest, time(1), now.tzinfo)
    made = {
        (id, number): start + timedelta(days=days.get((id, number), number), minutes=number)
        for id in ("A", "B")
        for number in range(8)
    }
    model = Model(made, start + timedelta(days=created))
    for what, which in [*steps, ("run", None)]:
        window = Window.at(now, RETENTION, 14)
        edge = datetime.combine(window.oldest, time(), now.tzinfo) + CLOCK_TOLERANCE
        if what == "day":
            drop(window.oldest)
            model.there = {key for key in model.there if made[key].date() > window.oldest}
            now += timedelta(days=1)
        elif what == "run":
            expected = model.gaps(edge)
            find(now)
            assert open_gaps() == expected
            model.forget(window.oldest)
            assert find(now).days == 0
            assert not GapPending.objects.exists()
        elif which not in model.there and made[which].date() >= window.oldest:
            data = {"createdAt": model.created.isoformat()}
            kind = ChangeType.CREATE if which[1] == 0 else ChangeType.UPDATE
            committed.add(*which, data, made[which], type=kind)
            model.there.add(which)
    arrived = VersionGap.objects.filter(outcome="arrived")
    for gap in arrived:
        assert {(gap.document, number) for number in range(gap.first, gap.last + 1)} <= model.ever
