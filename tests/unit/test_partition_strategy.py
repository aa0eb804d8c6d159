"""Which days are made, dropped and kept, decided without a database."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from history.days import State, partition_name
from history.partitions.catalog import Partition
from history.partitions.strategy import DayStrategy
from history.window import Window, day_of

TABLE = "product_instance_aud"
TODAY = date(2026, 3, 29)
MOMENTS = st.datetimes(
    datetime.fromisoformat("2020-01-01"),
    datetime.fromisoformat("2035-12-31"),
    timezones=st.timezones(),
)


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def part(day: date, state: State = State.ATTACHED, marked: bool = True) -> Partition:
    loose = state is State.DETACHED
    return Partition(
        TABLE,
        partition_name(TABLE, day),
        None if loose else midnight(day),
        None if loose else midnight(day) + timedelta(days=1),
        state,
        marked,
        rows=10,
        bytes=8192,
    )


def strategy(
    *existing: Partition, keep: int = 3, ahead: int = 2, holds: dict[date, str] | None = None
) -> DayStrategy:
    window = Window(TODAY - timedelta(days=keep), TODAY + timedelta(days=ahead))
    return DayStrategy(TABLE, window, TODAY, existing, holds)


def created(it: DayStrategy) -> list[int]:
    """Days to create, as numbers relative to today."""
    return [(found.day - TODAY).days for found in it.to_create()]


def dropped(it: DayStrategy) -> list[int]:
    return [(found.day - TODAY).days for found in it.to_delete()]


def around(*numbers: int) -> list[Partition]:
    return [part(TODAY + timedelta(days=number)) for number in numbers]


def test_today_and_the_days_ahead_come_first() -> None:
    assert created(strategy()) == [0, 1, 2, -1, -2, -3]


def test_a_gap_stops_neither_creating_nor_dropping() -> None:
    it = strategy(*around(-90, -5, -4, -3, -1, 2))
    assert created(it) == [0, 1, -2]
    assert dropped(it) == [-90, -5, -4]


def test_retention_changed_down_and_up() -> None:
    parts = around(*range(-3, 3))
    assert dropped(strategy(*parts, keep=1)) == [-3, -2]
    assert created(strategy(*parts, keep=5)) == [-4, -5]


def test_only_marked_partitions_are_dropped() -> None:
    old = TODAY - timedelta(days=50)
    it = strategy(part(old, marked=False))
    assert dropped(it) == []
    assert [reason for _, reason in it.to_keep()] == ["not made by Annals, never dropped"]


def test_a_marked_partition_that_is_not_a_utc_day_is_left_alone() -> None:
    old = TODAY - timedelta(days=50)
    shifted = Partition(
        TABLE,
        partition_name(TABLE, old),
        midnight(old) - timedelta(hours=3),
        midnight(old) + timedelta(hours=21),
        State.ATTACHED,
        True,
        0,
        0,
    )
    assert dropped(strategy(shifted)) == []


def test_a_day_covered_by_a_foreign_partition_is_not_created() -> None:
    month = Partition(
        TABLE,
        "made_manually",
        midnight(TODAY),
        midnight(TODAY + timedelta(days=2)),
        State.ATTACHED,
        False,
        0,
        0,
    )
    assert created(strategy(month)) == [2, -1, -2, -3]


def test_a_held_day_is_kept_with_the_reason() -> None:
    old = TODAY - timedelta(days=5)
    it = strategy(part(old), holds={old: "2 messages in quarantine"})
    assert dropped(it) == []
    assert [reason for _, reason in it.to_keep()] == ["held: 2 messages in quarantine"]


def test_what_a_cut_short_run_left_is_finished_or_taken_back() -> None:
    old, inside = TODAY - timedelta(days=9), TODAY - timedelta(days=2)
    it = strategy(
        part(old, State.PENDING),
        part(old - timedelta(days=1), State.DETACHED),
        part(inside, State.DETACHED),
    )
    assert dropped(it) == [-9, -10]
    assert -2 in created(it)


@given(now=MOMENTS, age=st.timedeltas(timedelta(0), timedelta(days=400)), keep=st.integers(1, 400))
def test_every_row_younger_than_retention_is_kept(now: datetime, age: timedelta, keep: int) -> None:
    window = Window.at(now, keep, 14)
    updated_at = now.astimezone(UTC) - age
    microseconds = (updated_at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    day = day_of(microseconds)
    assert day == updated_at.date()
    it = DayStrategy(TABLE, window, now.astimezone(UTC).date(), [part(day)])
    is_dropped = bool(list(it.to_delete()))
    if age < timedelta(days=keep):
        assert not is_dropped
    if age >= timedelta(days=keep + 1):
        assert is_dropped


@given(
    now=MOMENTS,
    keep=st.integers(1, 60),
    ahead=st.integers(1, 30),
    gaps=st.sets(st.integers(-90, 40)),
)
def test_creating_and_dropping_leaves_exactly_the_window(
    now: datetime, keep: int, ahead: int, gaps: set[int]
) -> None:
    today = now.astimezone(UTC).date()
    window = Window.at(now, keep, ahead)
    there = {today + timedelta(days=number) for number in range(-80, ahead)} - {
        today + timedelta(days=number) for number in gaps
    }
    it = DayStrategy(TABLE, window, today, [part(day) for day in sorted(there)])
    after = (there | {found.day for found in it.to_create()}) - {
        found.day for found in it.to_delete()
    }
    assert after == set(window.days())
