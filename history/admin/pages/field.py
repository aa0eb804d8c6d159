"""All values of one field: who set each, how long it stood, and what was changed back."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

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
from history.admin.parts.values import Value, readable
from history.base import clock
from history.diff import Maybe
from history.diff.equal import equal_numbers, identical
from history.entities import Entity
from history.requests.worker_shares import expensive_view
from history.timeline import BadParameterError, FieldValue, Origin, Reader, Version

SOON = timedelta(minutes=30)
AGAIN = 4  # values that a change back and forth has
MOST = 10**15  # a number on the chart


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
    fields = fields_of(entity)
    label = path if wrong else " › ".join(steps(path, newest.data, fields))
    shown = [readable(one.value, fields, path) for one in values]
    values = [_plain(one, value) for one, value in zip(values, shown, strict=True)]
    address = links.field(entity, id, path).partition("?")[0]
    return render(
        request,
        "history/field.html",
        {
            **heads.context(request, reader, entity, id, newest, name=label or path),
            **links.pages(request, address, {"path": path}, token, following),
            "label": label,
            "notes": [wrong] if wrong else [],
            "lines": _lines(values, shown, newest),
            "chart": _chart(values, shown),
            "versions_url": links.with_path(links.timeline(entity, id), path, {}),
        },
        status=400 if wrong else 200,
    )


def _plain(one: FieldValue, shown: Value) -> FieldValue:
    """With a number also where the document has it as a text."""
    number = shown.form == "number" and isinstance(one.value, str)
    return replace(one, value=Decimal(one.value)) if number else one  # type: ignore[arg-type]


def _lines(
    values: Sequence[FieldValue], shown: Sequence[Value], newest: Version
) -> list[dict[str, object]]:
    """Newest first. stood: for how long, in words. note: what the value does to those before."""
    found: list[dict[str, object]] = []
    for number, one in enumerate(values):
        origin = one.origin
        until = one.until or clock.now()
        # Of the first one of an older page it is not known here.
        ended = one.until is None or (number > 0 and values[number - 1].origin.exact)
        found.append(
            {
                "value": shown[number],
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
    first, *before = (one.value for one in values)
    if len(before) < 2 or not _same(first, before[1]) or _same(first, before[0]):
        return ""
    now, undone = values[0].origin, values[1].origin
    if undone.author and not now.author and now.updated_at - undone.updated_at <= SOON:
        return _("A service undid the change of a person.")
    forth = len(values) == AGAIN and _same(before[0], before[2])
    if forth and now.client_id != undone.client_id:
        return _("Two services change the value back and forth.")
    return _("Changed back.")


def _same(one: Maybe, other: Maybe) -> bool:
    return identical(one, other) or equal_numbers(one, other)  # type: ignore[arg-type]


def _chart(values: Sequence[FieldValue], shown: Sequence[Value]) -> str:
    """Of numbers, as they were set; empty where a value is none, or for one alone."""
    found: list[ValueStep] = []
    for one, text in zip(reversed(values), reversed(shown), strict=True):
        value = one.value
        if value is None or isinstance(value, msgspec.UnsetType):
            continue
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            return ""
        if not -MOST < value < MOST:
            return ""
        found.append(ValueStep(one.origin.updated_at, float(value), text.text))
    return step_chart(found, clock.now()) if len(found) > 1 else ""
