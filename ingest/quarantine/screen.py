"""The page "Quarantine": messages by reason, service and field, and requests to settle them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, LiteralString
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import connection
from django.db.models import Count, F, Max, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from history.common import clock
from history.common.plain_text import count_letters, format_figure
from history.common.worker_shares import mark_expensive
from history.documents.record import CLIENT_ID_LENGTH
from history.management.numbers import MAX_ID
from history.store.quarantine_reasons import REASONS
from ingest.completeness import ledger_rows
from ingest.completeness.views import COUNTS, list_halted
from ingest.models import Quarantined, QuarantineRequest
from ingest.quarantine import details
from ingest.quarantine.messages import UNSETTLED

ASK_PERMISSION = "ingest.ask_quarantine"
MOST_GROUPS, MOST_REQUESTS, MOST_IDS = 200, 20, 1_000
FEWEST_LETTERS = 3
GROUP_FIELDS = ("reason", "client_id", "field", "topic")


@dataclass(frozen=True, slots=True)
class QuarantineGroup:
    """All unsettled messages with the same reason, service, field and topic.

    Attributes:
        reason: The code of the reason.
        client_id: The service that sent the messages.
        field: The field that is wrong.
        topic: The topic.
        count: The number of messages.
        since: When the first message came into quarantine.
        until: When the last message came into quarantine.
        example: The id of the newest message.
        detail: Why the newest message is bad, as a sentence in English.
        explanation: The stored code and parameters from which `detail` was written.
        request: A request to retry or discard all messages of the group: the newest open request,
            or else the request that was executed last.
    """

    reason: str
    client_id: str
    field: str
    topic: str
    count: int
    since: datetime
    until: datetime
    example: int
    detail: str
    explanation: Any
    request: QuarantineRequest | None = None

    @property
    def is_all_requested(self) -> bool:
        """Whether an open request to retry or discard covers all messages of the group."""
        if self.request is None or self.request.done_at:
            return False
        return self.example <= self.request.last_id

    @property
    def outcome(self) -> str:
        """The outcome of `request` (to retry or discard) in the language of the page, or empty."""
        return describe_outcome(self.request.outcome) if self.request else ""

    @property
    def title(self) -> str:
        """The reason in words, with a capital letter unless it begins with the name of a field."""
        words = str(REASONS.get(self.reason, self.reason))
        return words if self.field and words.startswith(self.field) else capfirst(words)

    @property
    def translated_detail(self) -> SafeString:
        """Why the newest message of the group is bad, in the language of the page."""
        return details.translate_detail(self.detail, self.explanation)

    @property
    def query(self) -> str:
        """The query string with the fields that identify this group of quarantined messages."""
        return urlencode({name: getattr(self, name) for name in GROUP_FIELDS})


# The largest groups of unsettled messages, each with its newest message and the number of messages
# in all groups.
_GROUPS: Final[LiteralString] = """
SELECT g.reason, g.client_id, g.field, g.topic, g.count, g.since, g.until, q.id, q.detail,
    q.explanation, g.total
FROM (SELECT reason, client_id, field, topic, count(*), sum(count(*)) OVER () AS total,
        min(first_seen) AS since, max(first_seen) AS until, max(id) AS newest
    FROM ingest_quarantine WHERE status = ANY(%(statuses)s)
    GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 1, 2, 3, 4 LIMIT %(groups)s) AS g
