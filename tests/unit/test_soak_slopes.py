"""What the soak calls flat and what it calls growing."""

from __future__ import annotations

import random

import pytest

from tests.soak.report import slope


def series(per_hour: float, noise: float, hours: float = 1.0) -> list[tuple[float, float]]:
    """360 samples of something that first warms up, then grows."""
    made = random.Random(1)
    found = []
    for number in range(360):
        at = number / 360 * hours
        warm = min(at / hours * 8, 1.0) * 50
        found.append((at * 3600, 100 + warm + per_hour * at + made.gauss(0, noise)))
    return found


@pytest.mark.parametrize(
    "per_hour, noise, verdict",
    [(0, 2, "flat"), (-5, 2, "flat"), (3, 1, "flat"), (25, 2, "GROWS"), (11, 30, "unclear")],
)
def test_the_verdict(per_hour: float, noise: float, verdict: str) -> None:
    found = slope(series(per_hour, noise))
    assert found is not None
    assert abs(found.per_hour - per_hour) <= 2 * found.error
    assert found.verdict(10, 24) == verdict


def test_a_short_run_is_judged_by_its_growth() -> None:
    """200 MB an hour are 5 MB in 1.5 of 2 minutes: nothing can be said of that."""
    found = slope(series(200, 0.5, hours=1 / 30))
    assert found is not None
    assert found.verdict(10, 24) == "flat"
    leaking = slope(series(3_000, 0.5, hours=1 / 30))
    assert leaking is not None
    assert leaking.verdict(10, 24) == "GROWS"


def test_too_few_samples() -> None:
    assert slope([]) is None
    assert slope([(0, 1), (1, 2)]) is None
