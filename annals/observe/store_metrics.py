"""Metrics of the store's state, read from the database at each scrape."""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import psycopg
from django.db import Error as DatabaseError
from django.db import connection
from django.db.models import Count
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from annals import metrics
from annals.observe import gap_metrics, partition_metrics, server_metrics
from annals.observe.share_metrics import shares
from history.base.error_text import describe
from history.metric import single
from ingest.completeness import figures, losses
from ingest.completeness.figures import Entry
from ingest.metric_labels import OUTCOMES
from ingest.models import Quarantined
from ingest.quarantine.messages import UNSETTLED

CONNECT_TIMEOUT_S = 2
# Comparing the ledger with the quarantine reads the whole quarantine, too much for each scrape.
QUARANTINE_CHECK_S = 600

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
                *shares(),
                *server_metrics.wal_archive(),
                *server_metrics.prepared_left(),
                *gap_metrics.gaps(),
                *_most_opened(),
            ]
        except (DatabaseError, psycopg.Error) as error:
            log.warning("metrics: %s", describe(error))
            families = []
        yield from (single(metrics.STORE_UP, bool(families)), *families)

    def _ledger_and_faults(self) -> Iterator[Metric]:
        entries = figures.entries(count_quarantine=False)
        if time.monotonic() >= self._quarantine_check_due:
            counted = figures.entries()
            differ = [entry for entry in counted if entry.quarantined != entry.in_quarantine]
            self._quarantine_faults = len(differ)
            self._quarantine_check_due = time.monotonic() + QUARANTINE_CHECK_S
        yield from _ledger(entries)
        yield from _losses(entries)
        yield single(metrics.STORE_NEVER_READ, len(figures.never_read(entries)))
        faults = len(figures.faults(entries)) + self._quarantine_faults
        yield single(metrics.STORE_FAULTS, faults)


def _ledger(entries: Sequence[Entry]) -> Iterator[Metric]:
    """Counts include earlier topics of the same name; lag and state are of the current topic."""
    read, became = metrics.STORE_READ(), metrics.STORE_MESSAGES()
    lag, halted = metrics.STORE_LAG(), metrics.STORE_HALTED()
    seen, end_known = metrics.STORE_SEEN(), metrics.STORE_END_KNOWN()
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


def _losses(entries: Sequence[Entry]) -> Iterator[Metric]:
    """From what the consumers recorded, so it goes on when none runs: then the time runs out."""
    loss, catch_up = metrics.LOSS_SECONDS(), metrics.CATCH_UP_SECONDS()
    kept = metrics.KEPT_SECONDS()
    for (topic, partition), each in losses.losses(entries).items():
        place = (topic, str(partition))
        loss.add_metric(place, each.seconds)
        catch_up.add_metric(place, each.catch_up)
        kept.add_metric(place, each.kept)
    yield from (loss, catch_up, kept)


def _quarantine() -> Metric:
    """Only unsettled messages, which are few and have an index: settled ones stay forever."""
    family = metrics.STORE_QUARANTINE()
    unsettled = Quarantined.objects.filter(status__in=UNSETTLED)
    rows = unsettled.values_list("status", "reason").annotate(count=Count("id"))
    for status, reason, count in rows.order_by("status", "reason"):
        family.add_metric([status, reason], count)
    return family


# Programs read for everybody, so their number is of another size.
_MOST_OPENED: Final = """
SELECT actor, max(opened) FROM (
    SELECT CASE actor WHEN 'service' THEN 'program' ELSE 'person' END AS actor,
        count(DISTINCT application) AS opened
    FROM access_journal
    WHERE at > now() - interval '1 hour' AND outcome = 'shown' AND application <> ''
        AND actor IN ('person', 'break-glass', 'service')
    GROUP BY 1, identity
) AS each_login GROUP BY 1
"""


def _most_opened() -> Iterator[Metric]:
    """Of the access journal. One hour of it is read."""
    family = metrics.MOST_OPENED()
    with connection.cursor() as cursor:
        cursor.execute(_MOST_OPENED)
        found = dict(cursor.fetchall())
    for actor in ("person", "program"):
        family.add_metric([actor], found.get(actor, 0))
    yield family
