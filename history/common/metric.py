"""Makes metrics and keeps their descriptions, from which docs/metrics.md is generated.

Each app has a register with all its metrics in its `metrics.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily

# The client library would add a second series, `_created`, for each counter.
disable_created_metrics()  # type: ignore[no-untyped-call]


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class OpenValues:
    """Declares that a metric's label has no fixed values: they come from configuration or data."""

    description: str  # a phrase that says which values are possible


Values = Sequence[str] | OpenValues


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """A metric as Prometheus sees it."""

    name: str  # for a counter with `_total`
    kind: MetricKind
    unit: str  # in the plural
    text: str  # one sentence
    labels: dict[str, Values]  # all values of each label; Prometheus adds `job` and `instance`

    def list_sample_names(self) -> tuple[str, ...]:
        """Return the names by which queries find the series of this metric."""
        if self.kind is MetricKind.HISTOGRAM:
            return tuple(f"{self.name}_{ending}" for ending in ("bucket", "sum", "count"))
        return (self.name,)


class MetricRegister:
    """The metrics of an app. All metrics are made by methods of this class.

    Args:
        where: A phrase that says which process exposes these metrics.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.descriptions: dict[str, MetricDescription] = {}

    def add_counter(self, name: str, unit: str, text: str, **labels: Values) -> Counter:
        """Make a counter of this process.

        If all values of its labels are known, all its series exist from the start.
        """
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
        """Register a gauge with samples that a collector computes at each scrape.

        Returns:
            A function that makes the metric's family without samples.
        """
        self._describe(MetricDescription(name, MetricKind.GAUGE, unit, text, labels))
        return lambda: GaugeMetricFamily(name, text, labels=list(labels))

    def _describe(self, metric: MetricDescription) -> None:
        if metric.name in self.descriptions:
            raise ValueError(f"{metric.name} is in the register already")
        self.descriptions[metric.name] = metric


def fill_family(
    make: Callable[[], GaugeMetricFamily], samples: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    """Make the family of a metric and add its samples.

    Args:
        samples: Pairs. First the values of the labels, then the value of the metric.
    """
    family = make()
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def build_single(make: Callable[[], GaugeMetricFamily], value: float) -> GaugeMetricFamily:
    """Make the family of a metric that has no labels, with its value."""
    return fill_family(make, [((), value)])
