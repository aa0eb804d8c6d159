"""Two versions of one entity next to each other."""

from dataclasses import dataclass
from datetime import datetime

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history import timeline
from history.admin.pages.missing import not_found_page
from history.admin.parts import links
from history.admin.parts.cards import fields_of, utc
from history.admin.parts.change_rows import change_rows, ordered
from history.admin.parts.heads import Twin, changed_by, other_versions, subject
from history.admin.parts.links import AFTER, row_pages, start_of
from history.admin.site.access import may_view_history
from history.diff import BadPath, parse
from history.entities import Entity
from history.record import MAX_VERSION
from history.timeline import Comparison, Version


@dataclass(frozen=True, slots=True)
class Column:
    """One of the two versions: the head of its column. changed_by: person or service."""

    version: int
    updated_at: datetime
    utc: str
    changed_by: str
    raw_url: str


class PairForm(forms.Form):
    """Which two versions. The fields have the names of the API."""

    def __init__(self, data: object) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        for name in ("from", "to"):
            self.fields[name] = forms.IntegerField(min_value=0, max_value=MAX_VERSION)


@may_view_history
def page(request: HttpRequest, entity: Entity, id: str) -> HttpResponse:
    """?from= and ?to= are version numbers; without them the page asks for them. ?fromAt= and
    ?toAt= are as ?at= of the snapshot. ?after= is how many changes the pages before had; those
    that fit ?path= come first."""
    form = PairForm(request.GET)
    if not form.is_valid():
        return _ask_for_versions(request, entity, id)
    old, new = form.cleaned_data["from"], form.cleaned_data["to"]
    made = [links.parse_moment(request.GET.get(name)) for name in (links.FROM_AT, links.TO_AT)]
    try:
        found = timeline.compare(entity, id, old, new, *made)
        twins = _twins(found)
    except timeline.NotFoundError as error:
        return not_found_page(request, entity, id, error)
    count = sum(not one.technical for one in found.changes)
    start = start_of(request.GET.get(AFTER, ""), len(found.changes))
    path = _path(request)
    changes = ordered(found.changes, path)
    shown = change_rows(changes, found.after.data, fields_of(entity), start=start)
    here = links.comparison(entity, id, _place(found.before), _place(found.after), path)
    return _render(
        request,
        entity,
        id,
        found.after,
        {
            "from_version": old,
            "to_version": new,
            "columns": _columns(found),
            "rows": shown.plain,
            "technical_rows": shown.technical,
            **row_pages(here, start, len(found.changes), _("Changes {first}–{last} of {count}")),
            "twins": twins,
            "swap_url": links.comparison(entity, id, _place(found.after), _place(found.before)),
            "count_text": ngettext("{n} change", "{n} changes", count).format(n=count),
        },
    )


def _path(request: HttpRequest) -> str | None:
    """None for what is no path."""
    try:
        parse(path := request.GET.get(links.PATH, ""))
    except BadPath:
        return None
    return path or None


def _ask_for_versions(request: HttpRequest, entity: Entity, id: str) -> HttpResponse:
    try:
        newest = timeline.newest(entity, id)
    except timeline.NotFoundError as error:
        return not_found_page(request, entity, id, error)
    note = _("Enter the numbers of two versions.")
    return _render(request, entity, id, newest, {"notes": [note]})


def _render(
    request: HttpRequest, entity: Entity, id: str, version: Version, shown: dict[str, object]
) -> HttpResponse:
    head = subject(entity, id, version)
    context = {
        **admin.site.each_context(request),
        "title": f"{head.kind} {id}",
        "subject": head,
        **shown,
    }
    return render(request, "history/compare.html", context)


def _place(version: Version) -> tuple[int, datetime]:
    return version.version, version.updated_at


def _twins(found: Comparison) -> list[Twin]:
    """The versions with one of the two numbers that are not shown."""
    shown = {_place(found.before), _place(found.after)}
    return [
        twin
        for number in sorted({number for number, _ in shown})
        for twin in other_versions(
            found.after.entity, found.after.id, number, [made for n, made in shown if n == number]
        )
    ]


def _columns(found: Comparison) -> list[Column]:
    return [
        Column(
            version.version,
            version.updated_at,
            utc(version.updated_at),
            changed_by(version),
            links.snapshot(version.entity, version.id, *_place(version)),
        )
        for version in (found.before, found.after)
    ]
