"""The page that answers "is all well?", the first one of operators."""

from collections.abc import Iterator
from datetime import timedelta
from math import inf
from typing import Any

from django.contrib import admin
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from prometheus_client.core import Metric

from annals.access.journal.words import Outcome
from annals.access.models import JournalEntry
from annals.observe import metrics
from annals.operations.disk import disk
from annals.operations.jobs import jobs
from annals.operations.pace import picture
from annals.operations.verdict import MOST_PLACES, Values, by_reason, findings, values_of
from history import complete_to
from history.base import clock
from history.base.plain_text import figure
from history.base.silence import SILENT
from history.entities import ENTITIES
from history.gaps import read as gaps
from history.models import ArchivedDay, SealedDay
from history.partitions import catalog
from history.partitions.plan import Policy
from history.requests.worker_shares import expensive_view
from ingest.completeness import figures, losses
from ingest.completeness.holds import may_get_rows
from ingest.completeness.views import halted, in_words

REFUSED = timedelta(hours=1)
NOT_DROPPED = timedelta(hours=26)


@expensive_view
def page(request: HttpRequest) -> HttpResponse:
    """What is not well comes from the metrics, as the alerts do; the rest are their figures."""
    values = values_of([*metrics.STORE.collect(), *_left()])
    its_jobs, days = list(jobs()), _days(values)
    found = findings(values, its_jobs, days["disk"].full)
    context = {
        "title": _("Operations"),
        "worst": found[0] if found else None,
        "others": found[1:],
        "level": "well" if not found else "page" if found[0].page else "ticket",
        "jobs": its_jobs,
        "picture": picture(),
        "now": clock.now(),
        **_reading(values),
        **days,
        **_refused(),
    }
    shown = {**admin.site.each_context(request), **context}
    return render(request, "operations/operations.html", shown)


def _reading(values: Values) -> dict[str, Any]:
    """How far the messages are read, when some are lost, and those that are not stored."""
    entries = figures.entries(count_quarantine=False)
    forecasts = losses.losses(entries)
    first = next(iter(forecasts.values()), None)
    current = [each for each in entries if each.current and not each.retired]
    held = by_reason(values)
    complete = complete_to.read(ENTITIES)
    age = complete.lag_seconds or 0
    return {
        "complete": complete,
        "stale": in_words(age) if age > SILENT.total_seconds() else "",
        "loss": "" if first is None or first.seconds == inf else in_words(first.seconds),
        # Of every partition its broker has said that it keeps what is not read.
        "never_lost": first is not None
        and first.seconds == inf
        and all((each.topic, each.partition) in forecasts for each in current),
        "halted": halted(entries),
        "quarantine": [(words, figure(n)) for words, n in [*held.items()][:MOST_PLACES]],
        "more_reasons": max(0, len(held) - MOST_PLACES),
        "quarantined": figure(sum(held.values())),
        "gaps": gaps.totals(),
    }


def _left() -> Iterator[Metric]:
    """The days to drop as AnnalsDaysNotDropped counts them: those that were old enough when it
    began to wait, without those that are held."""
    policy = Policy.at(clock.now() - NOT_DROPPED, may_get_rows)
    yield from metrics.tables(policy, ["overdue"])


def _days(values: Values) -> dict[str, Any]:
    """The days of the tables, and the disk."""
    ahead = min(values["annals_store_days_ahead"].values(), default=0)
    parts = catalog.read(connection, [entity.table for entity in ENTITIES])
    space = disk(parts)
    return {
        "ahead": max(0, int(ahead)),
        "held": int(values["annals_maintain_held"].get((), 0)),
        "packed": SealedDay.objects.exclude(packed_at=None).values("day").distinct().count(),
        "archived": ArchivedDay.objects.values("day").distinct().count(),
        "disk": space,
        "used": filesizeformat(space.used),
        "a_day": filesizeformat(space.a_day),
        "in_the_end": filesizeformat(space.in_the_end),
    }


def _refused() -> dict[str, Any]:
    """Looks that were refused to known logins, and answers to nobody who is known."""
    refused = JournalEntry.objects.filter(at__gt=clock.now() - REFUSED, outcome=Outcome.REFUSED)
    return {"refused": figure(refused.count()), "strangers": figure(metrics.strangers())}
