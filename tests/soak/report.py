"""Prints what a soak came to, and judges whether a series grows: by its slope, least squares over
means of blocks, with its confidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import linear_regression, mean, pvariance

from tests.soak.logs import summary
from tests.soak.run import Soak
from tests.soak.samples import Sample

# What may grow: MB and handles an hour; in a short run, in all.
MEMORY_PER_HOUR, MEMORY_SHORT = 10.0, 24.0
HANDLES_PER_HOUR, HANDLES_SHORT = 4.0, 8.0
# Their memory is their own business: the broker is Java, whose heap fills until it is collected.
NOT_OURS = ("broker", "postgres")
# Neighbouring samples resemble each other, so that each of them says little; means of blocks are
# nearly independent. T: Student's quantile for 95% and BLOCKS - 2 degrees of freedom.
BLOCKS = 12
T = 2.228
# What comes before is warming up: caches fill, pages of the code are read.
WARM_UP = 0.25
SHORT_HOURS = 0.4


def report(soak: Soak) -> int:
    """Print everything; returns the exit code."""
    result, log = soak.result, summary(soak.stand.logs, soak.restarts)
    for what, value in result.facts:
        print(f"{what:<24}{value}")
    print(f"\n{'process':<14}{'MB at end':>10}{'RSS':>8}{'handles':>9}   slopes (95%)")
    faults = [*result.faults]
    faults += [f"in the log, {count} times: {kind}" for kind, count in log.unexpected.items()]
    if result.sampler is not None:
        for name, series in sorted(result.sampler.series.items()):
            faults += _process(name, series)
    print("\nlog lines that nobody expected")
    for kind, count in log.unexpected.most_common():
        print(f"{count:>9,}  {kind}\n           {log.examples[kind]}")
    print()
    for fault in faults:
        print(f"WRONG: {fault}")
    print(f"{len(faults)} faults" if faults else "All right.")
    return 1 if faults else 0


def _process(name: str, series: list[tuple[float, Sample]]) -> list[str]:
    last = series[-1][1]
    memory = slope([(at, each.private) for at, each in series])
    handles = slope([(at, float(each.handles)) for at, each in series])
    line = f"{name:<14}{last.private:>10.1f}{last.rss:>8.0f}{last.handles:>9}   "
    if memory is None or handles is None:
        print(line + "too few samples")
        return []
    verdicts = (
        memory.verdict(MEMORY_PER_HOUR, MEMORY_SHORT),
        handles.verdict(HANDLES_PER_HOUR, HANDLES_SHORT),
    )
    print(
        f"{line}{memory.per_hour:+.1f} ± {memory.error:.1f} MB/h {verdicts[0]}, "
        f"{handles.per_hour:+.1f} ± {handles.error:.1f} handles/h {verdicts[1]}"
        f"{' (not judged)' if name in NOT_OURS else ''}"
    )
    grows = "GROWS" in verdicts and name not in NOT_OURS
    return [f"{name} grows: {memory}, {handles}"] if grows else []


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
    xs = [mean(x for x, _ in block) / 3600 for block in blocks]
    ys = [mean(y for _, y in block) for block in blocks]
    rise, start = linear_regression(xs, ys)
    left = sum((y - start - rise * x) ** 2 for x, y in zip(xs, ys, strict=True))
    error = T * sqrt(left / (BLOCKS - 2) / (BLOCKS * pvariance(xs)))
    return Slope(rise, error, (late[-1][0] - late[0][0]) / 3600)
