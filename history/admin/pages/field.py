"""The page of one field: all its values, who set them, how long they lasted, what was undone."""

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
from history.admin.components import links, page_head
from history.admin.components.cards import make_field_names
from history.admin.components.change_rows import get_step_names
from history.admin.components.values import ShownValue, make_value
from history.admin.pages.permission import require_history_permission
from history.admin.reading_aids.picture import ValueStep, draw_step_chart
from history.common import clock
from history.common.worker_shares import mark_expensive
from history.diff import MaybeJson
from history.diff.equality import is_equal_number, is_identical
from history.kinds.entities import EntityKind
from history.timeline import BadParameterError, FieldValue, HistoryReader, ValueOrigin, Version

UNDO_PERIOD = timedelta(minutes=30)
# How many consecutive values are compared to find out whether a field changes back and forth.
COMPARED_VALUES = 4
MAX_CHART_NUMBER = 10**15  # the largest number that the chart draws


@require_history_permission
@mark_expensive
def show_field(
    request: HttpRequest, reader: HistoryReader, entity: EntityKind, id: str
) -> HttpResponse:
    """Show the values of the field at ?path=, which is a pointer or a key path.

    If the store does not have the document, the page answers 404 and says why.
    """
    path, token = request.GET.get("path", ""), request.GET.get(links.PAGE) or None
    values: Sequence[FieldValue] = ()
    following, complaint = None, ""
    newest = timeline.fetch_newest_version(reader, entity, id)
    try:
        page = timeline.fetch_field_history(reader, entity, id, path, page_token=token)
        values, following = page.values, page.next_token
    except BadParameterError:
        complaint = _("This is not a path of a field. Enter one such as /rate")
    fields = make_field_names(entity)
    label = path if complaint else " › ".join(get_step_names(path, newest.data, fields))
    shown_values = [make_value(field_value.value, fields, path) for field_value in values]
    values = [
        _convert_number_text(field_value, value)
        for field_value, value in zip(values, shown_values, strict=True)
    ]
    address = links.build_field_url(entity, id, path).partition("?")[0]
    return render(
        request,
        "history/field.html",
        {
            **page_head.make_context(request, reader, entity, id, newest, name=label or path),
            **links.build_page_urls(request, address, {"path": path}, token, following),
            "label": label,
            "notes": [complaint] if complaint else [],
            "lines": _make_lines(values, shown_values, newest),
            "chart": _draw_chart(values, shown_values),
            "versions_url": links.build_timeline_url_for_path(
                links.build_timeline_url(entity, id), path, {}
            ),
        },
        status=400 if complaint else 200,
    )


def _convert_number_text(value: FieldValue, shown_value: ShownValue) -> FieldValue:
    """Convert a text to a number if the page shows it as a number. Else return it unchanged."""
    is_number_text = shown_value.form == "number" and isinstance(value.value, str)
    return replace(value, value=Decimal(value.value)) if is_number_text else value  # type: ignore[arg-type]


def _make_lines(
    values: Sequence[FieldValue], shown_values: Sequence[ShownValue], newest: Version
) -> list[dict[str, object]]:
    """Return the template's variables for each value, the newest first.

    `stood` says how long the field had the value. `note` says that the value undoes an earlier
    change, and has no text for any other value.
    """
    lines: list[dict[str, object]] = []
    for number, value in enumerate(values):
        origin = value.origin
        until = value.until or clock.now()
        # On a page of older values, it is not known whether the end of the first value is exact:
        # the version that replaced this value is on the page before.
        is_end_known = value.until is None or (number > 0 and values[number - 1].origin.exact)
        lines.append(
            {
                "value": shown_values[number],
                "origin": origin,
                "who": (origin.author or origin.service).name,
                "service": origin.service.name if origin.author else "",
                "stood": _describe_duration(origin, until, is_end_known=is_end_known)
                if until > origin.updated_at
                else "",
                "now": value.until is None,
                "note": _explain_change_back(values[number : number + COMPARED_VALUES]),
                "url": links.build_snapshot_url(
                    newest.entity, newest.id, origin.version, origin.updated_at
                ),
            }
        )
    return lines


def _describe_duration(origin: ValueOrigin, until: datetime, *, is_end_known: bool) -> str:
    """Return a text that says how long the field had the value of `origin`.

    Args:
        until: The moment of the stored version that replaced the value; now, for the current value.
        is_end_known: Whether the value ended exactly then. False: a version that the store does not
            have may have changed it earlier.
    """
    span = timesince(origin.updated_at, until)
    if origin.exact:
        return span if is_end_known else _("at most {time}").format(time=span)
    return _("at least {time}").format(time=span) if is_end_known else _("not known")


def _explain_change_back(values: Sequence[FieldValue]) -> str:
    """Return a sentence if the first of these values undoes an earlier change, or "".

    `values` are up to COMPARED_VALUES consecutive values of the field, newest first.
    """
    first, *before = (value.value for value in values)
    if len(before) < 2 or not _is_same(first, before[1]) or _is_same(first, before[0]):
        return ""
    now, undone = values[0].origin, values[1].origin
    if undone.author and not now.author and now.updated_at - undone.updated_at <= UNDO_PERIOD:
        return _("A service undid the change of a person.")
    is_back_and_forth = len(values) == COMPARED_VALUES and _is_same(before[0], before[2])
    if is_back_and_forth and now.client_id != undone.client_id:
        return _("Two services change the value back and forth.")
    return _("Changed back.")


def _is_same(first: MaybeJson, second: MaybeJson) -> bool:
    return is_identical(first, second) or is_equal_number(first, second)  # type: ignore[arg-type]


def _draw_chart(values: Sequence[FieldValue], shown_values: Sequence[ShownValue]) -> str:
    """Draw the values over time. Empty for a single value, and if any value is not a number."""
    steps: list[ValueStep] = []
    for field_value, text in zip(reversed(values), reversed(shown_values), strict=True):
        value = field_value.value
        if value is None or isinstance(value, msgspec.UnsetType):
            continue
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            return ""
        if not -MAX_CHART_NUMBER < value < MAX_CHART_NUMBER:
            return ""
        steps.append(ValueStep(field_value.origin.updated_at, float(value), text.text))
    return draw_step_chart(steps, clock.now()) if len(steps) > 1 else ""
