"""How the days stand and when maintain ran last, as Prometheus metrics.

A command that ends cannot be scraped, so all of it is read from the database.
"""

from collections.abc import Iterator

from django.conf import settings
from prometheus_client.core import GaugeMetricFamily, Metric

from history import clock
from history.partitions import runs
from history.partitions.plan import Policy
from history.partitions.status import status

DAYS = {
    "missing": "Days inside the window without a partition",
    "overdue": "Days before the window that are still there, held ones among them",
    "pending": "Days whose detach an open transaction cut short",
}


def days() -> Iterator[Metric]:
    """Per table, what maintain has to do. The holds are not asked: they may have to look through a
    large quarantine, which is nothing for every scrape."""
    found = status(Policy.at(clock.now(), settings.ANNALS))
    for name, text in DAYS.items():
        family = GaugeMetricFamily(f"annals_store_days_{name}", text, labels=["table"])
        for table in found:
            family.add_metric([table.table], getattr(table, name))
        yield family


def last_run() -> Iterator[Metric]:
    """The latest run that came to its end; nothing where there was none yet."""
    latest = runs.latest()
    if latest is None:
        return
    yield GaugeMetricFamily(
        "annals_maintain_timestamp_seconds",
        "When the latest `partitions maintain` began",
        value=latest.started_at.timestamp(),
    )
    yield GaugeMetricFamily(
        "annals_maintain_exit_code",
        "What the latest `partitions maintain` ended with",
        value=latest.exit_code,
    )
    yield GaugeMetricFamily(
        "annals_maintain_seconds", "How long the latest took", value=latest.seconds
    )
    yield GaugeMetricFamily(
        "annals_maintain_held",
        "Partitions that the latest did not drop because of unsettled messages",
        value=latest.held,
    )
