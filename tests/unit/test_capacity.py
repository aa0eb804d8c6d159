"""The model of disk space."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history.capacity import model
from history.capacity.model import Load, Need, Server, full_on, need, wal_per_row
from history.management.numbers import in_bytes

TODAY = date(2026, 11, 21)
SERVER = Server()
LOAD = Load("product_instance_aud", 1_000_000, 1_800, 80)
A_DAY = LOAD.rows_per_day * (LOAD.data + LOAD.index)


def total(days: int, load: Load = LOAD) -> float:
    return need(load, days, SERVER).total


def test_given_rate_are_spread_over_all_tables() -> None:
    loads = model.from_rate(200, 1785)
    assert sum(load.rows_per_day for load in loads) == pytest.approx(200 * 86_400)
    assert loads[0].rows_per_day == pytest.approx(0.8 * 200 * 86_400)
    messages = sum(load.rows_per_day * load.data for load in loads) / model.DATA_PER_MESSAGE_BYTE
    assert messages == pytest.approx(200 * 86_400 * 1785)


def test_retention_keeps_the_current_day_too() -> None:
    found = need(LOAD, 90, SERVER)
    assert found.data + found.index == pytest.approx(91 * A_DAY)
    assert found.total == pytest.approx(1.2 * (found.data + found.index + found.wal))
    assert found.reserve + found.data + found.index + found.wal == pytest.approx(found.total)
    assert (found + Need(1, 2, 3)).wal == found.wal + 3


@given(rows=st.floats(1, 1e10), seconds=st.floats(30, 86_400))
def test_wal_is_more_than_the_rows_and_less_with_rare_checkpoints(
    rows: float, seconds: float
) -> None:
    load = Load("t", rows, 1_800, 80)
    here = wal_per_row(load, Server(seconds))
    assert here >= load.data + load.index
    assert here <= load.data + load.index + model.ROW_WAL_OVERHEAD + model.PAGE_IMAGE
    assert wal_per_row(load, Server(2 * seconds)) <= here * (1 + 1e-9)
    assert wal_per_row(load, Server(seconds, compressed=True)) <= here


def test_no_load_needs_nothing() -> None:
    assert need(Load("t", 0, 1_800, 80), 90, SERVER).total == 0


@settings(max_examples=20, deadline=None)
@given(days=st.integers(1, 400))
def test_a_disk_that_holds_retention_is_never_full_and_a_smaller_one_is(days: int) -> None:
    assert full_on([LOAD], [], TODAY, days, total(days) * 1.0001, SERVER) is None
    day = full_on([LOAD], [], TODAY, days, total(days) - 0.6 * A_DAY, SERVER)
    assert day == TODAY + timedelta(days=days)


def test_what_is_stored_counts_until_it_leaves() -> None:
    stored = [(TODAY - timedelta(days=number), A_DAY) for number in range(1, 11)]
    assert full_on([LOAD], stored, TODAY, 10, total(10) * 1.0001, SERVER) is None
    assert full_on([LOAD], stored, TODAY, 10, total(10) * 0.999, SERVER) == TODAY
    heavy = [(TODAY - timedelta(days=10), 5 * A_DAY)]
    assert full_on([LOAD], heavy, TODAY, 10, total(10), SERVER) is None


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


@pytest.mark.parametrize("text", ["", "much", "2X", "-1", "T"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="is not a size"):
        in_bytes(text)
