"""The target distribution of the load, and the numbers from which it is drawn."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final, Generic, TypeVar

# The target: bytes of a message value at a quantile (0 is the smallest, 1 the largest).
TARGET_SIZES: Final[Mapping[float, int]] = {
    0.0: 260,
    0.25: 1_356,
    0.5: 1_647,
    0.75: 1_934,
    0.9: 2_650,
    0.95: 3_310,
    0.99: 6_501,
    1.0: 36_864,
}
TARGET_MEAN: Final = 1_785
TARGET_VERSIONS: Final[Mapping[float, int]] = {0.5: 4, 0.95: 12, 0.99: 22}
TARGET_PRODUCT_SHARE: Final = 0.80

LEAST_BYTES: Final = TARGET_SIZES[0.0]
MOST_BYTES: Final = TARGET_SIZES[1.0]

# Children are the small documents: they share the lowest fifth of the sizes, as they share a
# fifth of the messages; product instances take the rest.
CHILD_SIZES_BELOW: Final = 0.20

# Bytes of a whole message by quantile. The points between the target quantiles make small messages
# more frequent, which brings the mean down to the target.
_SIZE_POINTS: Final[Sequence[tuple[float, int]]] = (
    (0.0, 300),
    (0.01, 340),
    (0.04, 540),
    (0.1, 850),
    (0.17, 1_130),
    (0.25, 1_372),
    (0.375, 1_520),
    (0.5, 1_665),
    (0.625, 1_795),
    (0.75, 1_950),
    (0.83, 2_160),
    (0.9, 2_690),
    (0.925, 2_920),
    (0.95, 3_350),
    (0.97, 3_800),
    (0.99, 6_420),
    (0.995, 7_300),
    (0.999, 11_500),
    (1.0, 35_500),
)

# Weights of the number of versions of a document. Separate for product instances and children, so
# that product instances are 80% of the messages and both together have the target quantiles.
PRODUCT_VERSIONS: Final[Mapping[int, float]] = {
    1: 1.0, 2: 1.5, 3: 2.0, 4: 3.0, 5: 8.0, 6: 11.0, 7: 12.0, 8: 12.0, 9: 11.0, 10: 9.5,
    11: 8.5, 12: 12.5, 13: 1.5, 14: 1.3, 15: 1.1, 16: 0.9, 17: 0.8, 18: 0.7, 19: 0.6, 20: 0.5,
    21: 0.4, 22: 1.4, 24: 0.4, 27: 0.4, 31: 0.3, 36: 0.3, 42: 0.2, 50: 0.1,
}  # fmt: skip
CHILD_VERSIONS: Final[Mapping[int, float]] = {
    1: 66.0, 2: 11.0, 3: 5.0, 4: 12.5, 5: 3.0, 6: 2.0, 8: 0.5,
}  # fmt: skip

# Chance that an application of a kind has a child of a role.
MORTGAGE, CAR_LOAN, CONSUMER_LOAN = "mortgage", "car", "consumer"
KINDS: Final[Mapping[str, float]] = {MORTGAGE: 0.24, CAR_LOAN: 0.16, CONSUMER_LOAN: 0.60}
ROLES: Final[Mapping[str, Mapping[str, float]]] = {
    MORTGAGE: {
        "BORROWER": 1.0,
        "CO_BORROWER": 0.35,
        "GUARANTOR": 0.06,
        "REALTY": 0.55,
        "TASK": 0.30,
    },
    CAR_LOAN: {"BORROWER": 0.95, "GUARANTOR": 0.05, "CAR": 0.60, "TASK": 0.10},
    CONSUMER_LOAN: {"BORROWER": 0.76, "TASK": 0.04},
}


def size_at(quantile: float) -> int:
    """Bytes of a message value at a quantile in 0..1."""
    place = min(max(bisect_left(_SIZE_POINTS, (quantile,)), 1), len(_SIZE_POINTS) - 1)
    (low, least), (high, most) = _SIZE_POINTS[place - 1 : place + 1]
    return round(least + (most - least) * (quantile - low) / (high - low))


T = TypeVar("T")


class Weighted(Generic[T]):
    """Values with weights, looked up by a number in 0..1 in the order they were given."""

    def __init__(self, weights: Mapping[T, float]) -> None:
        self._values = tuple(weights)
        total = sum(weights.values())
        self._ends = [end / total for end in accumulate(weights.values())]

    def at(self, quantile: float) -> T:
        return self._values[min(bisect_left(self._ends, quantile), len(self._values) - 1)]


class Spread:
    """Numbers in 0..1 that fill the range evenly, even if only a few are taken.

    An additive recurrence: with plain random draws a short run would miss the target quantiles
    by chance; here the error falls as 1/n instead of 1/sqrt(n). Two spreads with different
    steps of `STEPS` fill the square evenly too.
    """

    def __init__(self, start: float, step: float) -> None:
        self._value = start % 1.0
        self._step = step

    def next(self) -> float:
        self._value = (self._value + self._step) % 1.0
        return self._value


# Powers of the inverse of the root of x^4 = x + 1: independent steps for three dimensions.
STEPS: Final = (0.8191725133961645, 0.6710436067037893, 0.5497004779019703)
