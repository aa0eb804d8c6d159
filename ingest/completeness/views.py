"""The page "Completeness" and GET /api/v1/completeness."""

from collections.abc import Iterable
from math import inf
from typing import Annotated, Any, Final

import msgspec
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from msgspec import Meta

from history.api import access, describe
from history.api.answer_types import CompletenessAnswer
from history.api.base_view import ApiRequest, ApiView
from history.common.plain_text import format_figure
from history.completeness.gaps import read as gaps
from history.completeness.gaps.read import GapFigures
from history.kinds.entities import BY_TOPIC
from ingest.completeness import ledger_rows, losses
from ingest.completeness.ledger_rows import LedgerFigures, find_faults, load_entries, make_figures
from ingest.completeness.losses import LossForecast
from ingest.messages.translation import translate_stored
from ingest.models import Ledger

COUNTS: Final = {
    "read": gettext_lazy("Read"),
    "stored": gettext_lazy("Stored"),
    "repeated": gettext_lazy("Repeated"),
    "expired": gettext_lazy("Expired"),
    "quarantined": gettext_lazy("Quarantined"),
    "skipped": gettext_lazy("Skipped"),
    "lost": gettext_lazy("Lost"),
}


def show_completeness(request: HttpRequest) -> HttpResponse:
    """Show the ledger, with the lag that the consumer recorded last: Kafka is not asked."""
    entries = ledger_rows.load_entries()
    forecasts = losses.forecast_losses(entries)
    lines: dict[bool, list[Any]] = {True: [], False: []}
    # Where nobody reads, one sentence says it for all.
    one_by_one = any(not entry.silence for entry in entries if entry.current and not entry.retired)
    for entry in entries:
        loss = forecasts.get((entry.topic, entry.partition)) if entry.current else None
        line = (
            entry,
            [(words, format_figure(getattr(entry, name))) for name, words in COUNTS.items()],
            format_figure(entry.lost_acknowledged) if entry.lost_acknowledged else "",
            "?" if entry.lag is None else format_figure(entry.lag),
            *_format_loss(loss),
        )
        is_folded = entry.silence is not None and one_by_one
        lines[is_folded or _needs_attention(entry, loss)].append(line)
    totals = [
        (words, format_figure(sum(getattr(entry, name) for entry in entries)))
        for name, words in COUNTS.items()
    ]
    return render(
        request,
        "ingest/completeness.html",
        {
            **admin.site.each_context(request),
            **admin.site.get_completeness(),  # type: ignore[attr-defined] # see history.admin.site.apps
            "title": _("Completeness"),
            "wrong": lines[True],
            "right": lines[False],
            "totals": totals,
            "counted": COUNTS.values(),
            "faults": ledger_rows.find_faults(entries),
            "gaps": gaps.fetch_totals(),
            "pressing": [
                (
                    topic,
                    partition,
                    translate_duration(loss.seconds),
                    translate_duration(loss.catch_up),
                    loss,
                )
                for (topic, partition), loss in forecasts.items()
                if loss.pressing
            ],
            "first_loss": next(
                (
                    translate_duration(loss.seconds)
                    for loss in forecasts.values()
                    if loss.seconds < inf
                ),
                "",
            ),
            "never_read": ledger_rows.find_never_read_topics(entries) if entries else [],
            "undeclared": ledger_rows.find_undeclared_topics(entries),
            "missing": ledger_rows.find_unexpectedly_absent_topics(entries),
            "absent": [
                topic
                for topic in ledger_rows.find_absent_topics(entries)
                if topic != BY_TOPIC[topic].topics[0]
            ],
            "halted": list_halted(entries),
        },
    )


def _needs_attention(entry: Ledger, loss: LossForecast | None) -> bool:
    """Return whether a topic partition is shown first: it is faulty or not read to its end."""
    behind = entry.lag != 0 and not entry.retired
    return bool(
        list_halted([entry])
        or behind
        or ledger_rows.find_faults([entry])
        or (loss and loss.pressing)
    )


def _format_loss(loss: LossForecast | None) -> tuple[str, str]:
    """Return when unread messages are lost and how long catching up takes, in words."""
    return (
        ("", "")
        if loss is None
        else (translate_duration(loss.seconds), translate_duration(loss.catch_up))
    )


def translate_duration(seconds: float) -> str:
    """Write a duration in the language of the page."""
    units = {
        "d": _("d"),
        "h": _("h"),
        "min": _("min"),
        "s": _("s"),
    }
    return losses.format_duration(seconds, units.__getitem__) if seconds < inf else _("never")


def list_halted(entries: Iterable[Ledger]) -> list[tuple[Ledger, str]]:
    """Return the halted topic partitions with the reason in the language of the page."""
    return [
        (entry, translate_stored(entry.halted_why, entry.halted_explanation))
        for entry in entries
        if entry.current and entry.halted_at
    ]


class StoreAnswer(LedgerFigures, kw_only=True):
    """How complete the store is."""

    gaps: Annotated[
        GapFigures,
        Meta(
            description="Versions that never arrived: the gaps that are open and how many versions "
            "they are, and the versions of closed ones that came late. lookedAt: when they were "
            "looked for last."
        ),
    ]
    completeness: CompletenessAnswer


@describe.describe_call(
    "completeness",
    "How complete the store is: what was read, stored, repeated, expired, quarantined, the lag, "
    "and the versions that never arrived.",
    describe.ZONE,
    data=StoreAnswer,
    may_be_missing=False,
)
class CompletenessCall(ApiView):
    """GET completeness"""

    permission = access.READ_COMPLETENESS

    def make_answer(self, request: ApiRequest) -> StoreAnswer:
        entries = load_entries()
        figures = make_figures(
            entries, find_faults(entries), losses.list_losses(losses.forecast_losses(entries))
        )
        return StoreAnswer(
            **msgspec.structs.asdict(figures),
            gaps=gaps.fetch_totals().to_answer(),
            completeness=request.make_completeness(),
        )
