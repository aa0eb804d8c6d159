"""Prints what a soak came to, and judges the slopes."""

from __future__ import annotations

from tests.soak.logs import summary
from tests.soak.run import Soak
from tests.soak.samples import Sample
from tests.soak.slopes import slope

# What may grow: MB and handles an hour; in a short run, in all.
MEMORY_PER_HOUR, MEMORY_SHORT = 10.0, 24.0
HANDLES_PER_HOUR, HANDLES_SHORT = 4.0, 8.0
# Their memory is their own business: the broker is Java, whose heap fills until it is collected.
NOT_OURS = ("broker", "postgres")


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
    print("\nlog lines by kind (20 most frequent, and all that nobody expected)")
    for kind, count in log.kinds.most_common(20):
        print(f"{count:>9,}  {kind}")
    for kind, count in log.unexpected.most_common():
        print(f"{count:>9,}  UNEXPECTED {kind}\n           {log.examples[kind]}")
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
