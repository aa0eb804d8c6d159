"""Whether a series grows: its slope by least squares over means of blocks, with its confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

# Neighbouring samples resemble each other, so that each of them says little; means of blocks are
# nearly independent. T: Student's quantile for 95% and BLOCKS - 2 degrees of freedom.
BLOCKS = 12
T = 2.228
# What comes before is warming up: caches fill, pages of the code are read.
WARM_UP = 0.25
SHORT_HOURS = 0.4


@dataclass(frozen=True)
class Slope:
    """Growth per hour, plus or minus error (95%), over so many hours."""

    per_hour: float
    error: float
    hours: float

    def verdict(self, per_hour: float, short: float) -> str:
        """flat: it certainly grows by less than this per hour. grows: it certainly grows by more.
        Else unclear. short: the limit of the growth in a run that is too short for a rate."""
        limit = per_hour if self.hours >= SHORT_HOURS else short / self.hours
        if self.per_hour - self.error > limit:
            return "GROWS"
        return "flat" if self.per_hour + self.error <= limit else "unclear"


def slope(series: Sequence[tuple[float, float]]) -> Slope | None:
    """The slope of (seconds, value), ordered by time; None if there are too few for BLOCKS."""
    if not series:
        return None
    begin, end = series[0][0], series[-1][0]
    late = [each for each in series if each[0] >= begin + (end - begin) * WARM_UP]
    if len(late) < 2 * BLOCKS:
        return None
    size = len(late) / BLOCKS
    blocks = [late[round(n * size) : round((n + 1) * size)] for n in range(BLOCKS)]
    xs = [sum(x for x, _ in block) / len(block) / 3600 for block in blocks]
    ys = [sum(y for _, y in block) / len(block) for block in blocks]
    mean_x, mean_y = sum(xs) / BLOCKS, sum(ys) / BLOCKS
    spread = sum((x - mean_x) ** 2 for x in xs)
    rise = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    left = sum((y - mean_y - rise * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    error = T * sqrt(left / (BLOCKS - 2) / spread)
    return Slope(rise, error, (late[-1][0] - late[0][0]) / 3600)
