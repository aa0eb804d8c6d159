"""The page "Completeness" and GET /api/v1/completeness."""

from collections.abc import Iterable
from math import inf
from typing import Any, Final

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from history.api import access, describe
from history.api.answers import Answer
from history.api.call import Call, Question
from history.base.plain_text import figure
from history.entities import BY_TOPIC
from history.gaps import read as gaps
from ingest.completeness import figures, losses
from ingest.completeness.figures import as_json, entries, faults
from ingest.completeness.losses import Loss
from ingest.models import Ledger
from ingest.sentences import translated

COUNTS: Final = {
    "read": gettext_lazy("Read"),
    "stored": gettext_lazy("Stored"),
    "repeated": gettext_lazy("Repeated"),
    "expired": gettext_lazy("Expired"),
    "quarantined": gettext_lazy("Quarantined"),
    "skipped": gettext_lazy("Skipped"),
    "lost": gettext_lazy("Lost"),
}


def page(request: HttpRequest) -> HttpResponse:
    """The lag is the consumer's last record: a page view does not ask Kafka."""
    entries = figures.entries()
    forecasts = losses.losses(entries)
    lines: dict[bool, list[Any]] = {True: [], False: []}
    # Where nobody reads, one sentence says it for all.
    one_by_one = any(not each.silence for each in entries if each.current and not each.retired)
    for entry in entries:
        loss = forecasts.get((entry.topic, entry.partition)) if entry.current else None
        line = (
            entry,
            [(words, figure(getattr(entry, name))) for name, words in COUNTS.items()],
            figure(entry.lost_acknowledged) if entry.lost_acknowledged else "",
            "?" if entry.lag is None else figure(entry.lag),
            *_loss(loss),
        )
        away = entry.silence is not None and one_by_one
        lines[away or _needs_a_look(entry, loss)].append(line)
    totals = [
        (words, figure(sum(getattr(each, name) for each in entries)))
        for name, words in COUNTS.items()
    ]
    return render(
        request,
        "ingest/completeness.html",
        {
            **admin.site.each_context(request),
            **admin.site.freshness(),  # type: ignore[attr-defined] # see history.admin.site.apps
            "title": _("Completeness"),
            "wrong": lines[True],
            "right": lines[False],
            "totals": totals,
            "counted": COUNTS.values(),
            "faults": figures.faults(entries),
            "gaps": gaps.totals(),
            "pressing": [
                (topic, partition, in_words(each.seconds), in_words(each.catch_up), each)
                for (topic, partition), each in forecasts.items()
                if each.pressing
            ],
            "first_loss": next(
                (in_words(each.seconds) for each in forecasts.values() if each.seconds < inf), ""
            ),
            "never_read": figures.never_read(entries) if entries else [],
            "undeclared": figures.undeclared(entries),
            "missing": figures.unexpectedly_absent(entries),
            "absent": [
                topic for topic in figures.absent(entries) if topic != BY_TOPIC[topic].topics[0]
            ],
            "halted": halted(entries),
        },
    )


def _needs_a_look(entry: Ledger, loss: Loss | None) -> bool:
    """Whether the page shows a partition first: it is wrong, or not read to its end."""
    behind = entry.lag != 0 and not entry.retired
    return bool(halted([entry]) or behind or figures.faults([entry]) or (loss and loss.pressing))


def _loss(found: Loss | None) -> tuple[str, str]:
    """When it is lost and how long catching up takes, in words."""
    return ("", "") if found is None else (in_words(found.seconds), in_words(found.catch_up))


def in_words(seconds: float) -> str:
    """A time in the language of the page."""
    units = {
        "d": _("d"),
        "h": _("h"),
        "min": _("min"),
        "s": _("s"),
    }
    return losses.in_words(seconds, units.__getitem__) if seconds < inf else _("never")


def halted(entries: Iterable[Ledger]) -> list[tuple[Ledger, str]]:
    """The partitions of which reading has stopped, and why."""
    return [(each, why(each.halted_why)) for each in entries if each.current and each.halted_at]


# The reasons of ingest.consumer.positions and ingest.completeness.holds.
_WHY: Final = (
    gettext_noop("{n} bad messages in a row"),
    gettext_noop("{n} of the last {all} messages are bad"),
    gettext_noop("{n} unresolved in quarantine"),
    gettext_noop("{where} was never read"),
    gettext_noop("the end of {where} is not known"),
    gettext_noop("no consumer has seen the end of {where} since {at}"),
    gettext_noop("no consumer has asked since {at} whether {where} exists"),
    gettext_noop("the ledger of {where} does not add up"),
    gettext_noop("{n} messages of {where} not read yet"),
    gettext_noop("{n} message of {where} not read yet"),
)


def why(reasons: str) -> str:
    """Why reading has stopped, or days are held, in the language of the page."""
    return translated(reasons.replace(",", ""), _WHY)


@describe.call(
    "completeness",
    "How complete the store is: what was read, stored, repeated, expired, quarantined, the lag, "
    "and the versions that never arrived.",
    describe.ZONE,
    data="Store",
    missing=False,
)
class Completeness(Call):
    """GET completeness"""

    permission = access.READ_COMPLETENESS

    def answer(self, question: Question) -> Answer:  # noqa: ARG002
        found = entries()
        ledger = as_json(found, faults(found), losses.as_json(losses.losses(found)))
        return {**ledger, "gaps": gaps.totals().as_json()}
