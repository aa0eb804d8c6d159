"""Metrics of the store's state, read from the database at each scrape."""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import psycopg
from django.db import Error as DatabaseError
from django.db import connection
from django.db.models import Count
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from annals.observe import partition_metrics
from history.error_text import describe
from ingest.completeness import figures
from ingest.completeness.figures import Entry
from ingest.models import Quarantined
from ingest.quarantine.messages import UNSETTLED

CONNECT_TIMEOUT_S = 2
# Comparing the ledger with the quarantine reads the whole quarantine, too much for each scrape.
QUARANTINE_CHECK_S = 600
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

    def __init__(self) -> None:
        self._quarantine_faults = 0
        self._quarantine_check_due = 0.0

    def collect(self) -> Iterator[Metric]:
        try:
            check_reachable()
            families = [
                *self._ledger_and_faults(),
                _quarantine(),
                *partition_metrics.tables(),
                *partition_metrics.last_run(),
                *partition_metrics.archive(),
                *partition_metrics.verification(),
            ]
        except (DatabaseError, psycopg.Error) as error:
            log.warning("metrics: %s", describe(error))
            families = []
        up = GaugeMetricFamily(
            "annals_store_up", "1 while the database answers", value=bool(families)
        )
        yield from (up, *families)

    def _ledger_and_faults(self) -> Iterator[Metric]:
        entries = figures.entries(count_quarantine=False)
        if time.monotonic() >= self._quarantine_check_due:
            counted = figures.entries()
            differ = [entry for entry in counted if entry.quarantined != entry.in_quarantine]
            self._quarantine_faults = len(differ)
            self._quarantine_check_due = time.monotonic() + QUARANTINE_CHECK_S
        yield from _ledger(entries)
        yield GaugeMetricFamily(
            "annals_store_topics_never_read",
            "Topics that no consumer has read and that are not retired",
            value=len(figures.never_read(entries)),
        )
        yield GaugeMetricFamily(
            "annals_store_faults",
            "Faults in the ledger (`manage.py ledger` lists them)",
            value=len(figures.faults(entries)) + self._quarantine_faults,
        )


def _ledger(entries: Sequence[Entry]) -> Iterator[Metric]:
    """Counts include earlier topics of the same name; lag and state are of the current topic."""
    read = CounterMetricFamily("annals_store_read", "Messages read from Kafka", labels=PLACE)
    # A gauge: a retry moves messages from quarantined to stored, and a counter must not fall.
    became = GaugeMetricFamily(
        "annals_store_messages", "Messages by their present outcome", labels=[*PLACE, "became"]
    )
    lag = GaugeMetricFamily("annals_store_lag", "Messages not read yet", labels=PLACE)
    halted = GaugeMetricFamily("annals_store_halted", "1 while reading is halted", labels=PLACE)
    seen = GaugeMetricFamily(
        "annals_store_seen_timestamp_seconds",
        "Time when a consumer last wrote its position",
        labels=PLACE,
    )
    end_known = GaugeMetricFamily(
        "annals_store_end_known_timestamp_seconds",
        "Latest time at which the brokers confirmed the end of the partition",
        labels=PLACE,
    )
    sums: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * (1 + len(OUTCOMES)))
    for entry in entries:
        place = (entry.topic, str(entry.partition))
        for number, name in enumerate(("read", *OUTCOMES)):
            sums[place][number] += getattr(entry, name)
        if entry.current:
            halted.add_metric(place, entry.halted_at is not None)
        if entry.current and not entry.retired:
            seen.add_metric(place, entry.checked_at.timestamp())
            if entry.end_known_at is not None:
                end_known.add_metric(place, entry.end_known_at.timestamp())
            if entry.lag is not None:
                lag.add_metric(place, entry.lag)
    for place, (first, *rest) in sums.items():
        read.add_metric(place, first)
        for outcome, count in zip(OUTCOMES, rest, strict=True):
            became.add_metric([*place, outcome], count)
    yield from (read, became, lag, halted, seen, end_known)


def _quarantine() -> Metric:
    """Only unsettled messages, which are few and have an index: settled ones stay forever."""
    family = GaugeMetricFamily(
        "annals_store_quarantine", "Unsettled messages in quarantine", labels=["status", "reason"]
    )
    unsettled = Quarantined.objects.filter(status__in=UNSETTLED)
    rows = unsettled.values_list("status", "reason").annotate(count=Count("id"))
    for status, reason, count in rows.order_by("status", "reason"):
        family.add_metric([status, reason], count)
    return family
