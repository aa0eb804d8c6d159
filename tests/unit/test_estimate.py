"""Estimates from blocks: exact from all of them, and else as far from the truth as they say."""

from __future__ import annotations

import random

import pytest

from history.capacity.estimate import (
    MOST_SERVICES,
    OTHER,
    Brought,
    Kind,
    SampledRow,
    Table,
    choose,
    estimate,
)

N, T, R, F = Kind.NOTHING, Kind.TECHNICAL, Kind.REAL, Kind.FIRST


def test_all_blocks_give_the_truth() -> None:
    rows = [
        SampledRow(0, "a", 100, F),
        SampledRow(0, "a", 300, N),
        SampledRow(1, "a", 100, T),
        SampledRow(1, "b", 400, R),
        SampledRow(1, "b", 100, N),
    ]
    both, found = estimate(rows, [0, 1, 2], Table(3, 2_000, 500))
    assert set(found) == {"a", "b"}
    a, b = found["a"], found["b"]
    assert (a.all.versions, b.all.versions) == (pytest.approx(3), pytest.approx(2))
    assert (a.nothing.versions, a.technical.versions) == (pytest.approx(1), pytest.approx(1))
    assert (b.nothing.versions, b.technical.versions) == (pytest.approx(1), 0)
    # 2 bytes of the table for each of weight, and 100 of the indexes for each row.
    assert (a.all.bytes, b.all.bytes) == (pytest.approx(1_300), pytest.approx(1_200))
    assert (a.nothing.bytes, a.technical.bytes, b.nothing.bytes) == (
        pytest.approx(700),
        pytest.approx(300),
        pytest.approx(300),
    )
    assert (a.sampled, b.sampled) == (3, 2)
    assert both.all.bytes == pytest.approx(2_500)
    for amount in (both.all, both.nothing, both.technical):
        assert (amount.versions_error, amount.bytes_error) == (0, 0)


def test_a_table_without_rows() -> None:
    assert estimate([], [], Table(0, 0, 8_192)) == (Brought(), {})
    assert estimate([], [0, 1], Table(2, 16_384, 8_192)) == (Brought(), {})


def test_small_services_count_together() -> None:
    rows = [SampledRow(0, f"s{n}", 1, R) for n in range(MOST_SERVICES + 5)]
    rows += [SampledRow(0, "s34", 1, R), SampledRow(0, "s33", 1, R)]
    _, found = estimate(rows, [0], Table(1, 1_000, 0))
    assert len(found) == MOST_SERVICES + 1
    assert found[OTHER].all.versions == pytest.approx(5)
    assert {"s33", "s34"} < set(found)
    assert sum(each.all.bytes for each in found.values()) == pytest.approx(1_000)


def test_the_same_blocks_each_time() -> None:
    chosen = choose("product_instance_aud_20260329", 5_000, 100)
    assert chosen == choose("product_instance_aud_20260329", 5_000, 100) == sorted(set(chosen))
    assert len(chosen) == 100
    assert chosen != choose("product_instance_aud_20260330", 5_000, 100)
    assert choose("x", 7, 100) == [0, 1, 2, 3, 4, 5, 6]


def test_what_the_sample_does_not_have_may_be_there() -> None:
    """100 of 1,000 rows, all real: technical ones may be up to 3 in 100."""
    rows = [SampledRow(block, "a", 100, R) for block in range(100)]
    total, found = estimate(rows, range(100), Table(1_000, 100_000, 0))
    for each in (total, found["a"]):
        assert (each.all.versions, each.all.versions_error) == (pytest.approx(1_000), 0)
        assert (each.technical.versions, each.nothing.versions) == (0, 0)
        assert each.technical.versions_error == pytest.approx(30)
        assert each.nothing.bytes_error == pytest.approx(3_000)


def day(blocks: int) -> list[list[SampledRow]]:
    """The rows of each block. One service comes in bursts, so that rows of a block are alike."""
    made = random.Random(3)
    found: list[list[SampledRow]] = []
    for block in range(blocks):
        burst = made.random() < 0.2
        rows = []
        for _ in range(made.randint(2, 6)):
            client = "burst" if burst and made.random() < 0.9 else "usual"
            kind = made.choices(
                (N, T, R), (0.3, 0.2, 0.5) if client == "usual" else (0.7, 0.2, 0.1)
            )
            rows.append(SampledRow(block, client, made.uniform(500, 3_000), kind[0]))
        found.append(rows)
    return found


def test_the_error_is_as_large_as_it_says() -> None:
    """300 samples of 60 of 1,000 blocks: about 95% are nearer to the truth than their error."""
    blocks = day(1_000)
    table = Table(1_000, sum(row.weight for rows in blocks for row in rows), 50_000)
    whole, true = estimate([row for rows in blocks for row in rows], range(1_000), table)
    truth = true["burst"]
    near = dict.fromkeys(("share", "bytes", "nothing", "nothing of all"), 0)
    samples = 300
    for number in range(samples):
        chosen = choose(f"sample {number}", 1_000, 60)
        rows = [row for block in chosen for row in blocks[block]]
        total, found = estimate(rows, chosen, table)
        burst, all_ = found["burst"], total.all.versions
        near["share"] += inside(
            burst.all.versions / all_,
            truth.all.versions / whole.all.versions,
            burst.all.versions_error / all_,
        )
        near["bytes"] += inside(burst.all.bytes, truth.all.bytes, burst.all.bytes_error)
        near["nothing"] += inside(
            burst.nothing.versions / burst.all.versions,
            truth.nothing.versions / truth.all.versions,
            burst.nothing.versions_error / burst.all.versions,
        )
        near["nothing of all"] += inside(
            total.nothing.versions / all_,
            whole.nothing.versions / whole.all.versions,
            total.nothing.versions_error / all_,
        )
    assert all(count >= 0.88 * samples for count in near.values()), near
    # An error that is always large enough is too large.
    assert all(count <= 0.99 * samples for count in near.values()), near


def inside(found: float, true: float, error: float) -> bool:
    return abs(found - true) <= error
