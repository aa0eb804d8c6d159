"""The forecast of losses: never later than the brokers delete."""

from datetime import date, timedelta
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history.capacity import model
from history.capacity.model import Load, Need, Server, full_on, need
from history.management.numbers import in_bytes
from ingest.forecast import (
    DELETED,
    SIZE,
    TIME,
    Backlog,
    Log,
    Retention,
    catch_up,
    forecast,
)

HOUR = 3600.0
EIGHT_HOURS = Retention(8 * HOUR, None)
NOW = 100_000.0
LOG = Log(at=NOW, start=0, end=1_000_000, arriving=1000.0, message_bytes=1000.0)


@pytest.mark.parametrize(
    ("retention", "log", "by", "seconds"),
    [
        (EIGHT_HOURS, LOG, TIME, 7 * HOUR),
        # 5 GB at 1 MB/s, of which 1 GB is there
        (Retention(None, 5_000_000_000), LOG, SIZE, 4000.0),
        (Retention(8 * HOUR, 5_000_000_000), LOG, SIZE, 4000.0),
        (Retention(HOUR / 2, 5_000_000_000), LOG, TIME, 0.0),
        (Retention(None, 1_000_000), LOG, SIZE, 0.0),
        (Retention(None, None), LOG, "", None),
        (Retention(60.0, 1, deletes=False), LOG, "", None),
        # Nothing comes, or the sizes are not known: then only time deletes.
        (Retention(2 * HOUR, 10**10), Log(NOW, 0, 1_000_000, 0.0, 1000.0), TIME, HOUR),
        (Retention(2 * HOUR, 10**10), Log(NOW, 0, 1_000_000, 1000.0), TIME, HOUR),
    ],
)
def test_each_limit(retention: Retention, log: Log, by: str, seconds: float | None) -> None:
    """The oldest unread message is an hour old."""
    said = forecast(retention, log, 0, NOW - HOUR)
    assert (said.by, said.unread, said.deleted) == (by, 1_000_000, 0)
    assert said.at == (None if seconds is None else pytest.approx(NOW + seconds))


@given(
    seconds=st.integers(1, 500),
    held=st.integers(1, 500),
    rate=st.integers(1, 10),
    written=st.integers(10, 3_000),
    share=st.floats(0, 0.99),
)
def test_no_message_is_deleted_before_the_forecast(
    seconds: int, held: int, rate: int, written: int, share: float
) -> None:
    """Messages of 10 bytes come at a steady rate. The broker deletes as early as it may: what is
    older than the retention, and what is beyond the newest bytes."""
    next_offset = int(written * share)
    now = (written - 1) / rate
    log = Log(now, 0, written, float(rate), 10.0)
    said = forecast(Retention(float(seconds), held * 10), log, next_offset, next_offset / rate)
    too_old = next_offset / rate + seconds
    too_many = (next_offset + held) / rate
    assert said.at is not None
    assert said.at <= max(now, min(too_old, too_many)) + 2 / rate


def test_what_is_gone_is_said_at_once() -> None:
    said = forecast(EIGHT_HOURS, Log(1000.0, 50, 60, 1.0), 20)
    assert (said.at, said.by, said.deleted, said.unread) == (1000.0, DELETED, 30, 10)


@pytest.mark.parametrize(
    "missing",
    ["cleanup.policy", "retention.ms", "retention.bytes"],
)
def test_a_configuration_that_is_not_complete_is_none(missing: str) -> None:
    given_ = {
        "cleanup.policy": "compact, delete",
        "retention.ms": "60000",
        "retention.bytes": "-1",
    }
    assert Retention.of(given_) == Retention(60.0, None, True)
    del given_[missing]
    assert Retention.of(given_) is None


BACKLOGS = st.dictionaries(
    st.integers(0, 9),
    st.builds(
        Backlog,
        st.integers(0, 1_000_000),
        st.floats(0, 100),
        st.one_of(st.floats(0, 100_000), st.just(inf)),
        st.one_of(st.floats(1, 100_000), st.just(inf)),
    ),
)


@given(BACKLOGS, st.floats(1, 100_000))
def test_catching_up_ends_with_all_read(backlogs: dict[int, Backlog], rate: float) -> None:
    took = catch_up(backlogs, rate)
    assert took.keys() == backlogs.keys()
    net = rate - sum(each.arriving for each in backlogs.values())
    total = sum(each.unread for each in backlogs.values())
    for place, each in backlogs.items():
        everything = pytest.approx(total / net) if net > 0 else inf
        assert took[place] == (everything if each.unread else 0.0)


TODAY = date(2026, 11, 21)
SERVER = Server()
LOAD = Load("product_instance_aud", 1_000_000, 1_800, 80)
A_DAY = LOAD.rows_per_day * (LOAD.data + LOAD.index)


def total(days: int, load: Load = LOAD) -> float:
    return need(load, days, SERVER).total


def test_retention_keeps_the_current_day_too() -> None:
    found = need(LOAD, 90, SERVER)
    assert found.data + found.index == pytest.approx(91 * A_DAY)
    assert found.total == pytest.approx(1.2 * (found.data + found.index + found.wal))
    assert found.reserve + found.data + found.index + found.wal == pytest.approx(found.total)
    assert (found + Need(1, 2, 3)).wal == found.wal + 3


@settings(max_examples=20, deadline=None)
@given(days=st.integers(1, 400))
def test_a_disk_that_holds_retention_is_never_full_and_a_smaller_one_is(days: int) -> None:
    assert full_on([LOAD], [], TODAY, days, total(days) * 1.0001, SERVER) is None
    day = full_on([LOAD], [], TODAY, days, total(days) - 0.6 * A_DAY, SERVER)
    assert day == TODAY + timedelta(days=days)


def test_growth_fills_the_disk() -> None:
    disk = 2 * total(90)
    assert full_on([LOAD], [], TODAY, 90, disk, SERVER) is None
    day = full_on([LOAD], [], TODAY, 90, disk, SERVER, growth=0.25)
    assert day is not None
    # Twice the load comes after ln 2 / ln 1.25 = 3.1 years; the oldest of 90 days lags behind.
    assert 3.1 * 365 < (day - TODAY).days < 3.3 * 365
    assert model.grown(LOAD, 0.25, model.YEAR).rows_per_day == pytest.approx(1_250_000)


@pytest.mark.parametrize(
    "text, size",
    [("0", 0), ("1024", 1024), ("2T", 2 << 40), ("1.5GiB", 3 << 29), ("500 mb", 500 << 20)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert in_bytes(text) == size
