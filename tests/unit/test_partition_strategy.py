"""Which days are created, dropped and kept. The decision needs no database."""

from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from history.retention.catalog import Partition
from history.retention.plan import DayStrategy
from history.store.days.days import DayState, build_partition_name
from history.store.days.window import Window, compute_day

TABLE = "product_instance_aud"
TODAY = date(2026, 3, 29)
MOMENTS = st.datetimes(
    datetime.fromisoformat("2020-01-01"),
    datetime.fromisoformat("2035-12-31"),
    timezones=st.timezones(),
)


def get_midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def make_partition(
    day: date,
    state: DayState = DayState.ATTACHED,
    marked: bool = True,
    hours: tuple[int, int] = (0, 24),
) -> Partition:
    start, end = (get_midnight(day) + timedelta(hours=hour) for hour in hours)
    if state is DayState.DETACHED:
        return Partition(
            TABLE, build_partition_name(TABLE, day), None, None, state, marked, 10, 8192
        )
    return Partition(TABLE, build_partition_name(TABLE, day), start, end, state, marked, 10, 8192)


def make_strategy(
    *existing: Partition, keep: int = 3, ahead: int = 2, held_days: dict[date, str] | None = None
) -> DayStrategy:
    window = Window(TODAY - timedelta(days=keep), TODAY + timedelta(days=ahead))
    return DayStrategy(TABLE, window, TODAY, existing, held_days or {})


def list_created(day_strategy: DayStrategy) -> list[int]:
    """Return the days to create, as numbers relative to today."""
    return [(partition.day - TODAY).days for partition in day_strategy.to_create()]


def list_dropped(day_strategy: DayStrategy) -> list[int]:
    return [(partition.day - TODAY).days for partition in day_strategy.to_delete()]


def make_partitions(*numbers: int) -> list[Partition]:
    return [make_partition(TODAY + timedelta(days=number)) for number in numbers]


def test_only_partitions_that_annals_made_for_one_utc_day_are_dropped() -> None:
    old = TODAY - timedelta(days=50)
    day_strategy = make_strategy(make_partition(old, marked=False))
    assert list_dropped(day_strategy) == []
    assert [reason for _, reason in day_strategy.to_keep()] == ["not made by Annals, never dropped"]
    assert list_dropped(make_strategy(make_partition(old, hours=(-3, 21)))) == []


def test_interrupted_drop_is_completed_for_an_old_day_and_undone_inside_the_window() -> None:
    old, inside = TODAY - timedelta(days=9), TODAY - timedelta(days=2)
    day_strategy = make_strategy(
        make_partition(old, DayState.PENDING),
        make_partition(old - timedelta(days=1), DayState.DETACHED),
        make_partition(inside, DayState.DETACHED),
    )
    assert list_dropped(day_strategy) == [-9, -10]
    assert -2 in list_created(day_strategy)


@given(now=MOMENTS, age=st.timedeltas(timedelta(0), timedelta(days=400)), keep=st.integers(1, 400))
def test_day_with_a_row_younger_than_retention_is_kept(
    now: datetime, age: timedelta, keep: int
) -> None:
    window = Window.at(now, keep, 14)
    updated_at = now.astimezone(UTC) - age
    microseconds = (updated_at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    day = compute_day(microseconds)
    assert day == updated_at.date()
    day_strategy = DayStrategy(TABLE, window, now.astimezone(UTC).date(), [make_partition(day)])
    is_dropped = bool(list(day_strategy.to_delete()))
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
def test_only_the_days_of_the_window_exist_after_creating_and_dropping(
    now: datetime, keep: int, ahead: int, gaps: set[int]
) -> None:
    today = now.astimezone(UTC).date()
    window = Window.at(now, keep, ahead)
    days = {today + timedelta(days=number) for number in range(-80, ahead)} - {
        today + timedelta(days=number) for number in gaps
    }
    day_strategy = DayStrategy(TABLE, window, today, [make_partition(day) for day in sorted(days)])
    after = (days | {partition.day for partition in day_strategy.to_create()}) - {
        partition.day for partition in day_strategy.to_delete()
    }
    assert after == set(window.iterate_days())
