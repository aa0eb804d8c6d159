"""The quarantine by reason, service and field; requests to retry or to discard, with a reason."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import connection
from django.db.models import Count, F, Max, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from history.base import clock
from history.base.plain_text import figure, letters
from history.management.numbers import MOST_ID
from history.reasons import REASONS
from history.record import CLIENT_ID_LENGTH
from history.requests.worker_shares import expensive_view
from ingest.completeness import figures
from ingest.completeness.views import COUNTS, halted
from ingest.models import Quarantined, QuarantineRequest
from ingest.quarantine import details
from ingest.quarantine.messages import FIELD, UNSETTLED

ASK = "ingest.ask_quarantine"
MOST_GROUPS, MOST_REQUESTS, MOST_IDS = 200, 20, 1_000
FEWEST_LETTERS = 3
GROUP = ("reason", "client_id", "field", "topic")


@dataclass(frozen=True, slots=True)
class Group:
    """Unsettled messages with one reason, service, field and topic. example, detail: the newest.
    asked: the newest request for them, one that is not done first."""

    reason: str
    client_id: str
    field: str
    topic: str
    count: int
    since: datetime
    until: datetime
    example: int
    detail: str
    asked: QuarantineRequest | None = None

    @property
    def of_all(self) -> bool:
        """Whether what was asked for is for all of these messages."""
        if self.asked is None or self.asked.done_at:
            return False
        return self.example <= self.asked.last_id

    @property
    def outcome(self) -> str:
        """What became of what was asked for."""
        return in_words(self.asked.outcome) if self.asked else ""

    @property
    def words(self) -> str:
        """With a capital letter, unless it begins with the name of a field."""
        words = str(REASONS.get(self.reason, self.reason))
        return words if self.field and words.startswith(self.field) else capfirst(words)

    @property
    def said(self) -> SafeString:
        """The detail in the language of the page."""
        return details.in_words(self.detail)

    @property
    def query(self) -> str:
        return urlencode({name: getattr(self, name) for name in GROUP})


_GROUPS = f"""
SELECT g.reason, g.client_id, g.field, g.topic, g.count, g.since, g.until, q.id, q.detail
FROM (SELECT reason, client_id, {FIELD} AS field, topic, count(*), min(first_seen) AS since,
        max(first_seen) AS until, max(id) AS newest
    FROM ingest_quarantine WHERE status = ANY(%s)
    GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 1, 2, 3, 4 LIMIT {MOST_GROUPS}) AS g
