"""Metrics of the partitions and of the latest `partitions maintain`.

A command that ends cannot be scraped, so they are read from the database.
"""

from collections.abc import Iterator

from django.conf import settings
from django.db.models import Count, Min, Q
from prometheus_client.core import Metric

from annals import metrics
from annals.access.journal import days as journal
from history.base import clock
from history.metric import single
from history.models import ArchivedDay
from history.partitions import state
from history.partitions.plan import Policy
from history.partitions.state import status
from history.seals.verification import latest

# Fields of history.partitions.state.Status.
TABLES = {
    "bytes": metrics.STORE_BYTES,
    "rows": metrics.STORE_ROWS,
    "ahead": metrics.DAYS_AHEAD,
    "missing": metrics.DAYS_MISSING,
    "overdue": metrics.DAYS_OVERDUE,
    "pending": metrics.DAYS_PENDING,
}


def tables() -> Iterator[Metric]:
    """The partitions of each table. Holds are not computed: they may need a scan of a large
    quarantine, which is too slow for a scrape."""
    found = status(Policy.at(clock.now(), settings.ANNALS), journal.tables())
    for field, make in TABLES.items():
        family = make()
        for table in found:
            family.add_metric([table.table], getattr(table, field))
        yield family


def last_run() -> Iterator[Metric]:
    """The latest completed run; no metrics before the first."""
    latest = state.latest()
    if latest is None:
        return
    yield single(metrics.MAINTAIN_STARTED, latest.started_at.timestamp())
    yield single(metrics.MAINTAIN_EXIT_CODE, latest.exit_code)
    yield single(metrics.MAINTAIN_SECONDS, latest.seconds)
    yield single(metrics.MAINTAIN_HELD, latest.held)


def verification() -> Iterator[Metric]:
    """What `partitions verify` has found in the tables that have seals."""
    since, faults = metrics.VERIFY_STARTED(), metrics.VERIFY_FAULTS()
    for found in latest():
        since.add_metric([found.table], found.since.timestamp())
        if found.faults is not None:
            faults.add_metric([found.table], found.faults)
    yield from (since, faults)


def archive() -> Iterator[Metric]:
    """What `partitions verify --archive` has found."""
    archived = ArchivedDay.objects.aggregate(
        faulty=Count("id", filter=~Q(fault="")), oldest=Min("checked_at")
    )
    yield single(metrics.ARCHIVE_FAULTY, archived["faulty"])
    if archived["oldest"] is not None:
        yield single(metrics.ARCHIVE_OLDEST_CHECK, archived["oldest"].timestamp())
