"""All values of one field: who set each, how long it stood, and what was changed back."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation

import msgspec
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

from history import timeline
from history.admin.pages.view import may_view_history
from history.admin.parts import heads, links
from history.admin.parts.cards import fields_of
from history.admin.parts.change_rows import steps
from history.admin.parts.clerk.picture import ValueStep, step_chart
from history.admin.parts.values import ABSENT, readable
from history.base import clock
from history.diff.equal import identical
from history.documents.exactjson import Json
from history.entities import Entity
from history.requests.worker_shares import expensive_view
from history.timeline import BadParameterError, FieldValue, Origin, Reader, Version

SOON = timedelta(minutes=30)
AGAIN = 4  # values that a change back and forth has


@may_view_history
@expensive_view
def page(request: HttpRequest, reader: Reader, entity: Entity, id: str) -> HttpResponse:
    """?path= is a pointer or key path, ?page= of an older page. 404 with a reason."""
    path, token = request.GET.get("path", ""), request.GET.get(links.PAGE) or None
    values: Sequence[FieldValue] = ()
    following, wrong = None, ""
    newest = timeline.newest(reader, entity, id)
    try:
        found = timeline.field(reader, entity, id, path, page_token=token)
        values, following = found.values, found.next_token
    except BadParameterError:
        wrong = _("This is not a path of a field. Enter one such as /rate")
    label = path if wrong else " › ".join(steps(path, newest.data, fields_of(entity)))
    address = links.field(entity, id, path).partition("?")[0]
    return render(
        request,
        "history/field.html",
        {
            **heads.context(request, reader, entity, id, newest, name=label or path),
            **links.pages(request, address, {"path": path}, token, following),
            "label": label,
            "notes": [wrong] if wrong else [],
            "lines": _lines(values, newest, path),
            "chart": _chart(values),
            "versions_url": links.with_path(links.timeline(entity, id), path, {}),
        },
        status=400 if wrong else 200,
    )


def _lines(values: Sequence[FieldValue], newest: Version, path: str) -> list[dict[str, object]]:
    """Newest first. stood: for how long, in words. note: what the value does to those before."""
    fields = fields_of(newest.entity)
    found: list[dict[str, object]] = []
    for number, one in enumerate(values):
        origin, value = one.origin, one.value
        until = one.until or clock.now()
        # Of the first one of an older page it is not known here.
        ended = one.until is None or (number > 0 and values[number - 1].origin.exact)
        found.append(
            {
                "value": ABSENT
                if isinstance(value, msgspec.UnsetType)
                else readable(value, fields, path),
                "origin": origin,
                "who": (origin.author or origin.service).name,
                "service": origin.service.name if origin.author else "",
                "stood": _stood(origin, until, ended=ended) if until > origin.updated_at else "",
                "now": one.until is None,
                "note": _note(values[number : number + AGAIN]),
                "url": links.snapshot(newest.entity, newest.id, origin.version, origin.updated_at),
            }
        )
    return found


def _stood(origin: Origin, until: datetime, *, ended: bool) -> str:
    """For how long a value stood. ended: whether it was the value until then; else it ended in a
    version before, which the store does not have."""
    span = timesince(origin.updated_at, until)
    if origin.exact:
        return span if ended else _("at most {time}").format(time=span)
    return _("at least {time}").format(time=span) if ended else _("not known")


def _note(values: Sequence[FieldValue]) -> str:
    """values: the one that is meant and those before it, AGAIN in all."""
    before = values[2:3]
    if not before or not identical(values[0].value, before[0].value):
        return ""
    now, undone = values[0].origin, values[1].origin
    if undone.author and not now.author and now.updated_at - undone.updated_at <= SOON:
        return _("A service undid the change of a person.")
    forth = len(values) == AGAIN and identical(values[1].value, values[3].value)
    if forth and now.client_id != undone.client_id:
        return _("Two services change the value back and forth.")
    return _("Changed back.")


def _chart(values: Sequence[FieldValue]) -> str:
    """Of numbers, as they were set; empty where a value is none, or for one alone."""
    found: list[ValueStep] = []
    for one in reversed(values):
        if one.value is None or isinstance(one.value, msgspec.UnsetType):
            continue
        number = _number(one.value)
        if number is None:
            return ""
        found.append(ValueStep(one.origin.updated_at, number))
    return step_chart(found, clock.now()) if len(found) > 1 else ""


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        return None
    try:
        found = Decimal(value)
    except InvalidOperation:
        return None
    return float(found) if found.is_finite() and found.adjusted() < 15 else None
