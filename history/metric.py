"""Makes metrics and keeps what each one is. docs/metrics.md is generated from that.

The register of an app, with all its metrics, is in its `metrics.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import TypeVar

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

# They would be a second series for each counter.
disable_created_metrics()  # type: ignore[no-untyped-call]

Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Open:
    """The values of a label that configuration or data decide. what: a phrase that says which."""

    what: str


Values = Sequence[str] | Open


@dataclass(frozen=True, slots=True)
class Described:
    """A metric as Prometheus sees it.

    name: with `_total` for a counter. unit: in the plural. text: one sentence. labels: all values
    that each may have. Prometheus adds `job` and `instance`.
    """

    name: str
    kind: Kind
    unit: str
    text: str
    labels: dict[str, Values]

    def samples(self) -> tuple[str, ...]:
        """The names that queries use."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(f"{self.name}_{ending}" for ending in ("bucket", "sum", "count"))
        return (self.name,)


class Register:
    """The metrics of an app. Its methods are the only place where metrics are made.

    where: a phrase that says which process gives them.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.described: dict[str, Described] = {}

    def counter(self, name: str, unit: str, text: str, **labels: Values) -> Counter:
        """A counter of this process. Where all values of its labels are known, each combination
        starts with 0: Prometheus sees no increase from nothing to 1."""
        self._describe(Described(name, Kind.COUNTER, unit, text, labels))
        made = Counter(name, text, list(labels))
        closed = [values for values in labels.values() if not isinstance(values, Open)]
        if 0 < len(closed) == len(labels):
            for combination in product(*closed):
                made.labels(*combination)
        return made

    def gauge(self, name: str, unit: str, text: str, **labels: Values) -> Gauge:
        """A gauge of this process."""
        self._describe(Described(name, Kind.GAUGE, unit, text, labels))
        return Gauge(name, text, list(labels))

    def histogram(
        self, name: str, unit: str, text: str, buckets: Sequence[float], **labels: Values
    ) -> Histogram:
        """A histogram of this process. buckets: upper limits, ascending, without infinity."""
        self._describe(Described(name, Kind.HISTOGRAM, unit, text, labels))
        return Histogram(name, text, list(labels), buckets=buckets)

    def collected_counter(
        self, name: str, unit: str, text: str, **labels: Values
    ) -> Callable[[], CounterMetricFamily]:
        """A counter that a collector reads at each scrape: the result makes an empty family."""
        self._describe(Described(name, Kind.COUNTER, unit, text, labels))
        return lambda: CounterMetricFamily(name, text, labels=list(labels))

    def collected_gauge(
        self, name: str, unit: str, text: str, **labels: Values
    ) -> Callable[[], GaugeMetricFamily]:
        """A gauge that a collector reads at each scrape: the result makes an empty family."""
        self._describe(Described(name, Kind.GAUGE, unit, text, labels))
        return lambda: GaugeMetricFamily(name, text, labels=list(labels))

    def _describe(self, metric: Described) -> None:
        if metric.name in self.described:
            raise ValueError(f"{metric.name} is in the register already")
        if metric.name.endswith("_total") != (metric.kind is Kind.COUNTER):
            raise ValueError(f"the names of counters, and no others, end with _total: {metric}")
        self.described[metric.name] = metric


def single(make: Callable[[], Family], value: float) -> Family:
    """The family of a metric without labels, with its value."""
    family = make()
    family.add_metric([], value)
    return family


def faults(families: Iterable[Metric], registers: Iterable[Register]) -> Iterator[str]:
    """What is wrong with families of ours that a process gave: in no register, or with other
    labels or values of labels than the register says. Empty families are right."""
    known = {name: metric for each in registers for name, metric in each.described.items()}
    for family in families:
        if not family.name.startswith("annals_"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        described = known.get(name)
        if described is None or described.kind != family.type:
            yield f"{name}: no {family.type} of a register"
            continue
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key != "le"}
            if set(labels) != set(described.labels):
                yield f"{name}: has the labels {sorted(labels)}"
            else:
                yield from (
                    f"{name}: the label {key} has the value {value!r}"
                    for key, value in labels.items()
                    if not _allowed(described.labels[key], value)
                )


def _allowed(values: Values, value: str) -> bool:
    return isinstance(values, Open) or value in values
