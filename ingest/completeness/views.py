"""The page "Completeness" and GET /api/v1/completeness."""

from collections.abc import Iterable
from math import inf
from typing import Annotated, Final, NamedTuple

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
    """Show the ledger, with the lag that the consumer recorded last. Sends no request to Kafka."""
    entries = ledger_rows.load_entries()
    forecasts = losses.forecast_losses(entries)
    urgent_lines: list[LedgerLine] = []
    calm_lines: list[LedgerLine] = []
    # If all topic partitions are silent, one sentence on the page says so for all of them.
    is_any_read = any(not entry.silence for entry in entries if entry.current and not entry.retired)
    for entry in entries:
        forecast = forecasts.get((entry.topic, entry.partition)) if entry.current else None
        is_alone_silent = entry.silence is not None and is_any_read
        is_first = is_alone_silent or _needs_attention(entry, forecast)
        (urgent_lines if is_first else calm_lines).append(_make_line(entry, forecast))
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
            "urgent_lines": urgent_lines,
            "calm_lines": calm_lines,
            "totals": totals,
            "counted": COUNTS.values(),
            "faults": ledger_rows.find_faults(entries),
            "gaps": gaps.fetch_totals(),
            "urgent_losses": [
                UrgentLoss(
                    topic=topic,
                    partition=partition,
                    loss=translate_duration(forecast.loss_seconds),
                    catch_up=translate_duration(forecast.catch_up_seconds),
                    forecast=forecast,
                )
                for (topic, partition), forecast in forecasts.items()
                if forecast.is_urgent
            ],
            "first_loss": next(
                (
                    translate_duration(forecast.loss_seconds)
                    for forecast in forecasts.values()
                    if forecast.loss_seconds < inf
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


class LedgerLine(NamedTuple):
    """One topic partition on the page. Figures and durations are texts."""

    entry: Ledger
    counts: list[tuple[object, str]]  # titles and figures
    acknowledged: str  # empty if no loss was acknowledged
    lag: str  # "?" if the end offset is not known
    loss: str  # empty if there is no forecast
    catch_up: str  # empty if there is no forecast


def _make_line(entry: Ledger, forecast: LossForecast | None) -> LedgerLine:
    return LedgerLine(
        entry=entry,
        counts=[(title, format_figure(getattr(entry, name))) for name, title in COUNTS.items()],
        acknowledged=format_figure(entry.lost_acknowledged) if entry.lost_acknowledged else "",
        lag="?" if entry.lag is None else format_figure(entry.lag),
        loss="" if forecast is None else translate_duration(forecast.loss_seconds),
        catch_up="" if forecast is None else translate_duration(forecast.catch_up_seconds),
    )


class UrgentLoss(NamedTuple):
    """A topic partition that will lose unread messages soon."""

    topic: str
    partition: int
    loss: str  # the time until the loss, as a text for the page
    catch_up: str  # the time until all messages are read, as a text for the page
    forecast: LossForecast


def _needs_attention(entry: Ledger, forecast: LossForecast | None) -> bool:
    """Return whether a topic partition is faulty, or is not read to its end."""
    is_behind = entry.lag != 0 and not entry.retired
    return bool(
        list_halted([entry])
        or is_behind
        or ledger_rows.find_faults([entry])
        or (forecast and forecast.is_urgent)
    )


def translate_duration(seconds: float) -> str:
    """Return a duration in the language of the page."""
    units = {
        "d": _("d"),
        "h": _("h"),
        "min": _("min"),
        "s": _("s"),
    }
    return losses.format_duration(seconds, units.__getitem__) if seconds < inf else _("never")


def list_halted(entries: Iterable[Ledger]) -> list[tuple[Ledger, str]]:
    """Return the halted topic partitions, each with the reason in the language of the page."""
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
            description="Versions that never arrived. gaps: how many gaps are open. missing: how "
            "many versions these gaps lack. arrived: how many versions came late and closed a gap. "
            "lookedAt: when Annals last searched for gaps."
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
