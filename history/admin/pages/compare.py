"""Two versions of one entity next to each other."""

from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history import timeline
from history.admin.pages.view import may_view_history
from history.admin.parts import heads, links
from history.admin.parts.cards import fields_of
from history.admin.parts.change_rows import change_rows, ordered
from history.admin.parts.headline import for_titles
from history.admin.parts.links import AFTER, row_pages, start_of
from history.diff import BadPath, parse
from history.entities import Entity
from history.timeline import Reader, Version


@may_view_history
def page(request: HttpRequest, reader: Reader, entity: Entity, id: str) -> HttpResponse:
    """?from= and ?to= are version numbers; without them the page asks for them. ?fromAt= and ?toAt=
    are as ?at= of the snapshot. ?after= is how many changes the pages before had."""
    old, new = (links.number(request.GET.get(name, "")) for name in ("from", "to"))
    if old is None or new is None:
        return _ask_for_versions(request, reader, entity, id)
    made = [links.parse_moment(request.GET.get(name)) for name in (links.FROM_AT, links.TO_AT)]
    found = timeline.compare(reader, entity, id, old, new, *made)
    known = reader.keys(entity, [id]).get(id, ())
    count = sum(not one.technical for one in found.changes)
    start = start_of(request.GET.get(AFTER, ""), len(found.changes))
    path = _path(request)
    changes = ordered(found.changes, path)
    shown = change_rows(changes, found.after.data, fields_of(entity), start=start)
    here = links.comparison(entity, id, _place(found.before), _place(found.after), path)
    return render(
        request,
        "history/compare.html",
        {
            **heads.context(
                request,
                reader,
                entity,
                id,
                found.after,
                name=_("versions {old} and {new}").format(old=old, new=new),
            ),
            "from_version": old,
            "to_version": new,
            "columns": [
                {
                    "version": version,
                    "changed_by": heads.changed_by(version),
                    "raw_url": links.snapshot(entity, id, *_place(version)),
                }
                for version in (found.before, found.after)
            ],
            "rows": shown.plain,
            "technical_rows": shown.technical,
            **row_pages(here, start, len(found.changes), _("Changes {first}–{last} of {count}")),
            "twins": heads.other_versions(known, found.before, found.after),
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


def _ask_for_versions(
    request: HttpRequest, reader: Reader, entity: Entity, id: str
) -> HttpResponse:
    newest = timeline.newest(for_titles(reader), entity, id)
    context = heads.context(request, reader, entity, id, newest, name=_("comparison"))
    notes = [_("Enter the numbers of two versions.")]
    return render(request, "history/compare.html", {**context, "notes": notes})


def _place(version: Version) -> tuple[int, datetime]:
    return version.version, version.updated_at
