"""Metrics of the partitions and of the latest `partitions maintain`.

A command that ends cannot be scraped, so they are read from the database.
"""

from collections.abc import Iterator

from django.conf import settings
from django.db.models import Count, Min, Q
from prometheus_client.core import GaugeMetricFamily, Metric

from annals.access.journal import days as journal
from history import clock
from history.models import ArchivedDay
from history.partitions import runs
from history.partitions.plan import Policy
from history.partitions.status import status
from history.seals import verified

# Fields of history.partitions.status.Status.
TABLES = {
    "annals_store_bytes": ("bytes", "Bytes on disk with indexes"),
    "annals_store_rows": ("rows", "Estimated number of rows"),
    "annals_store_days_ahead": (
        "ahead",
        "Days after today that have a partition without a gap; -1 if today has none",
    ),
    "annals_store_days_missing": ("missing", "Days inside the window that have no partition"),
    "annals_store_days_overdue": (
        "overdue",
        "Days before the window that still have a partition, held days included",
    ),
    "annals_store_days_pending": (
        "pending",
        "Days whose detach was interrupted by an open transaction",
    ),
}


def tables() -> Iterator[Metric]:
    """The partitions of each table. Holds are not computed: they may need a scan of a large
    quarantine, which is too slow for a scrape."""
    found = status(Policy.at(clock.now(), settings.ANNALS), journal.tables())
    for name, (field, text) in TABLES.items():
        family = GaugeMetricFamily(name, text, labels=["table"])
        for table in found:
            family.add_metric([table.table], getattr(table, field))
        yield family


def last_run() -> Iterator[Metric]:
    """The latest completed run; no metrics before the first."""
    latest = runs.latest()
    if latest is None:
        return
    yield GaugeMetricFamily(
        "annals_maintain_timestamp_seconds",
        "Time when the latest `partitions maintain` began",
        value=latest.started_at.timestamp(),
    )
    yield GaugeMetricFamily(
        "annals_maintain_exit_code",
        "Exit code of the latest `partitions maintain`",
        value=latest.exit_code,
    )
    yield GaugeMetricFamily(
        "annals_maintain_seconds",
        "Duration of the latest `partitions maintain`",
        value=latest.seconds,
    )
    yield GaugeMetricFamily(
        "annals_maintain_held",
        "Partitions that the latest `partitions maintain` held because of unsettled messages",
        value=latest.held,
    )


def verification() -> Iterator[Metric]:
    """What `partitions verify` has found in the tables that have seals."""
    since = GaugeMetricFamily(
        "annals_verify_timestamp_seconds",
        "Time when the latest complete `partitions verify` of the table began; before the first, "
        "the time of its first seal",
        labels=["table"],
    )
    faults = GaugeMetricFamily(
        "annals_verify_faults",
        "Days that differed from their seals in the latest complete `partitions verify`, and one "
        "more if the chain of seals was broken",
        labels=["table"],
    )
    for found in verified.latest():
        since.add_metric([found.table], found.since.timestamp())
        if found.faults is not None:
            faults.add_metric([found.table], found.faults)
    yield from (since, faults)


def archive() -> Iterator[Metric]:
    """What `partitions verify --archive` has found."""
    archived = ArchivedDay.objects.aggregate(
        faulty=Count("id", filter=~Q(fault="")), oldest=Min("checked_at")
    )
    yield GaugeMetricFamily(
        "annals_archive_days_faulty",
        "Archived days whose files were missing, unreadable or changed at their last check",
        value=archived["faulty"],
    )
    if archived["oldest"] is not None:
        yield GaugeMetricFamily(
            "annals_archive_oldest_check_timestamp_seconds",
            "Time of the oldest last check of an archived day; days never checked do not count",
            value=archived["oldest"].timestamp(),
        )
