"""The ledger as a page: the outcomes of all messages of each topic partition."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from ingest.completeness import figures
from ingest.completeness.figures import Entry

COUNTS = ("read", "stored", "repeated", "expired", "quarantined", "skipped", "lost")


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One topic partition: its counts in the order of COUNTS, the lost messages that were
    acknowledged ("" for none), and the lag ("?" if not known)."""

    entry: Entry
    counts: Sequence[str]
    acknowledged: str
    lag: str


def page(request: HttpRequest) -> HttpResponse:
    """The lag is the consumer's last record: a page view does not ask Kafka."""
    entries = figures.entries()
    lines = [
        LedgerLine(
            entry,
            _figures(entry),
            _figure(entry.lost_acknowledged) if entry.lost_acknowledged else "",
            "?" if entry.lag is None else _figure(entry.lag),
        )
        for entry in entries
    ]
    totals = [_figure(sum(getattr(entry, name) for entry in entries)) for name in COUNTS]
    return render(
        request,
        "ingest/completeness.html",
        {
            **admin.site.each_context(request),
            "title": _("Completeness"),
            "lines": lines,
            "totals": totals,
            "faults": figures.faults(entries),
            "never_read": figures.never_read(entries) if entries else [],
            "halted": [entry for entry in entries if entry.halted_at is not None],
        },
    )


def _figures(entry: Entry) -> list[str]:
    return [_figure(getattr(entry, name)) for name in COUNTS]


def _figure(number: int) -> str:
    return f"{number:,}".replace(",", "\N{NO-BREAK SPACE}")
