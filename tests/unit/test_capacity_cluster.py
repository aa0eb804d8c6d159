"""The model of several workers: shards, too large ones, a rebalance."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from history.capacity import cluster, skew
from history.capacity.cluster import Cluster, Demand, plan
from history.capacity.model import Load, Server, from_rate
from history.capacity.rebalance import BASE_COST, THRESHOLD, Workers
from history.capacity.skew import Large, shares

TODAY = date(2026, 11, 21)
T = 1 << 40
NONE = Large(0, 1)
SIZES = st.lists(st.floats(0, 10 * T), min_size=2, max_size=60)


def demand(rps: float = 2_000, days: int = 90) -> Demand:
    return Demand(from_rate(rps, 1785), [], TODAY, days, Server())


def asked(
    workers: int = 6, shards: int = 64, disk: float | None = 12 * T, large: Large = NONE
) -> Cluster:
    return Cluster(workers, shards, 50 << 20, disk, large)


def test_versions_of_a_day_have_the_median_and_the_99th_percentile_of_the_simulator() -> None:
    assert skew.MEDIAN == 4
    assert 0.72 < skew.SIGMA < 0.74
    assert 5.2 < skew.MEAN < 5.3
    assert skew.applications(skew.MEAN * 1_000) == 1_000
    assert skew.applications(0) == 1


@settings(max_examples=60, deadline=None)
@given(
    shards=st.integers(2, 300),
    applications=st.integers(1, 20_000),
    count=st.integers(0, 2_000),
    part=st.floats(0, 1),
)
def test_shares_are_all_of_the_rows(
    shards: int, applications: int, count: int, part: float
) -> None:
    rows = 1e9
    large = Large(count, part * rows / count if count else 1)
    found = shares(shards, applications, rows, large)
    assert len(found) == shards
    assert min(found) >= 0
    assert sum(found) == pytest.approx(1)
    assert list(found) == list(shares(shards, applications, rows, large))
    if count == 1:
        assert max(found) >= part * (1 - 1e-9)


@pytest.mark.parametrize("count", [skew.MOST_DRAWN, skew.MOST_DRAWN + 1])
def test_a_sum_that_is_drawn_at_once_spreads_as_drawn_items_do(count: int) -> None:
    found = shares(512, count, 1e9, NONE)
    mean = 1 / 512
    deviation = (sum((each - mean) ** 2 for each in found) / 512) ** 0.5
    # Versions of 195 applications in a shard: sqrt(exp(sigma^2) / 195), rounded ones a little more.
    assert deviation / mean == pytest.approx(0.0935, rel=0.1)
    large = shares(512, 10**9, 1e9, Large(count, 1e9 / count))
    deviation = (sum((each - mean) ** 2 for each in large) / 512) ** 0.5
    assert deviation / mean == pytest.approx((512 / count) ** 0.5, rel=0.1)


def test_few_very_large_applications_make_shards_uneven_and_many_do_not() -> None:
    rows = demand().rows
    even = shares(64, 10**7, rows, NONE)
    some = shares(64, 10**7, rows, Large(3_000, 10_000))
    one = shares(64, 10**7, rows, Large(1, rows / 10))
    assert max(even) < max(some) < 1.01 / 64
    assert max(one) > 0.1


@given(sizes=SIZES, workers=st.integers(1, 20))
def test_each_shard_is_on_one_worker_and_workers_have_alike_many(
    sizes: list[float], workers: int
) -> None:
    placed = Workers(sizes, workers)
    counts = [len(mine) for mine in placed.shards]
    assert sum(counts) == len(sizes) == len(set().union(*placed.shards))
    assert max(counts) - min(counts) <= 1
    assert sum(placed.held()) == pytest.approx(sum(sizes))


@settings(max_examples=200, deadline=None)
@given(sizes=SIZES, workers=st.integers(1, 12))
def test_a_rebalance_loses_nothing_and_makes_no_worker_fuller_than_the_fullest(
    sizes: list[float], workers: int
) -> None:
    placed = Workers(sizes, workers)
    fullest = max(held + len(mine) * BASE_COST for held, mine in _both(placed))
    before = [set(mine) for mine in placed.shards]
    placed.add()
    moves = placed.rebalance()
    assert sum(len(mine) for mine in placed.shards) == len(set().union(*placed.shards))
    assert len(set().union(*placed.shards)) == len(sizes)
    after = max(held + len(mine) * BASE_COST for held, mine in _both(placed))
    assert after <= fullest * (1 + 1e-9)
    for move in moves:
        assert move.source != move.target
    assert placed.rebalance() == []
    untouched = set(range(workers)) - {each for m in moves for each in (m.source, m.target)}
    assert all(placed.shards[worker] == before[worker] for worker in untouched)


def _both(placed: Workers) -> zip[tuple[float, set[int]]]:
    return zip(placed.held(), placed.shards, strict=True)


@given(each=st.integers(10, 40), workers=st.integers(1, 15))
def test_equal_shards_only_go_to_the_new_worker_until_it_has_its_part(
    each: int, workers: int
) -> None:
    placed = Workers([float(T)] * (each * workers), workers)
    placed.add()
    moves = placed.rebalance()
    assert {move.target for move in moves} == {workers}
    mean = each * workers / (workers + 1)
    assert (1 - THRESHOLD) * mean <= len(moves) <= mean + 1


def test_the_plan_is_of_what_the_whole_needs() -> None:
    wanted = demand()
    found = plan(asked(), wanted, [0.0, 0.25])
    assert sum(found.sizes) == pytest.approx(wanted.bytes)
    assert sum(found.rebalance.before) == pytest.approx(wanted.bytes)
    assert sum(found.rebalance.after) == pytest.approx(wanted.bytes)
    assert found.rebalance.hours == pytest.approx(found.rebalance.bytes / (50 << 20) / 3600)
    assert (len(found.rebalance.before), len(found.rebalance.after)) == (6, 7)
    assert found.most_tables == 5 * 91 * 11
    assert set(found.outlooks) == {0.0, 0.25}


def test_a_shard_is_too_large_for_its_disk_or_for_the_time_that_it_takes() -> None:
    found = plan(asked(disk=12 * T), demand(), [0.0])
    assert found.limit == pytest.approx(1.2 * T)
    assert found.by_disk
    found = plan(asked(disk=100 * T), demand(), [0.0])
    assert (found.limit, found.by_disk) == ((50 << 20) * 86_400, False)
    assert plan(asked(disk=None), demand(), [0.0]).by_disk is False


@settings(max_examples=15, deadline=None)
@given(days=st.integers(1, 200), shards=st.integers(2, 200))
def test_the_day_is_the_first_on_which_the_largest_shard_exceeds_the_limit(
    days: int, shards: int
) -> None:
    wanted = demand(days=days)
    a_day = sum(load.rows_per_day * (load.data + load.index) for load in wanted.loads)
    largest = max(wanted.shares(shards, NONE))
    # The limit is between what the largest shard has after `number` days and after one more.
    for number in (0, days // 2, days):
        limit = (number + 0.5) * a_day * largest
        disk = limit / cluster.MOST_OF_A_DISK
        slow = Cluster(1, shards, 1e15, disk, NONE)
        found = plan(slow, wanted, [0.0]).outlooks[0.0].too_large_on
        assert found == TODAY + timedelta(days=number)
    fits = Cluster(1, shards, 1e15, (days + 1.5) * a_day * largest / 0.1, NONE)
    assert plan(fits, wanted, [0.0]).outlooks[0.0].too_large_on is None


@settings(max_examples=15, deadline=None)
@given(
    rps=st.floats(50, 50_000),
    workers=st.integers(1, 60),
    disk=st.floats(4 * T, 40 * T),
    growth=st.floats(-0.2, 0.6),
)
def test_the_named_numbers_of_shards_and_workers_are_enough_for_three_years(
    rps: float, workers: int, disk: float, growth: float
) -> None:
    wanted = demand(rps)
    found = plan(asked(workers, 64, disk), wanted, [growth]).outlooks[growth]
    if found.shards is None:
        return
    later = TODAY + timedelta(days=cluster.PLANNED)
    again = plan(asked(workers, found.shards, disk), wanted, [growth]).outlooks[growth]
    assert again.too_large_on is None or again.too_large_on > later
    if found.shards > 32 and found.shards // 2 >= 2 * workers:
        half = plan(asked(workers, found.shards // 2, disk), wanted, [growth]).outlooks[growth]
        assert half.too_large_on is not None
        assert half.too_large_on <= later
    assert found.workers is not None
    held = plan(asked(found.workers, found.shards, disk), wanted, [growth]).outlooks[growth]
    assert held.full_on is None or held.full_on > later


def test_growth_comes_sooner_and_no_load_never() -> None:
    found = plan(asked(shards=96), demand(), [0.0, 0.25, 1.0]).outlooks
    assert found[0.0].too_large_on is None
    assert found[0.25].too_large_on is not None is not found[1.0].too_large_on
    assert found[1.0].too_large_on < found[0.25].too_large_on
    empty = Demand([Load("t", 0, 1_800, 80)], [], TODAY, 90, Server())
    none = plan(asked(), empty, [0.0])
    assert none.outlooks[0.0].too_large_on is None
    assert none.rebalance.bytes == 0


def test_a_disk_that_no_number_of_shards_makes_small_enough_is_said() -> None:
    found = plan(asked(disk=1 << 30), demand(100_000), [0.0]).outlooks[0.0]
    assert (found.shards, found.workers) == (None, None)
    assert found.too_large_on == TODAY


def test_one_application_with_most_rows_fits_into_no_smaller_shard() -> None:
    rows = demand().rows
    large = Large(1, rows / 2)
    found = plan(asked(large=large), demand(), [0.0])
    assert found.one_large == pytest.approx(demand().bytes / 2)
    assert found.outlooks[0.0].shards is None
