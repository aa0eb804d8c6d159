"""Prints the results of a soak, and judges whether memory and open handles grow.

Growth is the slope of a least-squares line through means of blocks of samples, with its 95%
confidence interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import linear_regression, mean, pvariance

from tests.soak.logs import summarize_logs
from tests.soak.run import Soak
from tests.soak.samples import Sample

# Limits of growth: MB and handles an hour, or in total for a short run.
MEMORY_PER_HOUR, MEMORY_SHORT = 10.0, 24.0
HANDLES_PER_HOUR, HANDLES_SHORT = 4.0, 8.0
# Servers that are not part of Annals. The heap of the broker, a Java program, fills until it is
# collected.
NOT_JUDGED = ("broker", "postgres")
# Neighbouring samples depend on each other. Means of blocks of samples are nearly independent.
BLOCKS = 12
STUDENT_QUANTILE = 2.228  # for 95% and BLOCKS - 2 degrees of freedom
# The share of samples at the start that does not count, because caches still fill.
WARM_UP = 0.25
SHORT_HOURS = 0.4


def print_report(soak: Soak) -> int:
    """Print facts, log lines and faults of a soak. Return 1 if there is a fault, otherwise 0."""
    result, log = soak.result, summarize_logs(soak.stand.logs, soak.restarts)
    for subject, value in result.facts:
        print(f"{subject:<24}{value}")
    print(f"\n{'process':<14}{'MB at end':>10}{'RSS':>8}{'handles':>9}   slopes (95%)")
    faults = [*result.faults]
    faults += [f"in the log, {count} times: {kind}" for kind, count in log.unexpected.items()]
    if result.sampler is not None:
        for name, series in sorted(result.sampler.series.items()):
            faults += _judge_process(name, series)
    print("\nlog lines that nobody expected")
    for kind, count in log.unexpected.most_common():
        print(f"{count:>9,}  {kind}\n           {log.examples[kind]}")
    print()
    for fault in faults:
        print(f"WRONG: {fault}")
    print(f"{len(faults)} faults" if faults else "All right.")
    return 1 if faults else 0


def _judge_process(name: str, series: list[tuple[float, Sample]]) -> list[str]:
    last = series[-1][1]
    memory = estimate_slope([(moment, sample.private) for moment, sample in series])
    handles = estimate_slope([(moment, float(sample.handles)) for moment, sample in series])
    line = f"{name:<14}{last.private:>10.1f}{last.rss:>8.0f}{last.handles:>9}   "
    if memory is None or handles is None:
        print(line + "too few samples")
        return []
    verdicts = (
        memory.judge_growth(MEMORY_PER_HOUR, MEMORY_SHORT),
        handles.judge_growth(HANDLES_PER_HOUR, HANDLES_SHORT),
    )
    print(
        f"{line}{memory.per_hour:+.1f} ± {memory.error:.1f} MB/h {verdicts[0]}, "
        f"{handles.per_hour:+.1f} ± {handles.error:.1f} handles/h {verdicts[1]}"
        f"{' (not judged)' if name in NOT_JUDGED else ''}"
    )
    grows = "GROWS" in verdicts and name not in NOT_JUDGED
    return [f"{name} grows: {memory}, {handles}"] if grows else []


@dataclass(frozen=True)
class Slope:
    """The growth of a series of samples, with a confidence interval."""

    per_hour: float
    error: float  # of per_hour, with 95% confidence
    hours: float  # the length of the series

    def judge_growth(self, per_hour: float, short: float) -> str:
        """Return `flat` if growth is surely below the limit, `GROWS` if surely above, or `unclear`.

        Args:
            per_hour: The limit of the growth in an hour.
            short: The limit of the total growth in a run that is shorter than SHORT_HOURS.
        """
        limit = per_hour if self.hours >= SHORT_HOURS else short / self.hours
        if self.per_hour - self.error > limit:
            return "GROWS"
        return "flat" if self.per_hour + self.error <= limit else "unclear"


def estimate_slope(series: Sequence[tuple[float, float]]) -> Slope | None:
    """Return the slope of a series, or None if it has too few points.

    Args:
        series: Pairs of seconds and value, in the order of time.
    """
    if not series:
        return None
    begin, end = series[0][0], series[-1][0]
    warmed_up = [point for point in series if point[0] >= begin + (end - begin) * WARM_UP]
    if len(warmed_up) < 2 * BLOCKS:
        return None
    size = len(warmed_up) / BLOCKS
    blocks = [warmed_up[round(n * size) : round((n + 1) * size)] for n in range(BLOCKS)]
    xs = [mean(x for x, _ in block) / 3600 for block in blocks]
    ys = [mean(y for _, y in block) for block in blocks]
    rise, start = linear_regression(xs, ys)
    residual_sum = sum((y - start - rise * x) ** 2 for x, y in zip(xs, ys, strict=True))
    error = STUDENT_QUANTILE * sqrt(residual_sum / (BLOCKS - 2) / (BLOCKS * pvariance(xs)))
    return Slope(rise, error, (warmed_up[-1][0] - warmed_up[0][0]) / 3600)
