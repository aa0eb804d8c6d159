"""The page Operations, the start page of operators: is all well?"""

from collections.abc import Iterator
from datetime import timedelta
from math import inf
from typing import NamedTuple

from django.contrib import admin
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from prometheus_client.core import Metric

from annals.access.journal.actions import AccessOutcome
from annals.access.models import JournalEntry
from annals.operations import metrics_page
from annals.operations.alert_checks import (
    MAX_LISTED,
    MetricValues,
    collect_values,
    count_by_reason,
    find_problems,
)
from annals.operations.disk import DiskForecast, forecast_disk
from annals.operations.jobs import list_jobs
from annals.operations.pace_picture import draw_pace
from history.common import clock
from history.common.consumer_silence import SILENT
from history.common.plain_text import format_figure
from history.common.worker_shares import mark_expensive
from history.completeness import complete_to
from history.completeness.complete_to import StoreCompleteness
from history.completeness.gaps import read as gaps
from history.completeness.gaps.read import GapTotals
from history.kinds.entities import ENTITIES
from history.models import ArchivedDay, SealedDay
from history.retention import catalog
from history.retention.plan import PartitionPolicy
from ingest.completeness import ledger_rows, losses
from ingest.completeness.holds import find_days_to_hold
from ingest.completeness.views import list_halted, translate_duration
from ingest.models import Ledger

REFUSED_PERIOD = timedelta(hours=1)
NOT_DROPPED_PERIOD = timedelta(hours=26)


@mark_expensive
def show_operations(request: HttpRequest) -> HttpResponse:
    """Show the page "Operations". The list of problems is computed from the metrics."""
    values = collect_values([*metrics_page.STORE_COLLECTOR.collect(), *_count_days_not_dropped()])
    cron_jobs, days = list(list_jobs()), _load_day_figures(values)
    problems = find_problems(values, cron_jobs, days.disk.full)
    context = {
        "title": _("Operations"),
        "worst": problems[0] if problems else None,
        "others": problems[1:],
        "level": "well" if not problems else "page" if problems[0].page else "ticket",
        "jobs": cron_jobs,
        "picture": draw_pace(),
        "now": clock.now(),
        **_load_reading_figures(values)._asdict(),
        **days._asdict(),
        **_count_refused()._asdict(),
    }
    full_context = {**admin.site.each_context(request), **context}
    return render(request, "operations/operations.html", full_context)


class _ReadingFigures(NamedTuple):
    """The template variables about reading from the topics."""

    complete: StoreCompleteness  # until when all messages have been read
    stale: str  # the age of that moment in words; empty if it is recent
    loss: str  # the time until messages are lost, in words; empty if it is not known or never
    never_lost: bool  # whether the brokers keep unread messages for ever
    halted: list[tuple[Ledger, str]]  # the halted topic partitions, with the reason for each
    # the first reasons for quarantine, with the number of messages for each
    quarantine: list[tuple[str, str]]
    more_reasons: int  # how many reasons `quarantine` leaves out
    quarantined: str  # the number of all unsettled messages in quarantine
    gaps: GapTotals  # the totals of versions that never arrived


def _load_reading_figures(values: MetricValues) -> _ReadingFigures:
    entries = ledger_rows.load_entries(count_quarantine=False)
    forecasts = losses.forecast_losses(entries)
    first = next(iter(forecasts.values()), None)
    current = [entry for entry in entries if entry.current and not entry.retired]
    quarantined = count_by_reason(values)
    complete = complete_to.read_completeness(ENTITIES)
    age = complete.lag_seconds or 0
    return _ReadingFigures(
        complete=complete,
        stale=translate_duration(age) if age > SILENT.total_seconds() else "",
        loss=""
        if first is None or first.loss_seconds == inf
        else translate_duration(first.loss_seconds),
        # For each topic partition, the broker has reported how long it keeps unread messages.
        never_lost=first is not None
        and first.loss_seconds == inf
        and all((entry.topic, entry.partition) in forecasts for entry in current),
        halted=list_halted(entries),
        quarantine=[(words, format_figure(n)) for words, n in [*quarantined.items()][:MAX_LISTED]],
        more_reasons=max(0, len(quarantined) - MAX_LISTED),
        quarantined=format_figure(sum(quarantined.values())),
        gaps=gaps.fetch_totals(),
    )


def _count_days_not_dropped() -> Iterator[Metric]:
    """Count the days that were not dropped in time, like the alert AnnalsDaysNotDropped.

    A day counts if it is not held, and `maintain` should have dropped it more than
    NOT_DROPPED_PERIOD ago.
    """
    policy = PartitionPolicy.at(clock.now() - NOT_DROPPED_PERIOD, find_days_to_hold)
    yield from metrics_page.measure_tables(policy, ["overdue"])


class _DayFigures(NamedTuple):
    """The template variables about the days and the disk."""

    ahead: int  # how many days after today have partitions without a gap, in all tables
    held: int  # how many partitions the latest `maintain` held
    packed: int  # the number of packed days
    archived: int  # the number of archived days
    disk: DiskForecast
    # sizes of the forecast as texts
    used: str
    a_day: str
    in_the_end: str


def _load_day_figures(values: MetricValues) -> _DayFigures:
    ahead = min(values["annals_store_days_ahead"].values(), default=0)
    partitions = catalog.read_partitions(connection, [entity.table for entity in ENTITIES])
    space = forecast_disk(partitions)
    return _DayFigures(
        ahead=max(0, int(ahead)),
        held=int(values["annals_maintain_held"].get((), 0)),
        packed=SealedDay.objects.exclude(packed_at=None).values("day").distinct().count(),
        archived=ArchivedDay.objects.values("day").distinct().count(),
        disk=space,
        used=filesizeformat(space.used),
        a_day=filesizeformat(space.a_day),
        in_the_end=filesizeformat(space.in_the_end),
    )


class _RefusedFigures(NamedTuple):
    """The template variables about refused requests."""

    refused: str  # how many refused accesses the access journal has in REFUSED_PERIOD
    strangers: str  # how many requests without a known login were refused since the web started


def _count_refused() -> _RefusedFigures:
    refused = JournalEntry.objects.filter(
        at__gt=clock.now() - REFUSED_PERIOD, outcome=AccessOutcome.REFUSED
    )
    return _RefusedFigures(
        refused=format_figure(refused.count()),
        strangers=format_figure(metrics_page.count_anonymous_refusals()),
    )
