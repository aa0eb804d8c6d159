"""Makes metrics and keeps what each one is. docs/metrics.md is generated from that.

The register of an app, with all its metrics, is in its `metrics.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily

# They would be a second series for each counter.
disable_created_metrics()  # type: ignore[no-untyped-call]


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class OpenValues:
    """The values of a label that configuration or data decide."""

    description: str  # a phrase that says which values there can be


Values = Sequence[str] | OpenValues


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """A metric as Prometheus sees it. name: with `_total` for a counter. unit: in the plural. text:
    one sentence. labels: all values of each; Prometheus adds `job` and `instance`."""

    name: str
    kind: MetricKind
    unit: str
    text: str
    labels: dict[str, Values]

    def list_sample_names(self) -> tuple[str, ...]:
        """Return the names that queries use."""
        if self.kind is MetricKind.HISTOGRAM:
            return tuple(f"{self.name}_{ending}" for ending in ("bucket", "sum", "count"))
        return (self.name,)


class MetricRegister:
    """The metrics of an app. Its methods are the only place where metrics are made. where: a phrase
    that says which process gives them."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.described: dict[str, MetricDescription] = {}

    def add_counter(self, name: str, unit: str, text: str, **labels: Values) -> Counter:
        """Make a counter of this process."""
        self._describe(MetricDescription(name, MetricKind.COUNTER, unit, text, labels))
        counter = Counter(name, text, list(labels))
        closed_values = [values for values in labels.values() if not isinstance(values, OpenValues)]
        if 0 < len(closed_values) == len(labels):
            for combination in product(*closed_values):
                counter.labels(*combination)
        return counter

    def add_gauge(self, name: str, unit: str, text: str, **labels: Values) -> Gauge:
        """Make a gauge of this process."""
        self._describe(MetricDescription(name, MetricKind.GAUGE, unit, text, labels))
        return Gauge(name, text, list(labels))

    def add_histogram(
        self, name: str, unit: str, text: str, buckets: Sequence[float], **labels: Values
    ) -> Histogram:
        """Make a histogram of this process.

        Args:
            buckets: Upper limits, ascending, without infinity.
        """
        self._describe(MetricDescription(name, MetricKind.HISTOGRAM, unit, text, labels))
        return Histogram(name, text, list(labels), buckets=buckets)

    def add_collected_gauge(
        self, name: str, unit: str, text: str, **labels: Values
    ) -> Callable[[], GaugeMetricFamily]:
        """Register a gauge that a collector fills at each scrape. The result makes its family."""
        self._describe(MetricDescription(name, MetricKind.GAUGE, unit, text, labels))
        return lambda: GaugeMetricFamily(name, text, labels=list(labels))

    def _describe(self, metric: MetricDescription) -> None:
        if metric.name in self.described:
            raise ValueError(f"{metric.name} is in the register already")
        self.described[metric.name] = metric


def fill_family(
    make: Callable[[], GaugeMetricFamily], samples: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    """Return the family of a metric with these samples: the values of its labels, and the value."""
    family = make()
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def build_single(make: Callable[[], GaugeMetricFamily], value: float) -> GaugeMetricFamily:
    """Return the family of a metric without labels, with its value."""
    return fill_family(make, [((), value)])