JOIN ingest_quarantine q ON q.id = g.newest ORDER BY g.count DESC, 1, 2, 3, 4
"""


def describe_outcome(outcome: str) -> str:
    """Return, in the language of the page, the outcome of a request to retry or discard messages.

    Args:
        outcome: The outcome as `annals quarantine retry` stored it, such as "stored 2, failed 1".
    """
    words: dict[str, object] = {
        **COUNTS,
        **dict(Quarantined.Status.choices),
        "retrying": _("still wrong"),
        "failed": _("still wrong, not retried automatically"),
    }
    pairs = [pair.rpartition(" ") for pair in outcome.split(", ")] if outcome else []
    return ", ".join(f"{str(words.get(name, name)).lower()}: {n}" for name, _sep, n in pairs)


@mark_expensive
def show_quarantine(request: HttpRequest) -> HttpResponse:
    """Show groups of messages in quarantine, and the latest requests to retry or discard them."""
    with connection.cursor() as cursor:
        cursor.execute(_GROUPS, {"statuses": list(UNSETTLED), "groups": MOST_GROUPS})
        records = cursor.fetchall()
    rows = [
        (*fields, explanation and json.loads(explanation)) for *fields, explanation, _ in records
    ]
    open_first = F("done_at").desc(nulls_first=True), "-id"
    latest = QuarantineRequest.objects.filter(ids=[]).order_by(*open_first)[:MOST_GROUPS]
    # The dict keeps the last request of each group, so the list is reversed.
    requests_by_group = {
        tuple(getattr(past_request, name) for name in GROUP_FIELDS): past_request
        for past_request in reversed(latest)
    }
    groups = [
        replace(QuarantineGroup(*row), request=requests_by_group.get(row[: len(GROUP_FIELDS)]))
        for row in rows
    ]
    context = {
        "title": _("Quarantine"),
        "groups": groups,
        "all": format_figure(records[0][-1] if records else 0),
        "requests": [
            (
                past_request,
                REASONS.get(past_request.reason, past_request.reason),
                describe_outcome(past_request.outcome) or _("none was open any more"),
            )
            for past_request in QuarantineRequest.objects.order_by("-id")[:MOST_REQUESTS]
        ],
        "halted": list_halted(ledger_rows.load_entries(count_quarantine=False)),
        **admin.site.get_completeness(),  # type: ignore[attr-defined] # see history.admin.site.apps
        "may_ask": request.user.has_perm(ASK_PERMISSION),
    }
    return render(
        request, "ingest/quarantine.html", {**admin.site.each_context(request), **context}
    )


class RequestForm(forms.Form):
    """The form for a request to retry or discard messages in quarantine.

    `ids` are the ids of messages, separated by commas. Without `ids`, the request is for all
    messages with this `reason`, `client_id`, `field` and `topic`. Messages with an id above
    `last_id` are left out: they came after the form was shown. `why` is the person's reason for the
    request.
    """

    action = forms.ChoiceField(choices=QuarantineRequest.Action, widget=forms.HiddenInput)
    reason, client_id, field, topic = (
        forms.CharField(required=False, max_length=longest, widget=forms.HiddenInput)
        for longest in (40, CLIENT_ID_LENGTH, 200, 249)
    )
    ids = forms.RegexField(r"^\d{1,18}(,\d{1,18})*$", required=False, widget=forms.HiddenInput)
    last_id = forms.IntegerField(required=False, max_value=MAX_ID, widget=forms.HiddenInput)
    why = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )

    def clean_why(self) -> str:
        """Refuse a reason with fewer than FEWEST_LETTERS letters."""
        reason: str = self.cleaned_data["why"]
        if count_letters(reason) < FEWEST_LETTERS:
            raise forms.ValidationError(_("Give the reason in words."))
        return reason


@require_http_methods(["GET", "HEAD", "POST"])
def request_action(request: HttpRequest) -> HttpResponse:
    """Show the form for a request to retry or discard messages (GET), or record it (POST)."""
    if not request.user.has_perm(ASK_PERMISSION):
        raise PermissionDenied
    is_sent = request.method == "POST"
    form = RequestForm(request.POST if is_sent else request.GET, label_suffix="")
    if not form.is_valid() and set(form.errors) - {"why"}:
        raise BadRequest
    fields = form.cleaned_data
    selected = _select_messages(fields)
    counts = selected.aggregate(count=Count("id"), last=Max("id"))
    if is_sent and form.is_valid() and counts["count"]:
        _record_request(request, fields)
        messages.success(
            request, _("Recorded. The next annals quarantine retry will execute the request.")
        )
        return HttpResponseRedirect(reverse("admin:quarantine"))
    if not is_sent:
        form = RequestForm(None, label_suffix="", initial={**fields, "last_id": counts["last"]})
    context = {
        "title": QuarantineRequest.Action(fields["action"]).label.capitalize(),
        "form": form,
        "count": counts["count"],
        "words": REASONS.get(fields["reason"], ""),
        "asked": fields,
        "discards": fields["action"] == QuarantineRequest.Action.DISCARD,
    }
    return render(request, "ingest/ask.html", {**admin.site.each_context(request), **context})


def _parse_ids(fields: dict[str, Any]) -> list[int]:
    return [int(id) for id in fields["ids"].split(",") if id][:MOST_IDS]


def _select_messages(fields: dict[str, Any]) -> QuerySet[Quarantined]:
    """Return the unsettled messages that ingest.quarantine.requests will select for a request."""
    selected = Quarantined.objects.filter(status__in=UNSETTLED)
    if fields["last_id"] is not None:
        selected = selected.filter(id__lte=fields["last_id"])
    if ids := _parse_ids(fields):
        return selected.filter(id__in=ids)
    return filter_by_group(selected, fields)


def filter_by_group(
    queryset: QuerySet[Quarantined], group: Mapping[str, Any]
) -> QuerySet[Quarantined]:
    """Return the messages with the reason, service, field and topic of a group."""
    return queryset.filter(**{name: group[name] for name in GROUP_FIELDS})


def _record_request(request: HttpRequest, fields: dict[str, Any]) -> None:
    QuarantineRequest.objects.create(
        action=fields["action"],
        ids=_parse_ids(fields),
        last_id=fields["last_id"] if fields["last_id"] is not None else 0,
        why=fields["why"],
        login=request.user.get_username(),
        asked_at=clock.now(),
        **{name: fields[name] for name in GROUP_FIELDS},
    )