JOIN ingest_quarantine q ON q.id = g.newest ORDER BY g.count DESC, 1, 2, 3, 4
"""  # noqa: S608 - constants


def in_words(outcome: str) -> str:
    """What became of messages, as `annals quarantine` records it: names and numbers."""
    words: dict[str, object] = {
        **COUNTS,
        **dict(Quarantined.Status.choices),
        "retrying": _("tried, still wrong"),
        "failed": _("tried, still wrong, not tried again by itself"),
    }
    pairs = [each.rpartition(" ") for each in outcome.split(", ")] if outcome else []
    return ", ".join(f"{str(words.get(name, name)).lower()}: {n}" for name, _sep, n in pairs)


@expensive_view
def page(request: HttpRequest) -> HttpResponse:
    """What is in quarantine, and what was asked for."""
    with connection.cursor() as cursor:
        cursor.execute(_GROUPS, [list(UNSETTLED)])
        rows = cursor.fetchall()
    done_last = F("done_at").desc(nulls_first=True), "-id"
    latest = QuarantineRequest.objects.filter(ids=[]).order_by(*done_last)[:MOST_GROUPS]
    asked = {tuple(getattr(each, name) for name in GROUP): each for each in reversed(latest)}
    groups = [replace(Group(*row), asked=asked.get(row[: len(GROUP)])) for row in rows]
    context = {
        "title": _("Quarantine"),
        "groups": groups,
        "all": figure(sum(each.count for each in groups)),
        "requests": [
            (
                each,
                REASONS.get(each.reason, each.reason),
                in_words(each.outcome) or _("none of them waited any more"),
            )
            for each in QuarantineRequest.objects.order_by("-id")[:MOST_REQUESTS]
        ],
        "halted": halted(figures.entries(count_quarantine=False)),
        **admin.site.freshness(),  # type: ignore[attr-defined] # see history.admin.site.apps
        "may_ask": request.user.has_perm(ASK),
    }
    return render(
        request, "ingest/quarantine.html", {**admin.site.each_context(request), **context}
    )


class AskForm(forms.Form):
    """What to do with which messages, and why. ids: separated by commas; else those of the group.
    last_id: the newest one that was there when the page was shown."""

    action = forms.ChoiceField(choices=QuarantineRequest.Action, widget=forms.HiddenInput)
    reason, client_id, field, topic = (
        forms.CharField(required=False, max_length=longest, widget=forms.HiddenInput)
        for longest in (40, CLIENT_ID_LENGTH, 200, 249)
    )
    ids = forms.RegexField(r"^\d{1,18}(,\d{1,18})*$", required=False, widget=forms.HiddenInput)
    last_id = forms.IntegerField(required=False, max_value=MOST_ID, widget=forms.HiddenInput)
    why = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    def clean_why(self) -> str:
        """A reason that nobody can read is none."""
        said: str = self.cleaned_data["why"]
        if letters(said) < FEWEST_LETTERS:
            raise forms.ValidationError(_("Give the reason in words."))
        return said


@require_http_methods(["GET", "HEAD", "POST"])
def ask(request: HttpRequest) -> HttpResponse:
    """GET asks for the reason, POST records the request."""
    if not request.user.has_perm(ASK):
        raise PermissionDenied
    sent = request.method == "POST"
    form = AskForm(request.POST if sent else request.GET, label_suffix="")
    if not form.is_valid() and set(form.errors) - {"why"}:
        raise BadRequest
    asked = form.cleaned_data
    found = _chosen(asked)
    counts = found.aggregate(count=Count("id"), last=Max("id"))
    if sent and form.is_valid() and counts["count"]:
        _record(request, asked)
        messages.success(request, _("Recorded. It is done with the next annals quarantine retry."))
        return HttpResponseRedirect(reverse("admin:quarantine"))
    if not sent:
        form = AskForm(None, label_suffix="", initial={**asked, "last_id": counts["last"]})
    context = {
        "title": QuarantineRequest.Action(asked["action"]).label.capitalize(),
        "form": form,
        "count": counts["count"],
        "words": REASONS.get(asked["reason"], ""),
        "asked": asked,
        "discards": asked["action"] == QuarantineRequest.Action.DISCARD,
    }
    return render(request, "ingest/ask.html", {**admin.site.each_context(request), **context})


def _ids(asked: dict[str, Any]) -> list[int]:
    return [int(each) for each in asked["ids"].split(",") if each][:MOST_IDS]


def _chosen(asked: dict[str, Any]) -> QuerySet[Quarantined]:
    """The unsettled messages, as ingest.quarantine.requests will select them."""
    found = Quarantined.objects.filter(status__in=UNSETTLED)
    if asked["last_id"] is not None:
        found = found.filter(id__lte=asked["last_id"])
    if ids := _ids(asked):
        return found.filter(id__in=ids)
    return of_group(found, asked)


def of_group(found: QuerySet[Quarantined], group: Mapping[str, Any]) -> QuerySet[Quarantined]:
    """Those of the messages that have the reason, service, field and topic."""
    named = found.annotate(of=RawSQL(FIELD, []))  # noqa: S611 - a constant
    return named.filter(of=group["field"], **{n: group[n] for n in GROUP if n != "field"})


def _record(request: HttpRequest, asked: dict[str, Any]) -> None:
    QuarantineRequest.objects.create(
        action=asked["action"],
        ids=_ids(asked),
        last_id=asked["last_id"] if asked["last_id"] is not None else 0,
        why=asked["why"],
        login=request.user.get_username(),
        asked_at=clock.now(),
        **{name: asked[name] for name in GROUP},
    )
