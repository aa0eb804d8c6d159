"""Metrics of the store's state, read from the database at each scrape."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

import psycopg
from django.db import Error as DatabaseError
from django.db import connection
from django.db.models import Count
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from annals.observe import partition_metrics
from history import clock
from history.entities import ENTITIES
from history.error_text import describe
from history.partitions import catalog
from ingest.completeness import figures
from ingest.completeness.figures import Entry
from ingest.models import Quarantined

CONNECT_TIMEOUT_S = 2
OUTCOMES = ("stored", "repeated", "expired", "quarantined")
PLACE = ["topic", "partition"]

log = logging.getLogger(__name__)


def check_reachable() -> None:
    """Raises psycopg.Error after CONNECT_TIMEOUT_S if no connection can be made.

    The pool waits longer than a probe or a scrape does. Without this check an unreachable database
    would look like a process that hangs.
    """
    parameters = {**connection.get_connection_params(), "connect_timeout": CONNECT_TIMEOUT_S}
    psycopg.connect(**parameters).close()


class StoreCollector(Collector):
    """annals_store_up and, while it is 1, all other metrics of the store."""

    def collect(self) -> Iterator[Metric]:
        try:
            check_reachable()
            families = [
                *_ledger(figures.entries()),
                _quarantine(),
                *_partitions(),
                *partition_metrics.days(),
                *partition_metrics.last_run(),
            ]
        except (DatabaseError, psycopg.Error) as error:
            log.warning("metrics: %s", describe(error))
            families = []
        up = GaugeMetricFamily(
            "annals_store_up", "1 while the database answers", value=bool(families)
        )
        yield from (up, *families)


def _ledger(entries: Sequence[Entry]) -> Iterator[Metric]:
    """Counts include earlier topics of the same name; lag and state are of the current topic."""
    read = CounterMetricFamily("annals_store_read", "Messages read from Kafka", labels=PLACE)
    became = CounterMetricFamily(
        "annals_store_messages", "Messages by outcome", labels=[*PLACE, "became"]
    )
    lag = GaugeMetricFamily("annals_store_lag", "Messages not read yet", labels=PLACE)
    halted = GaugeMetricFamily("annals_store_halted", "1 while reading is halted", labels=PLACE)
    seen = GaugeMetricFamily(
        "annals_store_seen_timestamp_seconds",
        "Time when a consumer last wrote its position",
        labels=PLACE,
    )
    sums: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * (1 + len(OUTCOMES)))
    for entry in entries:
        place = (entry.topic, str(entry.partition))
        for number, name in enumerate(("read", *OUTCOMES)):
            sums[place][number] += getattr(entry, name)
        if entry.current:
            halted.add_metric(place, entry.halted_at is not None)
            seen.add_metric(place, entry.checked_at.timestamp())
            if entry.lag is not None:
                lag.add_metric(place, entry.lag)
    for place, (first, *rest) in sums.items():
        read.add_metric(place, first)
        for outcome, count in zip(OUTCOMES, rest, strict=True):
            became.add_metric([*place, outcome], count)
    faults = GaugeMetricFamily(
        "annals_store_faults",
        "Faults in the ledger (`manage.py ledger` lists them)",
        value=len(figures.faults(entries)),
    )
    yield from (read, became, lag, halted, seen, faults)


def _quarantine() -> Metric:
    family = GaugeMetricFamily(
        "annals_store_quarantine", "Messages in quarantine", labels=["status", "reason"]
    )
    rows = Quarantined.objects.values_list("status", "reason").annotate(count=Count("id"))
    for status, reason, count in rows.order_by("status", "reason"):
        family.add_metric([status, reason], count)
    return family


def _partitions() -> Iterator[Metric]:
    today = clock.now().date()
    ahead = GaugeMetricFamily(
        "annals_store_days_ahead",
        "Days from today to the newest partition; negative without a partition for today",
        labels=["table"],
    )
    size = GaugeMetricFamily("annals_store_bytes", "Bytes on disk with indexes", labels=["table"])
    rows = GaugeMetricFamily("annals_store_rows", "Estimated number of versions", labels=["table"])
    partitions = catalog.read(connection, [entity.table for entity in ENTITIES])
    for table, group in groupby(partitions, attrgetter("table")):
        found = list(group)
        days = [partition.day for partition in found if partition.day is not None]
        if days:
            ahead.add_metric([table], (max(days) - today).days)
        size.add_metric([table], sum(partition.bytes for partition in found))
        rows.add_metric([table], sum(partition.rows for partition in found))
    yield from (ahead, size, rows)
